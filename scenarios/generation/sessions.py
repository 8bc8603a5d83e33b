"""Situation: turn requests into streaming sessions of several inputs.

Sessions are generated without features that are known to fail in sessions of every engine: grammars, tokens sampled at
random, and events that preempt (`findings/README.md`).
"""

from collections import Counter
from collections.abc import Sequence, Set

from scenarios.drafters import TRAITS
from scenarios.events import (
    AnyEvent,
    Continuation,
    DisturbTransfer,
    EndSession,
    Preempt,
    PromptDraw,
    ResetPrefixCache,
    Submit,
)
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import Situation, feature, situation
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import problems

# Maximum ticks from a session part to the next, and from the last part to the end of the session by the client.
_PART_AFTER = 24
_PARTS_MAX = 3
_CHUNK_MAX = 40
# Ticks from the last token of a session to the requests that load what it stored.
_STORED_AFTER = 8
# Every fourth token of the vocabulary is a stop token.
_STOP_EVERY = 4


@situation(feature("session"))
def sessions(trace: TraceBuilder) -> None:
    """Turn some requests into streaming sessions, each of several inputs.

    1 of 3 traces has no drafts, 1 of 2 caches prefixes, 2 of 3 have a small token budget.
    """
    before = trace.spec, trace.events
    if trace.one_in(3, "sessions without drafts"):
        trace.drop_drafts()
    if trace.one_in(2, "sessions cached"):
        trace.cache_prefixes()
    spec = with_room(trace.spec)
    if trace.pick(3, "parts in chunks"):
        least = 1 + 2 * spec.num_speculative_tokens
        spec = spec.model_copy(update={"max_num_batched_tokens": least + trace.pick(16, "chunk of a part")})
    events = _with_sessions(spec, trace)
    trace.spec, trace.events = with_room(spec, events), events
    if trace.has(session_with_tight_pool.name):
        tighten(trace)
    if problems(trace.trace) or not any(each.session for _, each in trace.every_submit()):
        trace.spec, trace.events = before


session_with_tight_pool: Situation[TraceBuilder] = Situation(
    name="session_with_tight_pool", needs=(feature("session"),), part_of="sessions"
)


def tighten(trace: TraceBuilder) -> None:
    """Size the KV cache for one or two of the longest sessions, so that others wait."""
    lengths = Counter[str]()
    for index, submit in trace.every_submit():
        lengths[submit.session or str(index)] += submit.prompt_length + submit.max_tokens
    longest = max(lengths.values(), default=1)
    blocks = -(-longest // trace.spec.block_size)
    trace.set(max_model_len=longest, num_blocks=1 + blocks + trace.pick(blocks, "spare blocks of sessions"))


def with_room(spec: EngineSpec, events: Sequence[AnyEvent] = ()) -> EngineSpec:
    """Return a specification in which all sessions fit: max_model_len, blocks, budget.

    The token budget of a step is enough for the draft tokens of two requests.

    The model is as long as the longest session among events can become.
    """
    lengths: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Submit) and event.session is not None:
            lengths[event.session] += event.prompt_length + event.max_tokens
    longest = max(spec.max_model_len, *lengths.values(), 0)
    least = 1 + 2 * spec.num_speculative_tokens
    blocks = -(-longest // spec.block_size)
    return spec.model_copy(
        update={
            "max_model_len": longest,
            "max_num_batched_tokens": max(spec.max_num_batched_tokens, least),
            "num_blocks": max(spec.num_blocks, 1 + blocks * spec.max_num_seqs),
        }
    )


def keep_sessions(trace: TraceBuilder) -> None:
    """Restore room and absence of preemptions for sessions, after a KV connector was added.

    A request continues each session after its end, to load the blocks that it stored. With a drafter whose KV cache
    entry depends on the next token, no other request continues a session: a block that ends before a dropped token
    stays registered by that token, which lowers acceptance only.
    """
    parts = [each for _, each in trace.every_submit() if each.session is not None]
    names = {part.request for part in parts}
    trace.events = [each for each in trace.events if not _preempts(each) and not _loses_blocks(each)]
    if trace.spec.num_speculative_tokens and TRAITS[trace.spec.drafter].is_shifted:
        trace.events = [each for each in trace.events if not _continues(each, names)]
    trace.spec = with_room(trace.spec, trace.events)
    after = max(part.tick for part in parts) + _ticks(trace.spec, trace.events) + _STORED_AFTER
    for number, last in enumerate({part.session: part for part in parts}.values()):
        prompt = Continuation(continues=last.request, tokens=1 + trace.pick(8, "own of a load", number))
        fields = {"request": f"{last.session}.loads", "tick": after, "session": None, "prompt": prompt}
        trace.events.append(last.model_copy(update={**fields, "stop": (), "max_tokens": 4}))
        if trace.spec.prefix_cache and trace.pick(2, "reset before a load", number):
            # Blocks in the prefix cache are not loaded.
            trace.events.append(ResetPrefixCache(tick=after))


def _with_sessions(spec: EngineSpec, trace: TraceBuilder) -> list[AnyEvent]:
    """Turn one or two requests into sessions; another request may continue one."""
    found = [each for each in trace.events if not _preempts(each)]
    names = Counter(each.request for each in found if isinstance(each, Submit))
    firsts = [
        each
        for each in found
        if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw) and names[each.request] == 1
    ]
    for number, first in enumerate(firsts[: 1 + trace.pick(2, "sessions", 0)]):
        parts = _session_inputs(spec, first, number, trace)
        found[found.index(first)] = parts[0]
        found += parts[1:]
        after = parts[-1].tick + trace.pick(_PART_AFTER, "behind a session", number)
        if not trace.pick(3, "session ended", number):
            found.append(EndSession(tick=after, session=f"s{number}"))
        if spec.prefix_cache and trace.pick(3, "goes on from a session", number):
            # The continued output includes the token that the session dropped. If that token ended a block, the request
            # comes after another part has filled the block.
            own = 1 + trace.pick(8, "own of who goes on", number)
            prompt = Continuation(continues=parts[0].request, tokens=own)
            tick = after + (_ticks(spec, found) if _ends_with_a_block(spec, parts[0]) else 0)
            fields = {"request": f"s{number}.behind", "tick": tick, "session": None, "prompt": prompt}
            found.append(parts[0].model_copy(update={**fields, "stop": (), "max_tokens": 8}))
    return found


def _session_inputs(spec: EngineSpec, first: Submit, number: int, trace: TraceBuilder) -> list[Submit]:
    """Return the submits of a streaming session, one per input; half have stop tokens."""
    parts: list[Submit] = []
    for index in range(2 + trace.pick(_PARTS_MAX, "parts", number)):
        label = 8 * number + index
        stop = range(trace.pick(_STOP_EVERY, "stops of a part", label), spec.vocab_size, _STOP_EVERY)
        fields: dict[str, object] = {
            "session": f"s{number}",
            "params": SamplingParams(num_logprobs=2 * trace.pick(2, "logprobs of a part", label)),
            "max_tokens": 1 + trace.pick(12, "tokens of a part", label),
            "stop": tuple(stop) if trace.pick(2, "ended by tokens", label) else (),
        }
        if parts:
            fields["tick"] = parts[-1].tick + trace.pick(_PART_AFTER, "part", label)
            fields["request"] = f"s{number}.{index}"
            # Most parts need two prefill chunks.
            chunk = min(spec.max_num_batched_tokens, spec.long_prefill_token_threshold or spec.max_num_batched_tokens)
            whole = chunk if chunk <= _CHUNK_MAX and trace.pick(3, "long part", label) else 0
            fields["prompt"] = PromptDraw(tokens=whole + 1 + trace.pick(min(12, chunk), "own of a part", label))
        parts.append(first.model_copy(update=fields))
    if spec.prefix_cache and trace.pick(2, "ends with a block", number):
        parts[0] = _ending_with_a_block(spec, parts[0])
    return parts


def _ends_with_a_block(spec: EngineSpec, part: Submit) -> bool:
    return not part.stop and (part.prompt_length + part.max_tokens) % spec.block_size == 0


def _ticks(spec: EngineSpec, events: Sequence[AnyEvent]) -> int:
    """Return an estimate of the ticks in which all submitted tokens are computed."""
    submits = [each for each in events if isinstance(each, Submit)]
    longest = max(each.max_tokens for each in submits)
    return longest + sum(each.prompt_length + each.max_tokens for each in submits) // spec.max_num_batched_tokens


def _ending_with_a_block(spec: EngineSpec, part: Submit) -> Submit:
    """Return a session input whose last output token fills a block.

    The session drops this token when the next input arrives.
    """
    assert isinstance(part.prompt, PromptDraw), "the prompt is generated"
    blocks = -(-(part.prompt.tokens + part.max_tokens) // spec.block_size)
    tokens = blocks * spec.block_size - part.max_tokens
    if tokens < 1:
        return part
    common = min(part.prompt.common, tokens)
    return part.model_copy(
        update={"prompt": part.prompt.model_copy(update={"tokens": tokens, "common": common}), "stop": ()}
    )


def _continues(event: AnyEvent, names: Set[str]) -> bool:
    return isinstance(event, Submit) and isinstance(event.prompt, Continuation) and event.prompt.continues in names


def _loses_blocks(event: AnyEvent) -> bool:
    return isinstance(event, DisturbTransfer) and event.how in ("drop", "fail")


def _preempts(event: AnyEvent) -> bool:
    return isinstance(event, Preempt) or (isinstance(event, ResetPrefixCache) and event.running)
