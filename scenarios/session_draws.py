"""Streaming sessions of drawn traces: requests become the first parts of sessions, whose other parts come later.

Not drawn is what is known to go wrong in sessions of every engine that has them: grammars, tokens drawn by chance, and
preemptions (`findings/README.md`).
"""

from collections import Counter
from collections.abc import Sequence

from scenarios.events import AnyEvent, Continuation, EndSession, Preempt, PromptDraw, ResetPrefixCache, Submit
from scenarios.own_draws import Pick
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec

# Ticks behind a part in which the next one comes, and behind the last one in which a client ends its session.
_PART_AFTER = 24
_PARTS_MAX = 3
_CHUNK_MAX = 40
# So many of the vocabulary's tokens end a part that is ended by tokens: one of these.
_STOPS_ONE_IN = 4


def room_for(spec: EngineSpec, events: Sequence[AnyEvent] = ()) -> EngineSpec:
    """Return a specification with room for sessions: a step holds runs of drafts of two, and nobody is preempted.

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


def with_sessions(spec: EngineSpec, events: Sequence[AnyEvent], pick: Pick) -> list[AnyEvent]:
    """Return events in which one or two requests with drawn prompts are sessions; somebody may go on from one."""
    found = [each for each in events if not _preempts(each)]
    names = Counter(each.request for each in found if isinstance(each, Submit))
    firsts = [
        each
        for each in found
        if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw) and names[each.request] == 1
    ]
    for number, first in enumerate(firsts[: 1 + pick(2, "sessions", 0)]):
        parts = _parts(spec, first, number, pick)
        found[found.index(first)] = parts[0]
        found += parts[1:]
        behind = parts[-1].tick + pick(_PART_AFTER, "behind a session", number)
        if not pick(3, "session ended", number):
            found.append(EndSession(tick=behind, session=f"s{number}"))
        if spec.prefix_cache and pick(3, "goes on from a session", number):
            # Also from what its session has dropped of it; where that ended a block, once another part has filled it.
            prompt = Continuation(continues=parts[0].request, tokens=1 + pick(8, "own of who goes on", number))
            tick = behind + (_ticks(spec, found) if _ends_with_a_block(spec, parts[0]) else 0)
            fields = {"request": f"s{number}.behind", "tick": tick, "session": None, "prompt": prompt}
            found.append(parts[0].model_copy(update={**fields, "stop": (), "max_tokens": 8}))
    return found


def _parts(spec: EngineSpec, first: Submit, number: int, pick: Pick) -> list[Submit]:
    """Return the parts of a session, each of which ends by tokens in one of two."""
    parts: list[Submit] = []
    for index in range(2 + pick(_PARTS_MAX, "parts", number)):
        label = 8 * number + index
        stop = range(pick(_STOPS_ONE_IN, "stops of a part", label), spec.vocab_size, _STOPS_ONE_IN)
        fields: dict[str, object] = {
            "session": f"s{number}",
            "params": SamplingParams(num_logprobs=2 * pick(2, "logprobs of a part", label)),
            "max_tokens": 1 + pick(12, "tokens of a part", label),
            "stop": tuple(stop) if pick(2, "ended by tokens", label) else (),
        }
        if parts:
            fields["tick"] = parts[-1].tick + pick(_PART_AFTER, "part", label)
            fields["request"] = f"s{number}.{index}"
            # Most are computed in two steps.
            chunk = min(spec.max_num_batched_tokens, spec.long_prefill_token_threshold or spec.max_num_batched_tokens)
            whole = chunk if chunk <= _CHUNK_MAX and pick(3, "long part", label) else 0
            fields["prompt"] = PromptDraw(tokens=whole + 1 + pick(min(12, chunk), "own of a part", label))
        parts.append(first.model_copy(update=fields))
    if spec.prefix_cache and pick(2, "ends with a block", number):
        parts[0] = _ending_with_a_block(spec, parts[0])
    return parts


def _ends_with_a_block(spec: EngineSpec, part: Submit) -> bool:
    return not part.stop and (part.prompt_length + part.max_tokens) % spec.block_size == 0


def _ticks(spec: EngineSpec, events: Sequence[AnyEvent]) -> int:
    """Return in how many ticks all requests among events are computed, if the budget of a step is what counts."""
    submits = [each for each in events if isinstance(each, Submit)]
    longest = max(each.max_tokens for each in submits)
    return longest + sum(each.prompt_length + each.max_tokens for each in submits) // spec.max_num_batched_tokens


def _ending_with_a_block(spec: EngineSpec, part: Submit) -> Submit:
    """Return a part whose last token, which its session drops, would fill a block up."""
    assert isinstance(part.prompt, PromptDraw), "the prompt is drawn"
    blocks = -(-(part.prompt.tokens + part.max_tokens) // spec.block_size)
    tokens = blocks * spec.block_size - part.max_tokens
    if tokens < 1:
        return part
    common = min(part.prompt.common, tokens)
    return part.model_copy(
        update={"prompt": part.prompt.model_copy(update={"tokens": tokens, "common": common}), "stop": ()}
    )


def _preempts(event: AnyEvent) -> bool:
    return isinstance(event, Preempt) or (isinstance(event, ResetPrefixCache) and event.running)
