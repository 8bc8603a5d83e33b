"""Random traces: Hypothesis strategies, and traces from a seed alone.

Both draw small integers for `flat_traces.interpret`. What Hypothesis draws follows from its seed alone, too: `BACKEND`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from scenarios import draw_params
from scenarios.draw import Digits
from scenarios.events import PLACES
from scenarios.flat_traces import (
    CONV_WIDTHS,
    DRAFTERS,
    KINDS,
    NUM_REQUESTS_MAX,
    PATTERNS,
    POLICIES,
    FlatEvent,
    SpecNumbers,
    interpret,
    spec_of,
)
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

BACKEND = "specstorm"


class Provider(HypothesisProvider):
    """Hypothesis as it is, but for the constants that it finds in the source of modules that happen to be loaded.

    A worker, the coordinator and a replay load different modules; the traces of a shard are the same in all of them.
    """

    def _maybe_draw_constant(self, *of: object, **options: object) -> None:
        """Draw no constant."""
        return


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Provider"


def traces(num_events_max: int = 24) -> st.SearchStrategy[Trace]:
    """Return a strategy for valid traces: numbers of one fixed shape, so that shrinking deletes and lowers."""
    byte = st.integers(0, 255)
    bit = st.integers(0, 1)
    numbers = st.tuples(
        st.integers(0, 4),
        *(bit,) * 4,
        st.integers(0, 5),
        st.integers(0, 40),
        st.integers(0, 7),
        st.integers(0, 32),
        st.integers(0, 8),
        st.integers(0, 112),
        st.integers(0, 7),
        st.integers(0, len(POLICIES) - 1),
        st.integers(0, 2**32 - 1),
        *(bit,) * 3,
        st.integers(0, len(DRAFTERS) - 1),
        st.sampled_from((0, 0, 0, 4, 8, 16, 32)),
        bit,
        bit,
        st.sampled_from((0, 0, 0, 0, 1, 2 + 4 * 40, 3)),
        st.integers(0, len(CONV_WIDTHS) - 1),
        st.sampled_from((0, 0, 0, 1)),
    )

    # Without requests nothing else does anything: some come first, of any other kind fewer follow.
    def event(kind: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(
            kind,
            st.integers(0, 30),
            st.integers(0, len(PLACES) - 1),
            st.integers(0, NUM_REQUESTS_MAX - 1),
            st.integers(0, 24),
            st.integers(0, 24),
            byte,
            st.integers(0, 32),
            st.integers(0, 2),
            st.integers(0, 1023),
            st.integers(0, 24),
            st.integers(0, 2),
            st.sampled_from((0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)),
        )

    submits = st.lists(event(st.just(0)), min_size=1, max_size=NUM_REQUESTS_MAX)
    others = st.lists(event(st.integers(1, len(KINDS) - 1)), max_size=num_events_max - NUM_REQUESTS_MAX)
    return st.builds(lambda of, first, then: interpret(of, (*first, *then)), numbers, submits, others)


def random_trace(seed: int) -> Trace:
    """Return the trace of a seed: the same one on any host, in any process.

    What kinds of things exist in a trace is drawn first (swarm testing: features that are absent make room for
    others), and then how often each of them occurs.
    """
    numbers = _random_spec(seed)
    spec = spec_of(numbers)
    requests = _random_submits(seed, spec)
    if (tight := Digits(seed, "pool", 0)).below(5) < 3:
        need = max(spec.blocks_needed(1 + flat.a, 1 + flat.b) for flat in requests)
        numbers = numbers._replace(num_blocks=need - 1 + tight.below(1 + need // 2))
    events = _random_events(seed, spec, len(requests))
    if spec.prefix_cache:
        alike = [_common_beginning(seed, flat.who, 1 + flat.a, spec.block_size) for flat in requests]
        requests = tuple(
            flat._replace(a=length - 1, g=common) for flat, (length, common) in zip(requests, alike, strict=True)
        )
    if spec.policy == "priority":
        requests = tuple(flat._replace(h=Digits(seed, "priority", flat.who).below(3)) for flat in requests)
    reuse = _random_reuse(seed, requests)
    for aborted in _aborted_at_end(seed, spec, len(requests)):
        reuse.append(FlatEvent(0, aborted.tick, 0, aborted.who, aborted.num_prompt - 1, aborted.max_tokens - 1, 0, 0))
        reuse.append(FlatEvent(KINDS.index("abort"), aborted.abort_tick, aborted.abort_place, aborted.who, 0, 0, 0, 0))
    return interpret(numbers, (*requests, *events, *reuse))


def _random_spec(seed: int) -> SpecNumbers:
    sizes, switches = Digits(seed, "sizes", 0), Digits(seed, "switches", 0)
    has_prefix_cache = Digits(seed, "prefix_cache", 0).below(4) == 0
    drafters = Digits(seed, "drafter", 0)
    k = sizes.of((0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5))
    return SpecNumbers(
        k=k,
        is_synchronous=switches.below(8) == 0,
        # A hit on a block of the same step goes on from no recurrent state.
        is_attention_only=switches.below(8) == 0 or (has_prefix_cache and seed % 3 == 0),
        is_host_counted=switches.below(5) < 2,
        is_unpadded=switches.below(5) == 0,
        num_rows=sizes.of((0, 1, 1, 2, 2, 2, 3, 3, 4, 5)),
        num_blocks=127,
        # A hit takes at least two blocks of a prompt.
        block_size=sizes.of((0, 1, 1, 2, 2, 3, 3, 3) if has_prefix_cache else (0, 1, 2, 3, 3, 3, 3, 7)),
        budget=sizes.of((0, 2, 4, 8, 12, 16, 28, 28, 60)),
        chunk=sizes.of((0, 0, 0, 1, 2, 3, 4, 7)),
        model_length=switches.of((0, 0, 0, 0, 0, 96, 104)),
        token_multiple=sizes.of((0, 3, 3, 7)),
        policy=switches.below(len(POLICIES)),
        seed=seed,
        is_aligned=Digits(seed, "aligned", 0).below(3) == 0,
        # Rows share blocks, and so a prefix, only where they take them over from the prefix cache.
        is_cascading=Digits(seed, "cascade", 0).below(2 if has_prefix_cache else 4) == 0,
        has_prefix_cache=has_prefix_cache,
        drafter=DRAFTERS.index("draft_model")
        if draw_params.needs_guesses(seed)
        else drafters.of((0, 0, 0, 0, 0, 8, 1, 1, 2, 2, 3, 4, 5, 6, 7)),
        drafter_length=4 + drafters.below(32) if drafters.below(6) == 0 else 0,
        is_logprob_processed=Digits(seed, "logprobs", 0).below(3) == 0,
        has_priorities=Digits(seed, "priorities", 0).below(5) == 0,
        method=draw_params.random_method(seed),
        conv_width=Digits(seed, "conv_width", 0).of((0, 0, 0, 0, 1, 2, 3, 4)),
        is_drawing=draw_params.draws_drafts(seed),
    )


def _random_submits(seed: int, spec: EngineSpec) -> tuple[FlatEvent, ...]:
    swarm = Digits(seed, "requests", 0)
    count = swarm.of((1, 2, 3, 3, 4, 4, 5, 5, 6, 7))
    spread = swarm.of((1, 8, 24))
    has_other_places, has_stops = swarm.below(2), swarm.below(3) == 0
    lengths_max, tokens_max = swarm.of((6, 12, 24)), swarm.of((12, 24, 24))
    patterns = tuple(swarm.of((0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8)) for _ in range(2))
    edges = _boundary_lengths(spec.num_speculative_tokens, spec.block_size)
    flats = []
    for who in range(count):
        digits = Digits(seed, "submit", who)
        length = max(1, digits.of(edges)) if digits.below(2) else 1 + digits.below(lengths_max)
        pattern = digits.of(patterns)
        flats.append(
            FlatEvent(
                kind=0,
                tick=digits.below(spread),
                place=digits.of((0, 0, 1, 2)) if has_other_places else 0,
                who=who,
                a=length - 1,
                b=tokens_max // 2 + digits.below(tokens_max // 2) if digits.below(4) else digits.below(tokens_max),
                c=pattern if pattern < len(PATTERNS) else len(PATTERNS) + digits.below(4096),
                d=1 + digits.below(spec.vocab_size) if has_stops else 0,
                f=draw_params.random_params(seed, who),
                i=draw_params.random_chance(seed, who),
            )
        )
    return tuple(flats)


def _random_reuse(seed: int, requests: Sequence[FlatEvent]) -> list[FlatEvent]:
    """Return submits under names used before, in one trace of four; half of them give the old one up first."""
    swarm = Digits(seed, "reuse", 0)
    flats = []
    for index in range(1 + swarm.below(4) if swarm.below(4) == 0 else 0):
        digits = Digits(seed, "reuse", 1 + index)
        old = requests[digits.below(len(requests))]
        tick, place = old.tick + 1 + digits.below(16), digits.below(len(PLACES))
        if digits.below(2):
            flats.append(old._replace(kind=KINDS.index("abort"), tick=tick, place=place))
            place = min(len(PLACES) - 1, place + digits.below(2))
        flats.append(old._replace(tick=tick, place=place, b=digits.below(16), e=digits.below(3)))
    return flats


def _random_events(seed: int, spec: EngineSpec, num_requests: int) -> list[FlatEvent]:
    swarm = Digits(seed, "events", 0)
    ticks = swarm.of((8, 16, 31))
    flats = []
    for kind in range(1, len(KINDS)):
        exists, most = swarm.below(2), swarm.of((1, 2, 4))
        # A request ends where its logits are no numbers: that often would leave too little of the others.
        exists &= KINDS[kind] != "nan_logits" or seed % 4 == 0
        if KINDS[kind] == "reset_prefix_cache" and not spec.prefix_cache:
            exists = Digits(seed, "reset", 0).below(8) == 0
        for index in range(1 + swarm.below(most) if exists else 0):
            digits = Digits(seed, KINDS[kind], index)
            size = spec.num_speculative_tokens + 1 if KINDS[kind] == "set_k" else 4
            flats.append(
                FlatEvent(
                    kind=kind,
                    tick=digits.below(ticks),
                    place=digits.below(len(PLACES)),
                    who=digits.below(num_requests),
                    a=digits.below(size),
                    b=0,
                    c=0,
                    d=0,
                )
            )
    return flats


def _boundary_lengths(num_speculative_tokens: int, block_size: int) -> tuple[int, ...]:
    """Return the lengths of prompts beside which an index may be off by one."""
    k, block = num_speculative_tokens, block_size
    return (1, k, k + 1, block - 1, block, block + 1)


def _common_beginning(seed: int, who: int, length: int, block_size: int) -> tuple[int, int]:
    """Return the length of a prompt, longer by some blocks, and with how many tokens it begins as others do.

    That is all of it or some blocks.
    """
    digits = Digits(seed, "common", who)
    length += digits.below(4) * block_size
    some = digits.below(2 + length // block_size) * block_size + digits.below(2)
    return length, length if digits.below(2) else some


class _AbortedAtEnd(NamedTuple):
    """A request under the name of number `who`, and when and where an abort names it, about when it ends."""

    who: int
    tick: int
    num_prompt: int
    max_tokens: int
    abort_tick: int
    abort_place: int


def _aborted_at_end(seed: int, spec: EngineSpec, num_requests: int) -> list[_AbortedAtEnd]:
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
        ends = _last_tick(spec, tick, num_prompt, max_tokens)
        at = ends + digits.of((0, 1, 1, 1, 2)), digits.below(len(PLACES))
        found.append(_AbortedAtEnd(digits.below(num_requests), tick, num_prompt, max_tokens, *at))
    return found


def _last_tick(spec: EngineSpec, tick: int, num_prompt: int, max_tokens: int) -> int:
    """Return the tick that ends with the last token of a request that runs alone, if all its drafts are accepted."""
    chunk = min(spec.long_prefill_token_threshold or spec.max_num_batched_tokens, spec.max_num_batched_tokens)
    chunk = min(chunk, spec.block_size) if spec.is_aligned else chunk
    num_behind = spec.length_limit(num_prompt, max_tokens) - num_prompt - 1
    # A token is processed depth - 1 ticks after the step that sampled it.
    return tick + -(-num_prompt // chunk) + -(-num_behind // (1 + spec.num_speculative_tokens)) + spec.depth - 2
