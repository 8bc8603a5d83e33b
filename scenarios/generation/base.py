"""Base generator of random traces: for any engine, from any source of random numbers.

The numbers come from a `Source`: labelled ones from a seed alone (`random_trace`), or those that Hypothesis samples.
What kinds of things exist in a trace is sampled first (swarm testing: features that are absent make room for others),
and then how often each of them occurs.
"""

from collections.abc import Callable, Mapping

from scenarios import draw_params
from scenarios.drafters import DRAFTERS, TRAITS
from scenarios.draw import Digits, Draws, Source
from scenarios.events import HOOKS
from scenarios.flat_traces import (
    EVENT_KINDS,
    PATTERNS,
    POLICIES,
    UNDEFINED,
    VOCABULARIES,
    VOCABULARY_TILINGS,
    FlatEvent,
    SpecNumbers,
    interpret,
    spec_of,
)
from scenarios.generation.situation import (
    PREFIX_CACHE,
    Generated,
    Requirement,
    Situation,
    allows,
    event,
    feature,
    is_set,
    situation,
    when,
)
from scenarios.generation.weights import DEFAULT, Weights
from scenarios.sampling import GRAMMAR
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

# Lengths of long prompts: more than 64 tokens.
LONG_MIN, LONG_MAX = 56, 100
PRIORITY = is_set("policy", "priority")


class FlatTrace:
    """A random trace while it is generated, as the integers that `interpret` decodes.

    `spec` is the specification that `numbers` encode.
    """

    def __init__(self, source: Source, seed: int, weights: Weights) -> None:
        self.source, self.seed, self._weights = source, seed, weights
        self.sampling = draw_params.sampling_mode_of(source)
        self.situations: list[str] = []
        self.numbers = _random_spec(self)
        self.spec = spec_of(self.numbers)
        self.requests: tuple[FlatEvent, ...] = ()
        # Events other than submits; then submits that reuse a name, with their aborts.
        self.events: list[FlatEvent] = []
        self.reused: list[FlatEvent] = []

    def has(self, name: str, digits: Draws) -> bool:
        """Sample by weight whether the trace gets a situation; record the name if so."""
        return self.take(name, digits.chance(self._weights[name]))

    def has_kind(self, name: str, digits: Draws) -> bool:
        """Sample as `has`; the largest random numbers mean that the trace gets the kind of event."""
        weight = self._weights[name]
        return self.take(name, digits.below(weight.denominator) >= weight.denominator - weight.numerator)

    def has_size(self, name: str, digits: Draws) -> bool:
        """Sample as `has`; the smallest random numbers mean that the trace gets the size."""
        weight = self._weights[name]
        return self.take(name, digits.below(weight.denominator) < weight.numerator)

    def take(self, name: str, is_sampled: bool) -> bool:
        """Record a sampled situation and return True; if the hunt excludes it, return False."""
        found = is_sampled and name not in self._weights.without
        self.situations += [name] if found else []
        return found


def random_trace(seed: int) -> Trace:
    """Return the random trace of a seed, equal on all hosts and in all processes."""
    return labelled_trace(seed).trace


def labelled_trace(seed: int, weights: Weights = DEFAULT) -> Generated:
    """Return the random trace of a seed, with the names of its situations."""
    return generate_trace(lambda site, index: Digits(seed, site, index), seed, weights)


def generate_trace(source: Source, seed: int, weights: Weights = DEFAULT) -> Generated:
    """Return a random trace from a source of numbers; the seed decides prompts and schedule."""
    flat = FlatTrace(source, seed, weights)
    for step in _STEPS:
        step(flat)
    trace = interpret(flat.numbers, (*flat.requests, *flat.events, *flat.reused))
    return Generated(trace, tuple(dict.fromkeys(flat.situations)))


def _random_spec(flat: FlatTrace) -> SpecNumbers:
    source = flat.source
    sizes, switches = source("sizes", 0), source("switches", 0)
    has_prefix_cache = flat.has("shared_prefixes", source("prefix_cache", 0))
    drafters, many = source("drafter", 0), source("many_drafts", 0)
    # The order of the statements matters: each number takes the next digit of `sizes`.
    k = sizes.of((0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5))
    k = 6 + many.below(3) if flat.has("many_draft_tokens", many) else k
    num_rows = sizes.of((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
    # A prefix-cache hit needs a prompt of at least two blocks.
    block_size = sizes.of((0, 1, 1, 2, 2, 3, 3, 3) if has_prefix_cache else (0, 1, 2, 3, 3, 3, 3, 7))
    is_synchronous, is_attention_only = switches.one_in(8), switches.one_in(8)
    drafter = drafters.of((0, 0, 0, 0, 0, 8, 1, 1, 2, 2, 3, 4, 5, 6, 7))
    takes_last_match = has_prefix_cache and flat.has("last_match_taken", source("last_match", 0))
    if takes_last_match:
        drafter = source("last_match", 1).of((3, 3, 4, 5, 5, 6, 7, 8, 1))
    return SpecNumbers(
        k=k,
        is_synchronous=is_synchronous,
        # Only attention-only traces can hit a block of the same step: its recurrent state does not exist yet.
        is_attention_only=is_attention_only or (has_prefix_cache and source("at_once", 0).one_in(2)),
        is_host_counted=switches.below(5) < 2,
        is_unpadded=switches.one_in(5),
        num_rows=num_rows,
        num_blocks=127,
        block_size=block_size,
        budget=sizes.of((0, 2, 4, 8, 12, 16, 28, 28, 60)),
        chunk=sizes.of((0, 0, 0, 1, 2, 3, 4, 7)),
        model_length=_model_length(flat, switches.of((0, 0, 0, 0, 0, 96, 104)), k),
        token_multiple=sizes.of((0, 3, 7, 15)),
        policy=switches.below(len(POLICIES)),
        seed=flat.seed,
        is_aligned=source("aligned", 0).one_in(3),
        # Rows share leading blocks only by prefix-cache hits.
        is_cascading=source("cascade", 0).one_in(2 if has_prefix_cache else 4),
        has_prefix_cache=has_prefix_cache,
        drafter=DRAFTERS.index("draft_model") if flat.sampling.needs_guesses else drafter,
        drafter_length=_drafter_length(flat, flat.has("drafter_position_limit", drafters), drafters.below(32)),
        is_logprob_processed=source("logprobs", 0).one_in(3),
        has_priorities=flat.has("mixed_priorities", source("priorities", 0)),
        method=flat.sampling.method,
        conv_width=source("conv_width", 0).of((0, 0, 0, 0, 1, 2, 3, 4)),
        is_drawing=flat.sampling.draws_drafts,
        vocabulary=_seldom_nonzero(source, "vocabulary", 4, len(VOCABULARIES)),
        cuts=_seldom_nonzero(source, "cuts", 2, len(VOCABULARY_TILINGS)),
        takes_last_match=takes_last_match,
    )


def _seldom_nonzero(source: Source, site: str, one_in: int, count: int) -> int:
    """Return 0 in most traces; in one of `one_in`, a number from 1 to `count` - 1."""
    digits = source(site, 0)
    return 1 + digits.below(count - 1) if digits.one_in(one_in) else 0


def _model_length(flat: FlatTrace, usual: int, k: int) -> int:
    """Return 128 minus max_model_len, which encodes it; in one situation for a short model."""
    digits = flat.source("model_length", 0)
    return 128 - max(2, k + digits.below(4)) if flat.has("model_shorter_than_drafts", digits) else usual


def _drafter_length(flat: FlatTrace, has_limit: bool, usual: int) -> int:
    """Return the drafter's maximum number of positions; 0: no limit; 1 to 3 in one situation."""
    digits = flat.source("drafter_length", 0)
    if not has_limit:
        return 0
    return 1 + digits.below(3) if flat.has("drafter_of_few_positions", digits) else 4 + usual


@situation(PRIORITY, stage="base", part_of="mixed_priorities")
def later_requests_first(flat: FlatTrace) -> None:
    """Give later requests a higher priority, with a token budget too small for three rows."""
    if flat.spec.policy == "priority" and flat.has("later_requests_first", flat.source("urgency", 0)):
        k, digits = flat.spec.num_speculative_tokens, flat.source("urgency", 1)
        num_rows, budget = 2 + digits.below(3), (1 + k) * (1 + digits.below(2))
        flat.numbers = flat.numbers._replace(num_rows=num_rows, budget=budget, chunk=0)
        flat.spec = spec_of(flat.numbers)


def _submit_requests(flat: FlatTrace) -> None:
    source, spec, swarm = flat.source, flat.spec, flat.source("requests", 0)
    count = swarm.of((1, 2, 3, 3, 4, 4, 5, 5, 6, 7))
    spread = swarm.of((1, 8, 24))
    has_other_hooks, has_stops = swarm.below(2), flat.has("stop_tokens", swarm)
    lengths_max, tokens_max = swarm.of((6, 12, 24)), swarm.of((12, 24, 24))
    patterns = tuple(swarm.of((0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8)) for _ in range(2))
    k, block = spec.num_speculative_tokens, spec.block_size
    # Prompt lengths at which off-by-one errors show.
    edges = (1, k, k + 1, block - 1, block, block + 1)
    long = source("long", 0)
    longest = long.below(count) if flat.has("long_prompt", long) else None
    params = draw_params.Params(source, flat.sampling)
    for request_index in range(count):
        digits = source("submit", request_index)
        length = max(1, digits.of(edges)) if digits.below(2) else 1 + digits.below(lengths_max)
        if request_index == longest:
            length = LONG_MIN + long.below(LONG_MAX - LONG_MIN)
        pattern = digits.of(patterns)
        submit = FlatEvent(
            kind=0,
            tick=digits.below(spread),
            hook=digits.of((0, 0, 1, 2)) if has_other_hooks else 0,
            request_index=request_index,
            a=length - 1,
            b=tokens_max // 2 + digits.below(tokens_max // 2) if digits.below(4) else digits.below(tokens_max),
            c=pattern if pattern < len(PATTERNS) else len(PATTERNS) + digits.below(4096),
            d=1 + digits.below(spec.vocab_size) if has_stops else 0,
            f=params.number(request_index),
            i=params.sampling_number(request_index),
        )
        flat.requests += (submit,)


@situation(stage="base")
def pool_of_one_request(flat: FlatTrace) -> None:
    """Size the KV cache for the longest request, or up to half more; use priorities."""
    tight = flat.source("pool", 0)
    if flat.has_size("pool_of_one_request", tight) or flat.spec.policy == "priority":
        need = max(flat.spec.blocks_needed(1 + each.a, 1 + each.b) for each in flat.requests)
        flat.numbers = flat.numbers._replace(num_blocks=need - 1 + tight.below(1 + need // 2))


# Kinds of events by the situation that has them. NaN and infinite logits end their request: more of them would leave
# too few of the other events, so these two kinds are rare.
EVENT_SITUATIONS: Mapping[str, str] = dict(
    zip(
        EVENT_KINDS[1:],
        (
            *("aborts", "preemptions", "stalls", "reorders", "draft_count_changes", "no_valid_tokens", "nan_logits"),
            *("cache_resets", "dummy_steps", "spoiled_logits", "spoiled_drafts"),
        ),
        strict=True,
    )
)
_RARE = {"nan_logits": 4, "spoil_logit": 2}


def _add_events(flat: FlatTrace) -> None:
    source, spec, swarm = flat.source, flat.spec, flat.source("events", 0)
    ticks = swarm.of((8, 16, 31))
    for kind, name in enumerate(EVENT_SITUATIONS.values(), 1):
        exists, most = flat.has_kind(name, swarm), swarm.of((1, 2, 4))
        if EVENT_KINDS[kind] in _RARE:
            exists &= source(EVENT_KINDS[kind], -1).one_in(_RARE[EVENT_KINDS[kind]])
        if EVENT_KINDS[kind] == "reset_prefix_cache" and not spec.prefix_cache:
            exists = source("reset", 0).one_in(8)
        for index in range(1 + swarm.below(most) if exists else 0):
            digits = source(EVENT_KINDS[kind], index)
            size = spec.num_speculative_tokens + 1 if EVENT_KINDS[kind] == "set_k" else 4
            flat.events.append(
                FlatEvent(
                    kind=kind,
                    tick=digits.below(ticks),
                    hook=digits.below(len(HOOKS)),
                    request_index=digits.below(len(flat.requests)),
                    a=digits.below(size),
                    b=digits.below(spec.vocab_size),
                    # Three of four spoiled logits are infinite: nan_logits covers NaN.
                    c=min(1, digits.below(4)) if EVENT_KINDS[kind] == "spoil_logit" else digits.below(4),
                )
            )


@situation(stage="base")
def shared_prefixes(flat: FlatTrace) -> None:
    """Lengthen prompts by some blocks, and let them share prefixes.

    In half of the traces in which a request may hit a block registered in the same step all arrive together; in half of
    all traces most prompts are prefixes of one another, and end one token after a block.
    """
    if not flat.spec.prefix_cache:
        return
    block, first, together = flat.spec.block_size, flat.requests[0], flat.source("together", 0)
    are_together, are_alike = together.one_in(4 if flat.spec.is_aligned else 2), together.one_in(2)
    spacing = together.below(5)
    found = []
    for request in flat.requests:
        digits, length = flat.source("common", request.request_index), 1 + request.a
        length += digits.below(4) * block
        some = digits.below(2 + length // block) * block + digits.below(2)
        if are_alike:
            length += (1 - length) % block
        tick, hook = (first.tick, first.hook) if are_together else (request.tick, request.hook)
        # Most prompts are computed before the next request arrives, which then has one token left to compute.
        tick = first.tick + spacing * request.request_index if are_alike and not are_together else tick
        is_whole = digits.below(4 if are_alike else 2) > 0
        found.append(request._replace(tick=tick, hook=hook, a=length - 1, g=length if is_whole else some))
    flat.requests = tuple(found)


@situation(PREFIX_CACHE, stage="base", part_of="shared_prefixes")
def equal_blocks_after_different_ones(flat: FlatTrace) -> None:
    """Give most prompts blocks with equal tokens after blocks with different tokens."""
    block = flat.spec.block_size
    if not flat.spec.prefix_cache or not flat.has("equal_blocks_after_different_ones", flat.source("equal_blocks", 0)):
        return
    found = []
    for request in flat.requests:
        digits, num_blocks = flat.source("equal_blocks", 1 + request.request_index), request.a // block
        start, own = digits.below(max(1, num_blocks - 1)) * block, 1 + digits.below(block)
        has_own = num_blocks > 1 and digits.below(4) > 0
        found.append(request._replace(g=start, j=own) if has_own else request)
    flat.requests = tuple(found)


@situation(stage="base")
def mixed_priorities(flat: FlatTrace) -> None:
    """Give requests random priorities, or each later request a higher one."""
    if flat.spec.policy == "priority":
        count, is_later = len(flat.requests), "later_requests_first" in flat.situations
        flat.requests = tuple(
            request._replace(tick=request.request_index, hook=0, h=count - request.request_index)
            if is_later
            else request._replace(h=flat.source("priority", request.request_index).below(3))
            for request in flat.requests
        )


@situation(is_set("draft_sampling", "probabilistic"), stage="base")
def undefined_draft_logits(flat: FlatTrace) -> None:
    """Corrupt draft logits of requests with a temperature (NaN or infinity)."""
    swarm = flat.source("proposals", 0)
    sampling = [each for each in flat.requests if each.i] if flat.spec.draft_sampling == "probabilistic" else []
    for index in range(1 + swarm.below(3) if sampling and flat.has("undefined_draft_logits", swarm) else 0):
        digits = flat.source("proposals", 1 + index)
        spoiled = sampling[digits.below(len(sampling))]
        flat.events.append(
            FlatEvent(
                kind=EVENT_KINDS.index("spoil_draft"),
                tick=spoiled.tick + 1 + digits.below(12),
                hook=digits.below(len(HOOKS)),
                request_index=spoiled.request_index,
                a=digits.below(4),
                b=digits.below(flat.spec.vocab_size),
                c=digits.of(UNDEFINED),
            )
        )


@situation(when("a grammar, or a drafter with a state on the host", lambda _: True), stage="base")
def preempt_in_first_step(flat: FlatTrace) -> None:
    """Preempt a request during its first step, if the host keeps data of this request.

    The request has one prompt token, and is then aborted, or stalled until the step has been processed.
    """
    digits = flat.source("taken_back", 0)
    keeps_requests = TRAITS[flat.spec.drafter].keeps_requests
    kept = [each for each in flat.requests if keeps_requests or each.f & GRAMMAR]
    if not kept or not flat.has("preempt_in_first_step", digits):
        return
    request = kept[digits.below(len(kept))]
    request_index, tick, mode = request.request_index, request.tick, digits.below(2)
    flat.events.append(FlatEvent(EVENT_KINDS.index("preempt"), tick, 1 + digits.below(2), request_index, mode))
    aborted = FlatEvent(EVENT_KINDS.index("abort"), tick + 1, 0, request_index)
    stalled = FlatEvent(EVENT_KINDS.index("stall"), tick, len(HOOKS) - 1, request_index, 1)
    flat.events.append(aborted if digits.below(2) else stalled)
    flat.requests = tuple(each._replace(hook=0, a=0) if each is request else each for each in flat.requests)


@situation(stage="base")
def request_id_reuse(flat: FlatTrace) -> None:
    """Submit requests under names used before; abort half of the earlier requests first."""
    swarm = flat.source("reuse", 0)
    count, exists = swarm.below(4), flat.has("request_id_reuse", swarm)
    for index in range(1 + count if exists else 0):
        digits = flat.source("reuse", 1 + index)
        old = flat.requests[digits.below(len(flat.requests))]
        tick, hook = old.tick + 1 + digits.below(16), digits.below(len(HOOKS))
        if digits.below(2):
            flat.reused.append(old._replace(kind=EVENT_KINDS.index("abort"), tick=tick, hook=hook))
            hook = min(len(HOOKS) - 1, hook + digits.below(2))
        flat.reused.append(old._replace(tick=tick, hook=hook, b=digits.below(16), e=digits.below(3)))


@situation(stage="base")
def abort_at_last_token(flat: FlatTrace) -> None:
    """Abort some late requests at about the tick at which they sample their last token.

    They arrive when most others have ended, so their last tick is known. All their drafts are right, and most end with
    a whole run, so that a step is in flight. The abort comes in that tick, or in one of the next two.
    """
    swarm, run = flat.source("late", 0), 1 + flat.spec.num_speculative_tokens
    for index in range(1 + swarm.below(2) if flat.has("abort_at_last_token", swarm) else 0):
        digits = flat.source("late", 1 + index)
        tick, num_prompt = 40 + 12 * index + digits.below(8), 1 + digits.below(6)
        max_tokens = 1 + run * (1 + digits.below(3)) if digits.below(3) else 2 + digits.below(8)
        abort_tick = _last_tick(flat.spec, tick, num_prompt, max_tokens) + digits.of((0, 1, 1, 1, 2))
        hook, request_index = digits.below(len(HOOKS)), digits.below(len(flat.requests))
        flat.reused.append(FlatEvent(0, tick, 0, request_index, num_prompt - 1, max_tokens - 1))
        flat.reused.append(FlatEvent(EVENT_KINDS.index("abort"), abort_tick, hook, request_index))


def _last_tick(spec: EngineSpec, tick: int, num_prompt: int, max_tokens: int) -> int:
    """Return the tick of a request's last token, if it runs alone and all drafts are accepted."""
    chunk = min(spec.long_prefill_token_threshold or spec.max_num_batched_tokens, spec.max_num_batched_tokens)
    chunk = min(chunk, spec.block_size) if spec.is_aligned else chunk
    num_after = max(0, spec.length_limit(num_prompt, max_tokens) - num_prompt - 1)
    # A token is processed depth - 1 ticks after the step that sampled it.
    return tick + -(-num_prompt // chunk) + -(-num_after // (1 + spec.num_speculative_tokens)) + spec.depth - 2


_STEPS: tuple[Callable[[FlatTrace], None], ...] = (
    later_requests_first,
    _submit_requests,
    pool_of_one_request,
    _add_events,
    shared_prefixes,
    equal_blocks_after_different_ones,
    mixed_priorities,
    undefined_draft_logits,
    preempt_in_first_step,
    request_id_reuse,
    abort_at_last_token,
)


_NEEDS: Mapping[str, tuple[Requirement, ...]] = {
    **{name: (event(kind),) for kind, name in EVENT_SITUATIONS.items()},
    "stop_tokens": (feature("stop"),),
    "last_match_taken": (allows("last_match", "taken"),),
}
_PART_OF = {"drafter_of_few_positions": "drafter_position_limit", "last_match_taken": "shared_prefixes"}
_PARTS = ("long_prompt", "many_draft_tokens", "model_shorter_than_drafts", "drafter_position_limit", *_PART_OF)
BASE: tuple[Situation[FlatTrace], ...] = (
    *(step for step in _STEPS if isinstance(step, Situation)),
    *(
        Situation(name=name, needs=_NEEDS.get(name, ()), stage="base", part_of=_PART_OF.get(name, ""))
        for name in (*EVENT_SITUATIONS.values(), "stop_tokens", *_PARTS)
    ),
)
