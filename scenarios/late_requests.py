"""Requests that come late, and are given up about when they end."""

from typing import NamedTuple

from scenarios.draw import Digits
from scenarios.events import PLACES
from scenarios.spec import EngineSpec


class LateComer(NamedTuple):
    """A request under the name of number `who`, and when and where an abort names it."""

    who: int
    tick: int
    num_prompt: int
    max_tokens: int
    abort_tick: int
    abort_place: int


def late_comers(seed: int, spec: EngineSpec, num_requests: int) -> list[LateComer]:
    """Return some requests in one trace of six; they come when most others have ended, so it is known when they end.

    All their drafts are right, and most end with a whole run, so that a step is in flight. An abort comes in the tick
    that ends with their last token, or in one of the next two.
    """
    swarm = Digits(seed, "late", 0)
    found = []
    for index in range(1 + swarm.below(2) if swarm.below(6) == 0 else 0):
        digits = Digits(seed, "late", 1 + index)
        tick, num_prompt, run = 40 + 12 * index + digits.below(8), 1 + digits.below(6), 1 + spec.num_speculative_tokens
        max_tokens = 1 + run * (1 + digits.below(3)) if digits.below(3) else 2 + digits.below(8)
        ends = last_tick(spec, tick, num_prompt, max_tokens)
        at = ends + digits.of((0, 1, 1, 1, 2)), digits.below(len(PLACES))
        found.append(LateComer(digits.below(num_requests), tick, num_prompt, max_tokens, *at))
    return found


def last_tick(spec: EngineSpec, tick: int, num_prompt: int, max_tokens: int) -> int:
    """Return the tick that ends with the last token of a request that runs alone, if all its drafts are accepted."""
    chunk = min(spec.long_prefill_token_threshold or spec.max_num_batched_tokens, spec.max_num_batched_tokens)
    chunk = min(chunk, spec.block_size) if spec.is_aligned else chunk
    num_behind = spec.length_limit(num_prompt, max_tokens) - num_prompt - 1
    # A token is processed depth - 1 ticks after the step that sampled it.
    return tick + -(-num_prompt // chunk) + -(-num_behind // (1 + spec.num_speculative_tokens)) + spec.depth - 2
