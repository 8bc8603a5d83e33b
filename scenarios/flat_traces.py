"""Flat traces: small integers that decode to a trace; all integers decode to a valid one.

`interpret` is total: it clamps numbers that are too large, and deleting a flat event changes no other event.
"""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from scenarios import draw_params
from scenarios.drafters import DRAFTERS, TRAITS
from scenarios.events import (
    HOOKS,
    LANES,
    Abort,
    AcceptRate,
    AnyEvent,
    DummyStep,
    NanLogits,
    NoValidToken,
    Preempt,
    PreemptMode,
    PromptDraw,
    Reorder,
    ResetPrefixCache,
    Schedule,
    SetK,
    SpoilDraft,
    SpoilLogit,
    Stall,
    Submit,
)
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

NUM_REQUESTS_MAX = 8
EVENT_KINDS = (
    "submit",
    "abort",
    "preempt",
    "stall",
    "reorder",
    "set_k",
    "no_valid_token",
    "nan_logits",
    "reset_prefix_cache",
    "dummy_step",
    "spoil_logit",
    "spoil_draft",
)
_HOW = get_args(Reorder.model_fields["how"].annotation)
_MODES = get_args(PreemptMode)
_VALUES = get_args(SpoilLogit.model_fields["value"].annotation)
_WHATS = get_args(SpoilDraft.model_fields["what"].annotation)
# Indexes in `_WHATS` of the spoils that make the draft distribution of a draft token invalid.
UNDEFINED = (_WHATS.index("nan"), _WHATS.index("inf"))
CONV_WIDTHS = (3, 2, 4, 5, 8)
# Vocabulary sizes beyond one 32-bit mask word and, with small vocabulary blocks, beyond the largest number of blocks.
# Drafters that repeat earlier tokens need a vocabulary of few tokens: only then do tokens repeat soon.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 130)
FEW_TOKENS = (3, 2, 4, 5, 33)
# Pairs of vocab_tile and vocab_block.
VOCABULARY_TILINGS = ((128, 4096), (4, 8), (8, 16), (8, 32), (16, 16), (4, 4))
POLICIES = get_args(Schedule.model_fields["policy"].annotation)
PATTERNS: tuple[str | AcceptRate, ...] = (
    "all",
    "none",
    "alternate",
    *(AcceptRate(rate=eighths / 8) for eighths in (1, 2, 4, 6, 7)),
)


class SpecNumbers(NamedTuple):
    """Numbers that encode a specification, a seed and a schedule.

    Each is clamped, and 0 is the simplest value.
    """

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
    vocabulary: int = 0
    cuts: int = 0
    takes_last_match: int = 0


class FlatEvent(NamedTuple):
    """An event encoded as integers; what `a` to `j` mean depends on its kind.

    - submit: length, max_tokens, pattern, stop, variant, params, common, priority, chance, own;
    - spoil_logit and spoil_draft: `a` is the column or draft index, `b` the token, `c` the kind of damage;
    - other events: `a` is the mode, size or count.
    """

    kind: int
    tick: int
    hook: int
    request_index: int
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0
    j: int = 0


def interpret(spec_numbers: Sequence[int], flat_events: Sequence[Sequence[int]]) -> Trace:
    """Return the trace that the integers of a flat trace encode."""
    numbers = SpecNumbers(*spec_numbers)
    spec = spec_of(numbers)
    events = [_event(FlatEvent(*flat), spec) for flat in flat_events]
    order = LANES[numbers.seed % len(LANES) :] + LANES[: numbers.seed % len(LANES)]
    policy = POLICIES[numbers.policy % len(POLICIES)]
    schedule = Schedule(
        policy=policy,
        order=order if policy == "lane_order" else LANES,
        seed=numbers.seed if policy == "random" else 0,
    )
    return Trace(spec=spec, seed=numbers.seed, events=tuple(events), schedule=schedule)


def spec_of(numbers: SpecNumbers) -> EngineSpec:
    """Return the specification that the integers encode."""
    drafter = "draft_model" if numbers.is_drawing else DRAFTERS[numbers.drafter % len(DRAFTERS)]
    traits = TRAITS[drafter]
    # The prefix cache is refused with a drafter that carries hidden states from step to step.
    has_prefix_cache = numbers.has_prefix_cache > 0 and not traits.carries_hidden_state
    # It is also refused with a draft model that has a recurrent state, and without the target's states at block ends.
    has_states = not has_prefix_cache or not traits.has_model
    k, block_size = min(numbers.k, 1 if traits.proposes_one else 8), 1 + min(numbers.block_size, 31)
    sampling, rates = draw_params.method_of(numbers.method)
    vocabularies = FEW_TOKENS if traits.repeats else VOCABULARIES
    tile, block = VOCABULARY_TILINGS[numbers.cuts % len(VOCABULARY_TILINGS)]
    return EngineSpec(
        sampling=sampling,
        synthetic_rates=rates,
        layers="attention" if numbers.is_attention_only or not has_states else "hybrid",
        depth=1 if numbers.is_synchronous or traits.goes_through_host else 2,
        accepted_counts="host" if numbers.is_host_counted else "device",
        recurrent_cache="align" if numbers.is_aligned or has_prefix_cache else "none",
        cascade=numbers.is_cascading > 0,
        policy="priority" if numbers.has_priorities else "fcfs",
        prefix_cache=has_prefix_cache,
        last_match="taken" if numbers.takes_last_match and not traits.is_shifted else "dropped",
        logprobs_mode="processed" if numbers.is_logprob_processed else "raw",
        pad=not numbers.is_unpadded,
        vocab_size=vocabularies[numbers.vocabulary % len(vocabularies)],
        vocab_tile=tile,
        vocab_block=block,
        num_speculative_tokens=k,
        max_num_seqs=1 + min(numbers.num_rows, 15),
        max_num_batched_tokens=1 + k + min(numbers.budget, 255),
        long_prefill_token_threshold=min(numbers.chunk, 255),
        max_model_len=128 - min(numbers.model_length, 126),
        block_size=block_size,
        # The shortest request, one prompt token and one output token, fits into any pool of blocks.
        num_blocks=max(1 + min(numbers.num_blocks, 255), -(-(2 + 3 * k) // block_size)),
        conv_width=CONV_WIDTHS[numbers.conv_width % len(CONV_WIDTHS)],
        token_multiple=1 + min(numbers.token_multiple, 15),
        drafter=drafter,
        drafter_max_len=min(numbers.drafter_length, 128) if traits.has_positions else 0,
        draft_sampling="probabilistic" if numbers.is_drawing else "greedy",
    )


def _event(flat: FlatEvent, spec: EngineSpec) -> AnyEvent:
    tick, at = min(flat.tick, 255), HOOKS[flat.hook % len(HOOKS)]
    request = f"r{flat.request_index % NUM_REQUESTS_MAX}"
    match EVENT_KINDS[flat.kind % len(EVENT_KINDS)]:
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
        case "dummy_step":
            return DummyStep(tick=tick, at=at)
        case "spoil_logit":
            value = _VALUES[flat.c % len(_VALUES)]
            return SpoilLogit(tick=tick, at=at, request=request, column=flat.a, token=flat.b, value=value)
        case "spoil_draft":
            what = _WHATS[flat.c % len(_WHATS)]
            return SpoilDraft(tick=tick, at=at, request=request, draft=flat.a, token=flat.b, what=what)
        case _:
            return NoValidToken(tick=tick, at=at, request=request)


def _submit(flat: FlatEvent, spec: EngineSpec) -> Submit:
    """Decode a submit; shorten its prompt, then its output, until it fits into the KV cache."""
    room = spec.num_blocks * spec.block_size - 3 * spec.num_speculative_tokens
    is_bounded = spec.max_model_len <= spec.num_blocks * spec.block_size
    longest = spec.max_model_len - 1 if is_bounded else min(room, spec.max_model_len) - 1
    length = 1 + min(flat.a, longest - 1)
    prompt = PromptDraw(tokens=length, common=min(flat.g, 255), own=min(flat.j, 255), variant=min(flat.e, 255))
    max_tokens = 1 + min(flat.b, 255)
    stop = ((flat.d - 1) % spec.vocab_size,) if flat.d else ()
    return Submit(
        tick=min(flat.tick, 255),
        at=HOOKS[flat.hook % len(HOOKS)],
        request=f"r{flat.request_index % NUM_REQUESTS_MAX}",
        prompt=prompt,
        max_tokens=max_tokens if is_bounded else min(max_tokens, room - length),
        accept=_pattern(flat.c),
        stop=stop,
        params=draw_params.with_sampling(draw_params.params_of(flat.f, spec), flat.i, spec),
        priority=min(flat.h, 255),
    )


def _pattern(number: int) -> str | AcceptRate:
    """Decode an acceptance script: a named pattern, a rate, or bits."""
    return PATTERNS[number] if number < len(PATTERNS) else f"{number:b}"
