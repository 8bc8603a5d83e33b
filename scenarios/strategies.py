"""Random traces out of small integers: for Hypothesis, and from a seed alone.

Both feed `interpret`, which is total: any numbers make a valid trace, and any flat event may be deleted without
moving another.
"""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from hypothesis import strategies as st

from scenarios import draw_params
from scenarios.boundaries import begun_alike, prompt_edges
from scenarios.draw import Digits
from scenarios.events import (
    LANES,
    PLACES,
    Abort,
    AcceptRate,
    AnyEvent,
    NanLogits,
    NoValidToken,
    Preempt,
    PreemptMode,
    PromptDraw,
    Reorder,
    ResetPrefixCache,
    Schedule,
    SetK,
    Stall,
    Submit,
)
from scenarios.late_requests import late_comers
from scenarios.spec import REPEATING, THROUGH_THE_HOST, WITHOUT_POSITIONS, Drafter, EngineSpec
from scenarios.trace import Trace

NUM_REQUESTS_MAX = 8
KINDS = (
    "submit",
    "abort",
    "preempt",
    "stall",
    "reorder",
    "set_k",
    "no_valid_token",
    "nan_logits",
    "reset_prefix_cache",
)
_HOW = get_args(Reorder.model_fields["how"].annotation)
_DRAFTERS: tuple[Drafter, ...] = get_args(Drafter)
_MODES = get_args(PreemptMode)
_CONV_WIDTHS = (3, 2, 4, 5, 8)
_POLICIES = get_args(Schedule.model_fields["policy"].annotation)
_PATTERNS: tuple[str | AcceptRate, ...] = (
    "all",
    "none",
    "alternate",
    *(AcceptRate(rate=eighths / 8) for eighths in (1, 2, 4, 6, 7)),
)


class SpecNumbers(NamedTuple):
    """What a specification, its seed and its schedule are made from; each number is clamped, 0 is the simplest."""

    k: int = 0
    is_synchronous: int = 0
    is_attention_only: int = 0
    is_host_counted: int = 0
    is_unpadded: int = 0
    num_rows: int = 0
    num_blocks: int = 0
    block_size: int = 0
    budget: int = 0
    chunk: int = 0
    model_length: int = 0
    token_multiple: int = 0
    policy: int = 0
    seed: int = 0
    is_aligned: int = 0
    is_cascading: int = 0
    has_prefix_cache: int = 0
    drafter: int = 0
    drafter_length: int = 0
    is_logprob_processed: int = 0
    has_priorities: int = 0
    method: int = 0
    conv_width: int = 0
    is_drawing: int = 0


class FlatEvent(NamedTuple):
    """One event; `a` to `i`: length, max_tokens, pattern, stop, variant, params, common, priority, chance of a submit.

    Of any other event `a` is its size.
    """

    kind: int
    tick: int
    place: int
    who: int
    a: int
    b: int
    c: int
    d: int
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0


def interpret(spec_numbers: Sequence[int], flat_events: Sequence[Sequence[int]]) -> Trace:
    """Return the trace that numbers stand for."""
    numbers = SpecNumbers(*spec_numbers)
    spec = _spec(numbers)
    events = [_event(FlatEvent(*flat), spec) for flat in flat_events]
    order = LANES[numbers.seed % len(LANES) :] + LANES[: numbers.seed % len(LANES)]
    policy = _POLICIES[numbers.policy % len(_POLICIES)]
    schedule = Schedule(
        policy=policy,
        order=order if policy == "lane_order" else LANES,
        seed=numbers.seed if policy == "random" else 0,
    )
    return Trace(spec=spec, seed=numbers.seed, events=tuple(events), schedule=schedule)


def _spec(numbers: SpecNumbers) -> EngineSpec:
    drafter = "draft_model" if numbers.is_drawing else _DRAFTERS[numbers.drafter % len(_DRAFTERS)]
    # A prefix cache is refused beside a drafter that carries words.
    has_prefix_cache = numbers.has_prefix_cache > 0 and drafter != "mtp"
    # So it is where a draft model has a recurrent state, and where those of the target are not kept with blocks.
    has_states = not has_prefix_cache or drafter != "draft_model"
    k, block_size = min(numbers.k, 1 if drafter == "extract_hidden_states" else 8), 1 + min(numbers.block_size, 31)
    sampling, rates = draw_params.method_of(numbers.method)
    return EngineSpec(
        sampling=sampling,
        synthetic_rates=rates,
        layers="attention" if numbers.is_attention_only or not has_states else "hybrid",
        depth=1 if numbers.is_synchronous or drafter in THROUGH_THE_HOST else 2,
        accepted_counts="host" if numbers.is_host_counted else "device",
        recurrent_cache="align" if numbers.is_aligned or has_prefix_cache else "none",
        cascade=numbers.is_cascading > 0,
        policy="priority" if numbers.has_priorities else "fcfs",
        prefix_cache=has_prefix_cache,
        logprobs_mode="processed" if numbers.is_logprob_processed else "raw",
        pad=not numbers.is_unpadded,
        # What was there before comes again only where there are few tokens.
        vocab_size=3 if drafter in REPEATING else 32,
        num_speculative_tokens=k,
        max_num_seqs=1 + min(numbers.num_rows, 15),
        max_num_batched_tokens=1 + k + min(numbers.budget, 255),
        long_prefill_token_threshold=min(numbers.chunk, 255),
        max_model_len=128 - min(numbers.model_length, 112),
        block_size=block_size,
        # The shortest request of all, one token in and one out, fits into any pool.
        num_blocks=max(1 + min(numbers.num_blocks, 255), -(-(2 + 3 * k) // block_size)),
        conv_width=_CONV_WIDTHS[numbers.conv_width % len(_CONV_WIDTHS)],
        token_multiple=1 + min(numbers.token_multiple, 15),
        drafter=drafter,
        drafter_max_len=0 if drafter in WITHOUT_POSITIONS else min(numbers.drafter_length, 128),
        draft_sampling="probabilistic" if numbers.is_drawing else "greedy",
    )


def _event(flat: FlatEvent, spec: EngineSpec) -> AnyEvent:
    tick, at = min(flat.tick, 255), PLACES[flat.place % len(PLACES)]
    request = f"r{flat.who % NUM_REQUESTS_MAX}"
    match KINDS[flat.kind % len(KINDS)]:
        case "submit":
            return _submit(flat, spec)
        case "abort":
            return Abort(tick=tick, at=at, request=request)
        case "preempt":
            return Preempt(tick=tick, at=at, request=request, mode=_MODES[flat.a % len(_MODES)])
        case "stall":
            return Stall(tick=tick, at=at, request=request, ticks=1 + min(flat.a, 15))
        case "reorder":
            return Reorder(tick=tick, at=at, how=_HOW[flat.a % len(_HOW)])
        case "set_k":
            return SetK(tick=tick, at=at, k=min(flat.a, spec.num_speculative_tokens))
        case "nan_logits":
            return NanLogits(tick=tick, at=at, request=request)
        case "reset_prefix_cache":
            return ResetPrefixCache(tick=tick, at=at, running=bool(flat.a % 2))
        case _:
            return NoValidToken(tick=tick, at=at, request=request)


def _submit(flat: FlatEvent, spec: EngineSpec) -> Submit:
    """Return a submit that fits into the pool when it runs alone: its prompt is cut first, then its output."""
    room = spec.num_blocks * spec.block_size - 3 * spec.num_speculative_tokens
    is_bounded = spec.max_model_len <= spec.num_blocks * spec.block_size
    longest = spec.max_model_len - 1 if is_bounded else min(room, spec.max_model_len) - 1
    length = 1 + min(flat.a, longest - 1)
    max_tokens = 1 + min(flat.b, 255)
    stop = ((flat.d - 1) % spec.vocab_size,) if flat.d else ()
    return Submit(
        tick=min(flat.tick, 255),
        at=PLACES[flat.place % len(PLACES)],
        request=f"r{flat.who % NUM_REQUESTS_MAX}",
        prompt=PromptDraw(tokens=length, common=min(flat.g, 255), variant=min(flat.e, 255)),
        max_tokens=max_tokens if is_bounded else min(max_tokens, room - length),
        accept=_pattern(flat.c),
        stop=stop,
        params=draw_params.with_chance(draw_params.params_of(flat.f, spec), flat.i, spec),
        priority=min(flat.h, 255),
    )


def _pattern(number: int) -> str | AcceptRate:
    """Return a named pattern, a rate, or the bits of a larger number."""
    return _PATTERNS[number] if number < len(_PATTERNS) else f"{number:b}"


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
        st.integers(0, len(_POLICIES) - 1),
        st.integers(0, 2**32 - 1),
        *(bit,) * 3,
        st.integers(0, len(_DRAFTERS) - 1),
        st.sampled_from((0, 0, 0, 4, 8, 16, 32)),
        bit,
        bit,
        st.sampled_from((0, 0, 0, 0, 1, 2 + 4 * 40, 3)),
        st.integers(0, len(_CONV_WIDTHS) - 1),
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
    spec = _spec(numbers)
    requests = _random_submits(seed, spec)
    if (tight := Digits(seed, "pool", 0)).below(5) < 3:
        need = max(spec.blocks_needed(1 + flat.a, 1 + flat.b) for flat in requests)
        numbers = numbers._replace(num_blocks=need - 1 + tight.below(1 + need // 2))
    events = _random_events(seed, spec, len(requests))
    if spec.prefix_cache:
        alike = [begun_alike(seed, flat.who, 1 + flat.a, spec.block_size) for flat in requests]
        requests = tuple(
            flat._replace(a=length - 1, g=common) for flat, (length, common) in zip(requests, alike, strict=True)
        )
    if spec.policy == "priority":
        requests = tuple(flat._replace(h=Digits(seed, "priority", flat.who).below(3)) for flat in requests)
    reuse = _random_reuse(seed, requests)
    for late in late_comers(seed, spec, len(requests)):
        reuse.append(FlatEvent(0, late.tick, 0, late.who, late.num_prompt - 1, late.max_tokens - 1, 0, 0))
        reuse.append(FlatEvent(KINDS.index("abort"), late.abort_tick, late.abort_place, late.who, 0, 0, 0, 0))
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
        policy=switches.below(len(_POLICIES)),
        seed=seed,
        is_aligned=Digits(seed, "aligned", 0).below(3) == 0,
        # Rows share blocks, and so a prefix, only where they take them over from the prefix cache.
        is_cascading=Digits(seed, "cascade", 0).below(2 if has_prefix_cache else 4) == 0,
        has_prefix_cache=has_prefix_cache,
        drafter=_DRAFTERS.index("draft_model")
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
    has_late_places, has_stops = swarm.below(2), swarm.below(3) == 0
    lengths_max, tokens_max = swarm.of((6, 12, 24)), swarm.of((12, 24, 24))
    patterns = tuple(swarm.of((0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8)) for _ in range(2))
    edges = prompt_edges(spec.num_speculative_tokens, spec.block_size)
    flats = []
    for who in range(count):
        digits = Digits(seed, "submit", who)
        length = max(1, digits.of(edges)) if digits.below(2) else 1 + digits.below(lengths_max)
        pattern = digits.of(patterns)
        flats.append(
            FlatEvent(
                kind=0,
                tick=digits.below(spread),
                place=digits.of((0, 0, 1, 2)) if has_late_places else 0,
                who=who,
                a=length - 1,
                b=tokens_max // 2 + digits.below(tokens_max // 2) if digits.below(4) else digits.below(tokens_max),
                c=pattern if pattern < len(_PATTERNS) else len(_PATTERNS) + digits.below(4096),
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
