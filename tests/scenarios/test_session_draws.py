"""Drawn sessions: valid, of engines that have them, and without what is known to go wrong in them."""

from scenarios.events import Continuation, EndSession, Preempt, ResetPrefixCache, Submit
from scenarios.trace import Trace, problems
from tests.scenarios.drawn import drawn
from workers.targets.target import SPECSTORM
from workers.targets.vllm.names import VLLM, VLLM_V1


def with_sessions(engine: str) -> list[Trace]:
    """Return the traces with sessions of those drawn for an engine."""
    return [trace for trace in drawn(engine) if any(submit.session is not None for submit in trace.submits())]


def test_one_trace_in_so_many_of_vllm_has_sessions_and_no_other_engine_s() -> None:
    for engine in (VLLM, VLLM_V1):
        assert len(drawn(engine)) // 16 <= len(with_sessions(engine)) <= len(drawn(engine)) // 6
    assert with_sessions(SPECSTORM) == []


def test_sessions_are_valid_and_differ_in_what_may_go_wrong_in_them() -> None:
    found = with_sessions(VLLM_V1)
    for trace in found:
        assert problems(trace) == []
        assert not any(isinstance(event, Preempt) for event in trace.events)
        assert not any(isinstance(event, ResetPrefixCache) and event.running for event in trace.events)
        parts = [submit for submit in trace.submits() if submit.session is not None]
        assert not any(part.params.grammar or part.params.temperature for part in parts)
    assert {trace.spec.num_speculative_tokens > 0 for trace in found} == {False, True}
    assert {trace.spec.prefix_cache for trace in found} == {False, True}
    assert any(isinstance(event, EndSession) for trace in found for event in trace.events)
    assert {bool(submit.stop) for trace in found for submit in trace.submits() if submit.session} == {False, True}


def test_who_goes_on_from_what_ended_a_block_of_a_session_comes_when_its_next_part_has_filled_it() -> None:
    late = 0
    for trace in with_sessions(VLLM):
        budget = trace.spec.max_num_batched_tokens
        parts: dict[str, list[Submit]] = {}
        for each in trace.submits():
            if each.session is not None:
                parts.setdefault(each.session, []).append(each)
        firsts = {each[0].request: each for each in parts.values()}
        for each in trace.submits():
            if isinstance(each.prompt, Continuation) and each.request.endswith(".behind"):
                own = firsts[each.prompt.continues]
                tokens = own[0].prompt_length + own[0].max_tokens
                work = sum(part.prompt_length for part in own) // budget + max(part.max_tokens for part in own)
                late += not own[0].stop and tokens % trace.spec.block_size == 0 and each.tick >= own[-1].tick + work
    assert late > 4
