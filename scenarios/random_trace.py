"""Generator of random traces, from numbers of any source.

The numbers come from a `Source`: labelled ones from a seed alone (`random_trace`), or those that Hypothesis draws.
What kinds of things exist in a trace is drawn first (swarm testing: features that are absent make room for others), and
then how often each of them occurs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scenarios import draw_params
from scenarios.drafters import DRAFTERS, TRAITS
from scenarios.draw import Digits, Source
from scenarios.draw_params import Chance
from scenarios.events import PLACES
from scenarios.flat_traces import (
    CUTS,
    KINDS,
    PATTERNS,
    POLICIES,
    UNDEFINED,
    VOCABULARIES,
    FlatEvent,
    SpecNumbers,
    interpret,
    spec_of,
)
from scenarios.sampling import GRAMMAR
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

# Lengths of prompts past tables of 64 positions.
LONG_MIN, LONG_MAX = 56, 100


def random_trace(seed: int) -> Trace:
    """Return the trace of a seed: the same one on any host, in any process."""
    return trace_of(lambda site, index: Digits(seed, site, index), seed)


def trace_of(source: Source, seed: int) -> Trace:
    """Return the trace that a source draws; its prompts, scripts and schedule follow from the seed."""
    chance = draw_params.chance_of(source)
    numbers = _random_spec(source, seed, chance)
    spec = spec_of(numbers)
    later_first = spec.policy == "priority" and source("urgency", 0).one_in(2)
    if later_first:
        # Three rows ask for more than the budget, so that what one gives back is used.
        k, digits = spec.num_speculative_tokens, source("urgency", 1)
        numbers = numbers._replace(num_rows=2 + digits.below(3), budget=(1 + k) * (1 + digits.below(2)), chunk=0)
        spec = spec_of(numbers)
    requests = _random_submits(source, spec, chance)
    tight = source("pool", 0)
    if tight.below(5) < 3 or spec.policy == "priority":
        need = max(spec.blocks_needed(1 + flat.a, 1 + flat.b) for flat in requests)
        numbers = numbers._replace(num_blocks=need - 1 + tight.below(1 + need // 2))
    events = _random_events(source, spec, len(requests))
    if spec.prefix_cache:
        requests = _with_equal_blocks(source, spec, _with_common_prompts(source, spec, requests))
    if spec.policy == "priority":
        requests = _with_priorities(source, requests, later_first)
    events += _spoiled_proposals(source, spec, requests)
    requests, preemption = _with_early_preemption(source, spec, requests)
    events += preemption
    reuse = _random_reuse(source, requests)
    for aborted in _aborted_at_end(source, spec, len(requests)):
        reuse.append(
            FlatEvent(0, aborted.tick, 0, aborted.request_index, aborted.num_prompt - 1, aborted.max_tokens - 1)
        )
        reuse.append(FlatEvent(KINDS.index("abort"), aborted.abort_tick, aborted.abort_place, aborted.request_index))
    return interpret(numbers, (*requests, *events, *reuse))


def _random_spec(source: Source, seed: int, chance: Chance) -> SpecNumbers:
    sizes, switches = source("sizes", 0), source("switches", 0)
    has_prefix_cache = source("prefix_cache", 0).one_in(4)
    drafters = source("drafter", 0)
    k = _many_drafts(source, sizes.of((0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5)))
    # Draws come in this order: each takes the next digit of `sizes`.
    num_rows = sizes.of((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
    # A hit takes at least two blocks of a prompt.
    block_size = sizes.of((0, 1, 1, 2, 2, 3, 3, 3) if has_prefix_cache else (0, 1, 2, 3, 3, 3, 3, 7))
    is_synchronous, is_attention_only = switches.one_in(8), switches.one_in(8)
    drafter = drafters.of((0, 0, 0, 0, 0, 8, 1, 1, 2, 2, 3, 4, 5, 6, 7))
    takes_last_match = has_prefix_cache and source("last_match", 0).one_in(2)
    if takes_last_match:
        drafter = source("last_match", 1).of((3, 3, 4, 5, 5, 6, 7, 8, 1))
    return SpecNumbers(
        k=k,
        is_synchronous=is_synchronous,
        # A hit on a block of the same step has no recurrent state to go on from.
        is_attention_only=is_attention_only or (has_prefix_cache and source("at_once", 0).one_in(2)),
        is_host_counted=switches.below(5) < 2,
        is_unpadded=switches.one_in(5),
        num_rows=num_rows,
        num_blocks=127,
        block_size=block_size,
        budget=sizes.of((0, 2, 4, 8, 12, 16, 28, 28, 60)),
        chunk=sizes.of((0, 0, 0, 1, 2, 3, 4, 7)),
        model_length=_model_length(source, switches.of((0, 0, 0, 0, 0, 96, 104)), k),
        token_multiple=sizes.of((0, 3, 7, 15)),
        policy=switches.below(len(POLICIES)),
        seed=seed,
        is_aligned=source("aligned", 0).one_in(3),
        # Rows share blocks, and so a prefix, only where they take them over from the prefix cache.
        is_cascading=source("cascade", 0).one_in(2 if has_prefix_cache else 4),
        has_prefix_cache=has_prefix_cache,
        drafter=DRAFTERS.index("draft_model") if chance.needs_guesses else drafter,
        drafter_length=_drafter_length(source, drafters.one_in(6), drafters.below(32)),
        is_logprob_processed=source("logprobs", 0).one_in(3),
        has_priorities=source("priorities", 0).one_in(5),
        method=chance.method,
        conv_width=source("conv_width", 0).of((0, 0, 0, 0, 1, 2, 3, 4)),
        is_drawing=chance.draws_drafts,
        vocabulary=_seldom_nonzero(source, "vocabulary", 4, len(VOCABULARIES)),
        cuts=_seldom_nonzero(source, "cuts", 2, len(CUTS)),
        takes_last_match=takes_last_match,
    )


def _seldom_nonzero(source: Source, site: str, one_in: int, count: int) -> int:
    """Return 0, or in one trace of `one_in` a number from 1 to `count` - 1."""
    digits = source(site, 0)
    return 1 + digits.below(count - 1) if digits.one_in(one_in) else 0


def _many_drafts(source: Source, usual: int) -> int:
    """Return the number of drafts of a row: six to eight in one trace of 16."""
    digits = source("many_drafts", 0)
    return 6 + digits.below(3) if digits.one_in(16) else usual


def _model_length(source: Source, usual: int, k: int) -> int:
    """Return 128 less the number of the model's positions; in one trace of 16 those are K + 3 at most."""
    digits = source("model_length", 0)
    return 128 - max(2, k + digits.below(4)) if digits.one_in(16) else usual


def _drafter_length(source: Source, has_limit: bool, usual: int) -> int:
    """Return the number of positions of a drafter, 0 for no limit; some have one, two or three."""
    digits = source("drafter_length", 0)
    return 0 if not has_limit else 1 + digits.below(3) if digits.one_in(4) else 4 + usual


def _random_submits(source: Source, spec: EngineSpec, chance: Chance) -> tuple[FlatEvent, ...]:
    swarm = source("requests", 0)
    count = swarm.of((1, 2, 3, 3, 4, 4, 5, 5, 6, 7))
    spread = swarm.of((1, 8, 24))
    has_other_places, has_stops = swarm.below(2), swarm.one_in(3)
    lengths_max, tokens_max = swarm.of((6, 12, 24)), swarm.of((12, 24, 24))
    patterns = tuple(swarm.of((0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8)) for _ in range(2))
    edges = _boundary_lengths(spec.num_speculative_tokens, spec.block_size)
    long = source("long", 0)
    longest = long.below(count) if long.one_in(12) else None
    params = draw_params.Params(source, chance)
    flats = []
    for request_index in range(count):
        digits = source("submit", request_index)
        length = max(1, digits.of(edges)) if digits.below(2) else 1 + digits.below(lengths_max)
        if request_index == longest:
            length = LONG_MIN + long.below(LONG_MAX - LONG_MIN)
        pattern = digits.of(patterns)
        flats.append(
            FlatEvent(
                kind=0,
                tick=digits.below(spread),
                place=digits.of((0, 0, 1, 2)) if has_other_places else 0,
                request_index=request_index,
                a=length - 1,
                b=tokens_max // 2 + digits.below(tokens_max // 2) if digits.below(4) else digits.below(tokens_max),
                c=pattern if pattern < len(PATTERNS) else len(PATTERNS) + digits.below(4096),
                d=1 + digits.below(spec.vocab_size) if has_stops else 0,
                f=params.number(request_index),
                i=params.chance_number(request_index),
            )
        )
    return tuple(flats)


def _random_reuse(source: Source, requests: Sequence[FlatEvent]) -> list[FlatEvent]:
    """Return submits under names used before, in one trace of three; half of them abort the old request first."""
    swarm = source("reuse", 0)
    count, exists = swarm.below(4), swarm.one_in(3)
    flats = []
    for index in range(1 + count if exists else 0):
        digits = source("reuse", 1 + index)
        old = requests[digits.below(len(requests))]
        tick, place = old.tick + 1 + digits.below(16), digits.below(len(PLACES))
        if digits.below(2):
            flats.append(old._replace(kind=KINDS.index("abort"), tick=tick, place=place))
            place = min(len(PLACES) - 1, place + digits.below(2))
        flats.append(old._replace(tick=tick, place=place, b=digits.below(16), e=digits.below(3)))
    return flats


def _random_events(source: Source, spec: EngineSpec, num_requests: int) -> list[FlatEvent]:
    swarm = source("events", 0)
    ticks = swarm.of((8, 16, 31))
    flats = []
    for kind in range(1, len(KINDS)):
        exists, most = swarm.below(2), swarm.of((1, 2, 4))
        # NaN logits end their request: more of them would leave too little of the other events.
        if KINDS[kind] in ("nan_logits", "spoil_logit"):
            exists &= source(KINDS[kind], -1).one_in(2 if KINDS[kind] == "spoil_logit" else 4)
        if KINDS[kind] == "reset_prefix_cache" and not spec.prefix_cache:
            exists = source("reset", 0).one_in(8)
        for index in range(1 + swarm.below(most) if exists else 0):
            digits = source(KINDS[kind], index)
            size = spec.num_speculative_tokens + 1 if KINDS[kind] == "set_k" else 4
            flats.append(
                FlatEvent(
                    kind=kind,
                    tick=digits.below(ticks),
                    place=digits.below(len(PLACES)),
                    request_index=digits.below(num_requests),
                    a=digits.below(size),
                    b=digits.below(spec.vocab_size),
                    # Three of four are infinite: nan_logits covers NaN.
                    c=min(1, digits.below(4)) if KINDS[kind] == "spoil_logit" else digits.below(4),
                    d=0,
                )
            )
    return flats


def _spoiled_proposals(source: Source, spec: EngineSpec, requests: Sequence[FlatEvent]) -> list[FlatEvent]:
    """Return events that spoil the logits drafts were drawn from, in one of two traces that draw drafts."""
    swarm = source("proposals", 0)
    drawing = [flat for flat in requests if flat.i] if spec.draft_sampling == "probabilistic" else []
    flats = []
    for index in range(1 + swarm.below(3) if drawing and swarm.one_in(2) else 0):
        digits = source("proposals", 1 + index)
        spoiled = drawing[digits.below(len(drawing))]
        flats.append(
            FlatEvent(
                kind=KINDS.index("spoil_draft"),
                tick=spoiled.tick + 1 + digits.below(12),
                place=digits.below(len(PLACES)),
                request_index=spoiled.request_index,
                a=digits.below(4),
                b=digits.below(spec.vocab_size),
                c=digits.of(UNDEFINED),
                d=0,
            )
        )
    return flats


def _with_early_preemption(
    source: Source, spec: EngineSpec, requests: tuple[FlatEvent, ...]
) -> tuple[tuple[FlatEvent, ...], list[FlatEvent]]:
    """Return requests of which one is preempted right after the launch of its first step, and the events for it.

    This is in one of two traces in which the host keeps drafts (suffix drafter or a grammar): the request has one
    prompt token, and is then aborted, or stalled until the step has been processed.
    """
    digits = source("taken_back", 0)
    kept = [flat for flat in requests if TRAITS[spec.drafter].keeps_requests or flat.f & GRAMMAR]
    if not kept or not digits.one_in(2):
        return requests, []
    request = kept[digits.below(len(kept))]
    request_index, tick, mode = request.request_index, request.tick, digits.below(2)
    preempted = FlatEvent(KINDS.index("preempt"), tick, 1 + digits.below(2), request_index, mode)
    aborted = FlatEvent(KINDS.index("abort"), tick + 1, 0, request_index)
    stalled = FlatEvent(KINDS.index("stall"), tick, len(PLACES) - 1, request_index, 1)
    changed = tuple(flat._replace(place=0, a=0) if flat is request else flat for flat in requests)
    return changed, [preempted, aborted if digits.below(2) else stalled]


def _boundary_lengths(num_speculative_tokens: int, block_size: int) -> tuple[int, ...]:
    """Return the lengths of prompts at which an index may be off by one."""
    k, block = num_speculative_tokens, block_size
    return (1, k, k + 1, block - 1, block, block + 1)


def _with_common_prompts(source: Source, spec: EngineSpec, requests: Sequence[FlatEvent]) -> tuple[FlatEvent, ...]:
    """Return requests whose prompts, longer by some blocks, share prefixes: of all their tokens or of some blocks.

    In half of the traces in which a request may hit a block registered in the same step all arrive together; in half of
    all traces most prompts are prefixes of one another, and end one token behind a block.
    """
    together = source("together", 0)
    are_together, are_alike = together.one_in(4 if spec.is_aligned else 2), together.one_in(2)
    spacing = together.below(5)
    found = []
    for flat in requests:
        digits, length = source("common", flat.request_index), 1 + flat.a
        length += digits.below(4) * spec.block_size
        some = digits.below(2 + length // spec.block_size) * spec.block_size + digits.below(2)
        if are_alike:
            length += (1 - length) % spec.block_size
        tick, place = (requests[0].tick, requests[0].place) if are_together else (flat.tick, flat.place)
        # Most prompts are computed before the next comes, which then has one token left.
        tick = requests[0].tick + spacing * flat.request_index if are_alike and not are_together else tick
        is_whole = digits.below(4 if are_alike else 2) > 0
        found.append(flat._replace(tick=tick, place=place, a=length - 1, g=length if is_whole else some))
    return tuple(found)


def _with_equal_blocks(source: Source, spec: EngineSpec, requests: tuple[FlatEvent, ...]) -> tuple[FlatEvent, ...]:
    """Return requests of which most, in one trace of three, have equal blocks behind blocks that differ."""
    if not source("equal_blocks", 0).one_in(3):
        return requests
    found = []
    for flat in requests:
        digits, num_blocks = source("equal_blocks", 1 + flat.request_index), flat.a // spec.block_size
        start, own = digits.below(max(1, num_blocks - 1)) * spec.block_size, 1 + digits.below(spec.block_size)
        has_own = num_blocks > 1 and digits.below(4) > 0
        found.append(flat._replace(g=start, j=own) if has_own else flat)
    return tuple(found)


def _with_priorities(source: Source, requests: Sequence[FlatEvent], later_first: bool) -> tuple[FlatEvent, ...]:
    """Return requests with priorities; with `later_first` each is more urgent than those before it.

    Then a request is preempted that has its share of the step already.
    """
    if later_first:
        return tuple(
            flat._replace(tick=flat.request_index, place=0, h=len(requests) - flat.request_index) for flat in requests
        )
    return tuple(flat._replace(h=source("priority", flat.request_index).below(3)) for flat in requests)


class _AbortedAtEnd(NamedTuple):
    """A request under the name of number `request_index`, and the tick and place of its abort, about when it ends."""

    request_index: int
    tick: int
    num_prompt: int
    max_tokens: int
    abort_tick: int
    abort_place: int


def _aborted_at_end(source: Source, spec: EngineSpec, num_requests: int) -> list[_AbortedAtEnd]:
    """Return some late requests in one trace of four, each with an abort about when it ends.

    They arrive when most others have ended, so their last tick is known. All their drafts are right, and most end with
    a whole run, so that a step is in flight. The abort comes in that tick, or in one of the next two.
    """
    swarm = source("late", 0)
    found = []
    for index in range(1 + swarm.below(2) if swarm.one_in(4) else 0):
        digits = source("late", 1 + index)
        tick, num_prompt, run = 40 + 12 * index + digits.below(8), 1 + digits.below(6), 1 + spec.num_speculative_tokens
        max_tokens = 1 + run * (1 + digits.below(3)) if digits.below(3) else 2 + digits.below(8)
        ends = _last_tick(spec, tick, num_prompt, max_tokens)
        at = ends + digits.of((0, 1, 1, 1, 2)), digits.below(len(PLACES))
        found.append(_AbortedAtEnd(digits.below(num_requests), tick, num_prompt, max_tokens, *at))
    return found


def _last_tick(spec: EngineSpec, tick: int, num_prompt: int, max_tokens: int) -> int:
    """Return the tick that ends with the last token of a request that runs alone, if all its drafts are accepted."""
    chunk = min(spec.long_prefill_token_threshold or spec.max_num_batched_tokens, spec.max_num_batched_tokens)
    chunk = min(chunk, spec.block_size) if spec.is_aligned else chunk
    num_behind = max(0, spec.length_limit(num_prompt, max_tokens) - num_prompt - 1)
    # A token is processed depth - 1 ticks after the step that sampled it.
    return tick + -(-num_prompt // chunk) + -(-num_behind // (1 + spec.num_speculative_tokens)) + spec.depth - 2
