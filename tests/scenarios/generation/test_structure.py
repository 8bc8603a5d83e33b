"""Structure of situations in traces: prefill chunks, draft tokens, prefix-cache hits, preemption, KV connectors."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from scenarios.events import (
    Abort,
    Continuation,
    DisturbTransfer,
    DummyStep,
    EndSession,
    Pause,
    Preempt,
    PromptDraw,
    ResetPrefixCache,
    SetK,
    Stall,
)
from scenarios.generation.connector_layouts import SHORT_BY
from scenarios.generation.fitting import with_block_size
from scenarios.spec import Handoff
from scenarios.trace import Trace
from tests.scenarios.generated_traces import engine_traces, having, random_traces
from workers.targets.sglang.installation import SGLANG
from workers.targets.vllm.names import VLLM, VLLM_V1


def prompts(trace: Trace) -> list[PromptDraw]:
    return [each.prompt for each in trace.submits() if isinstance(each.prompt, PromptDraw)]


def run(trace: Trace) -> int:
    return 1 + trace.spec.num_speculative_tokens


def is_good(trace: Trace) -> bool:
    return (trace.spec.drafter, trace.spec.drafter_quality) == ("draft_model", "good")


def is_tight(trace: Trace) -> bool:
    """Return whether the KV cache is too small for the two largest requests at the same time."""
    blocks = sorted(trace.spec.blocks_needed(each.prompt_length, each.max_tokens) for each in trace.submits())
    return trace.spec.max_num_seqs > 1 and sum(blocks[-2:]) > trace.spec.num_blocks


def is_left_out(trace: Trace) -> bool:
    """Return whether all requests are stalled in a tick with a dummy step."""
    names = {each.request for each in trace.submits()}
    stalls = [each for each in trace.events if isinstance(each, Stall)]
    ticks = {each.tick for each in trace.events if isinstance(each, DummyStep)}
    return any(names <= {each.request for each in stalls if each.tick == tick} for tick in ticks)


def is_retracted(trace: Trace) -> bool:
    """Return whether a request of higher priority arrives with the last token of the only batch row."""
    submits = sorted(trace.submits(), key=lambda each: each.tick)
    is_about = any(a.priority > b.priority and b.tick == a.tick + a.max_tokens for a, b in pairwise(submits))
    return trace.spec.policy == "priority" and trace.spec.max_num_seqs == 1 and is_about


def is_laid_out_in_turn(trace: Trace) -> bool:
    ends = [trace.spec.length_limit(each.prompt_length, each.max_tokens) - 1 for each in trace.submits()]
    longest = -(-max(ends, default=0) // trace.spec.block_size)
    is_calm = not any(isinstance(each, Abort | Preempt) for each in trace.events)
    return is_calm and longest == trace.spec.num_blocks == trace.spec.max_blocks_per_request


def preempted_after(trace: Trace) -> set[int]:
    """Return the ticks from the last token of request 0's third block to its preemption, if that is the only event."""
    first, size = trace.submits()[0], trace.spec.block_size
    others = [each for each in trace.events if each not in trace.submits()]
    return {
        each.tick - 1 - (3 * size - first.prompt_length)
        for each in others
        if len(others) == 1 and isinstance(each, Preempt) and each.request == first.request
    }


def is_continued_late(trace: Trace) -> bool:
    """Return whether a request continues a session part that ended at a block end, after that block was filled."""
    parts = [each for each in trace.submits() if each.session is not None]
    firsts = {each.request: each for each in reversed(parts) if "." not in each.request}
    for each in trace.submits():
        first = firsts.get(each.prompt.continues) if isinstance(each.prompt, Continuation) else None
        if first is not None and not first.stop and not (first.prompt_length + first.max_tokens) % 32:
            own = [part for part in parts if part.session == first.session]
            budget = trace.spec.max_num_batched_tokens
            work = sum(part.prompt_length for part in own) // budget + max(part.max_tokens for part in own)
            return each.tick >= own[-1].tick + work
    return False


# For each engine and situation: the minimum number of 400 traces with it, the minimum share of these with its
# structure, and the structure. Limits of the engine and later situations may change the others.
STRUCTURE: Mapping[tuple[str, str], tuple[int, float, Callable[[Trace], bool]]] = {
    (VLLM_V1, "chunks_up_to_a_run"): (20, 0.5, lambda t: 1 <= t.spec.long_prefill_token_threshold <= run(t)),
    (VLLM_V1, "drafts_up_to_max_model_len"): (
        20,
        0.2,
        lambda t: (
            (t.spec.max_model_len - run(t)) % 32 == 0
            and max(map(len_of, t.submits())) >= t.spec.max_model_len - 1 - run(t)
        ),
    ),
    (VLLM_V1, "outgrown_pool"): (40, 0.5, is_tight),
    (VLLM_V1, "hits_at_model_end"): (
        10,
        0.5,
        lambda t: 1 < t.spec.max_model_len % 32 <= run(t) or t.spec.max_model_len % 32 > 32 - run(t),
    ),
    (VLLM_V1, "preempt_while_chunking"): (
        40,
        0.8,
        lambda t: any(isinstance(each, Preempt | Stall | ResetPrefixCache | Abort) for each in t.events),
    ),
    (VLLM_V1, "rows_swap_while_chunking"): (
        20,
        0.5,
        lambda t: any(each.params.bad_words for each in t.submits()) and t.spec.decodes_first,
    ),
    (VLLM_V1, "dummy_steps_between_states"): (4, 0.5, is_left_out),
    (VLLM_V1, "single_token_prompts"): (2, 0.6, lambda t: any(each.prompt_length == 1 for each in t.submits())),
    (VLLM_V1, "multi_turn"): (
        40,
        0.7,
        lambda t: any(isinstance(each.prompt, Continuation) for each in t.submits()),
    ),
    (VLLM, "states_at_block_ends"): (
        8,
        0.3,
        lambda t: (
            any(0 < -each.prompt_length % 32 <= 2 * run(t) for each in t.submits())
            and any(isinstance(each, SetK | Stall) for each in t.events)
        ),
    ),
    (VLLM_V1, "branches_after_blocks"): (
        4,
        0.3,
        lambda t: sum(each.common % 32 == 0 < each.common < each.tokens for each in prompts(t)) > 1,
    ),
    (VLLM, "grammar_waits_among_drafts"): (
        5,
        0.5,
        lambda t: is_good(t) and any(each.params.grammar and each.max_tokens >= 32 for each in t.submits()),
    ),
    (VLLM, "stop_words_among_drafts"): (
        5,
        0.5,
        lambda t: is_good(t) and any(len(each.params.stop_words) > 5 for each in t.submits()),
    ),
    (VLLM, "sessions"): (20, 1.0, lambda t: any(each.session is not None for each in t.submits())),
    (VLLM, "session_with_tight_pool"): (
        5,
        0.9,
        lambda t: t.spec.num_blocks * t.spec.block_size < 2 * t.spec.max_model_len + 2 * t.spec.block_size,
    ),
    (VLLM, "wide_window_heads"): (3, 1.0, lambda t: t.spec.window_heads == 4 and t.spec.prefix_cache),
    (VLLM, "prompts_longer_than_windows"): (5, 0.5, lambda t: any(each.common > 32 for each in prompts(t))),
    (VLLM, "hybrid_kv_store"): (5, 1.0, lambda t: t.spec.is_aligned and t.spec.prefix_cache),
    (VLLM, "hybrid_handoff"): (3, 1.0, lambda t: not t.spec.num_speculative_tokens),
    (VLLM_V1, "offloaded_requests_in_turn"): (4, 0.9, is_laid_out_in_turn),
    (VLLM_V1, "stored_requests_in_turn"): (4, 0.9, is_laid_out_in_turn),
    (VLLM_V1, "preempt_as_last_chunk_is_stored"): (8, 0.9, lambda t: preempted_after(t) <= {1, 2, 3} != set()),
    (VLLM_V1, "short_prompts_after_long_one"): (
        8,
        0.7,
        lambda t: t.spec.block_size <= t.spec.long_prefill_token_threshold < 2 * t.spec.block_size,
    ),
    (SGLANG, "short_pool"): (40, 0.9, lambda t: t.spec.max_num_seqs >= 2 and t.spec.max_model_len <= 40),
    (SGLANG, "wide_pages"): (15, 0.9, lambda t: t.spec.block_size == 16 and not t.spec.max_model_len % 16),
    (SGLANG, "retract_at_last_token"): (8, 0.5, is_retracted),
    (SGLANG, "repeated_grammars"): (
        4,
        0.9,
        lambda t: (
            t.spec.drafter == "ngram_corpus"
            and len({each.params.grammar for each in t.submits()}) <= 2 < len(prompts(t))
        ),
    ),
}


def len_of(submit: object) -> int:
    length = getattr(submit, "prompt_length", 0)
    assert isinstance(length, int)
    return length


@pytest.mark.parametrize(("engine", "name"), STRUCTURE)
def test_situation_has_its_structure_in_enough_traces(engine: str, name: str) -> None:
    least, share, holds = STRUCTURE[engine, name]
    traces = [trace for trace in having(engine, name) if trace.submits()]
    assert len(traces) >= least
    assert sum(map(holds, traces)) >= share * len(traces)


def test_sessions_have_blocks_and_no_feature_with_known_bugs() -> None:
    found = having(VLLM_V1, "sessions")
    for trace in found:
        assert not any(isinstance(each, Preempt) for each in trace.events)
        assert not any(isinstance(each, ResetPrefixCache) and each.running for each in trace.events)
        parts = [each for each in trace.submits() if each.session is not None]
        assert not any(part.params.grammar or part.params.temperature for part in parts)
    assert {trace.spec.num_speculative_tokens > 0 for trace in found} == {False, True}
    assert {trace.spec.prefix_cache for trace in found} == {False, True}
    assert any(isinstance(each, EndSession) for trace in found for each in trace.events)
    assert sum(map(is_continued_late, found)) > 2


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_connectors_are_exclusive_and_disturbed_in_every_way(engine: str) -> None:
    for name, key, values in (
        ("kv_store", "transfer", {"loads": 2, "stores": 2, "failures": 2}),
        ("offloading", "offloading", {"chunks": 5, "blocks_per_chunk": 3, "eviction": 2, "stored": 2}),
        ("handoff", "handoff", {"turns": 5, "lease_ticks": 3, "load_ticks": 4, "failures": 2}),
    ):
        found = [trace for trace in having(engine, name) if getattr(trace.spec, key) is not None]
        assert len(found) > 20
        assert all(len({getattr(getattr(trace.spec, key), each) for trace in found}) == values[each] for each in values)
        others = {"transfer", "offloading", "handoff"} - {key}
        assert all(getattr(trace.spec, each) is None for trace in found for each in others)
        done = {each.how for trace in found for each in trace.events if isinstance(each, DisturbTransfer)}
        assert done == (set() if name == "offloading" else {"delay", "hasten", "drop", "fail", "repeat"})
    handoffs = [trace.spec for trace in having(engine, "handoff") if trace.spec.handoff is not None]
    assert sum((spec.handoff or Handoff()).producer_blocks == spec.max_blocks_per_request for spec in handoffs) > 3


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_session_with_connector_keeps_its_blocks_and_is_loaded_later(engine: str) -> None:
    found = [trace for trace in having(engine, "sessions") if trace.spec.has_connector]
    assert {trace.spec.transfer is not None for trace in found} == {False, True}
    for trace in found:
        assert trace.spec.handoff is None
        assert not any(isinstance(each, DisturbTransfer) and each.how in ("drop", "fail") for each in trace.events)
        parts = {each.request: each for each in trace.submits() if each.session is not None}
        later = [each for each in trace.submits() if each.request.endswith(".loads")]
        assert len(later) == len({part.session for part in parts.values()})
        for each in later:
            assert isinstance(each.prompt, Continuation)
            assert each.tick > max(part.tick for part in parts.values())
            assert each.prompt.continues in parts


def test_no_load_is_lost_with_async_scheduling_and_recompute() -> None:
    lost = 0
    for trace in having(VLLM_V1, "kv_store"):
        transfer = trace.spec.transfer
        if transfer is not None and (transfer.loads, transfer.failures) == ("synchronous", "recompute"):
            loads = [each.how for each in trace.events if isinstance(each, DisturbTransfer) and each.of == "load"]
            assert trace.spec.depth == 1 or not {"drop", "fail"} & {*loads}
            lost += bool({"drop", "fail"} & {*loads})
    assert lost > 2


def test_offloading_requests_end_at_blocks_and_are_preempted_there() -> None:
    ends, preempted = [], 0
    for trace in having(VLLM_V1, "offloading"):
        names = {event.request for event in trace.events if isinstance(event, Preempt)}
        for submit in trace.submits():
            if isinstance(submit.prompt, PromptDraw) and -submit.prompt_length % 32 <= SHORT_BY:
                ends.append((submit.prompt_length + submit.max_tokens) % 32)
                preempted += submit.request in names
    assert sum(end in (0, 1, 2) for end in ends) > len(ends) // 3
    assert preempted > len(ends) // 5


def test_windows_exclude_connectors_and_vary_around_block_size() -> None:
    specs = [trace.spec for trace in having(VLLM, "sliding_windows")]
    assert min(spec.window for spec in specs) < 32 < max(spec.window for spec in specs)
    assert {spec.layers for spec in specs} == {"windows"}
    assert not any(spec.has_connector for spec in specs)
    assert {spec.drafter for spec in specs if spec.num_speculative_tokens} >= {"eagle", "draft_model"}


def test_device_lookup_is_generated_with_attention_only() -> None:
    specs = [trace.spec for trace in engine_traces(VLLM_V1) if trace.spec.layers == "attention"]
    drafters = [spec.drafter for spec in specs if spec.num_speculative_tokens]
    assert drafters.count("ngram_gpu") >= 8
    assert drafters.count("eagle") >= 8


def test_sglang_pause_preempts_after_request_of_last_step() -> None:
    found = 0
    for trace in engine_traces(SGLANG):
        begun = {each.tick for each in trace.submits()}
        pauses = [each for each in trace.events if isinstance(each, Pause)]
        found += any(each.mode == "keep" and each.clear_cache and each.tick - 1 in begun for each in pauses)
    assert found >= 6


def test_rescaled_trace_keeps_lengths_at_their_positions_in_a_block() -> None:
    compared = 0
    for trace in random_traces()[:200]:
        old, new = trace.spec.block_size, with_block_size(trace, 32)
        for before, after in zip(prompts(trace), prompts(new), strict=True):
            if old > 2 and before.tokens < 4 * old and min(before.tokens % old, -before.tokens % old) <= 1:
                expected = before.tokens % old if before.tokens % old <= 1 else -1
                assert (after.tokens - expected) % 32 == 0
                compared += 1
    assert compared > 100
