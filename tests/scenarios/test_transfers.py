"""Transfers of random traces: who has them is given some of each kind, and room for what is loaded twice."""

import pytest

from scenarios.events import DisturbTransfer, Preempt, PromptDraw, ResetPrefixCache
from scenarios.spec import Handoff, Transfer
from scenarios.transfer_layouts import SHORT_BY
from tests.scenarios.drawn import drawn
from workers.targets.vllm.names import VLLM, VLLM_V1


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_one_trace_of_six_has_a_store_and_all_that_can_be_done_to_a_transfer_is_done_to_some(engine: str) -> None:
    traces = drawn(engine)
    having = [trace for trace in traces if trace.spec.transfer is not None]
    assert len(traces) // 8 < len(having) < len(traces) // 3
    done = {(each.of, each.how) for trace in having for each in trace.events if isinstance(each, DisturbTransfer)}
    assert {how for _, how in done} == {"delay", "hasten", "drop", "fail", "repeat"}
    assert {of for of, _ in done} == {"load", "store"}
    for key in ("loads", "stores", "failures"):
        assert len({getattr(trace.spec.transfer, key) for trace in having}) == 2


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_one_trace_of_six_is_offloaded_with_small_pools_and_with_caches_that_are_emptied(engine: str) -> None:
    traces = drawn(engine)
    having = [trace for trace in traces if trace.spec.offloading is not None]
    assert len(traces) // 8 < len(having) < len(traces) // 4
    assert not any(trace.spec.transfer or trace.spec.layers == "hybrid" for trace in having)
    assert not any(isinstance(each, DisturbTransfer) for trace in having for each in trace.events)
    for key, count in {"chunks": 5, "blocks_per_chunk": 3, "eviction": 2, "stored": 2, "store_ticks": 7}.items():
        assert len({getattr(trace.spec.offloading, key) for trace in having}) == count
    cached = [trace for trace in having if trace.spec.prefix_cache]
    simple = [trace for trace in having if trace.spec.offloading and trace.spec.offloading.connector == "simple"]
    assert len(cached) // 3 < len(simple) < len(cached)
    assert all(trace.spec.prefix_cache for trace in simple)
    emptied = [trace for trace in cached if any(isinstance(each, ResetPrefixCache) for each in trace.events)]
    assert len(having) // 4 < len(cached) < len(having)
    assert len(emptied) > len(cached) // 2


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_some_traces_have_a_producer_in_tight_pools_too_with_loads_that_are_disturbed(engine: str) -> None:
    traces = drawn(engine)
    having = [trace for trace in traces if trace.spec.handoff is not None]
    assert len(traces) // 16 < len(having) < len(traces) // 5
    assert not any(trace.spec.transfer or trace.spec.offloading for trace in having)
    done = {each.how for trace in having for each in trace.events if isinstance(each, DisturbTransfer)}
    assert done == {"delay", "hasten", "drop", "fail", "repeat"}
    for key, count in {"turns": 5, "lease_ticks": 3, "load_ticks": 4, "failures": 2}.items():
        assert len({getattr(trace.spec.handoff, key) for trace in having}) == count
    pools = [(trace.spec.handoff or Handoff()).producer_blocks - trace.spec.max_blocks_per_request for trace in having]
    assert pools.count(0) > 3


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_some_traces_of_hybrid_models_have_a_store_of_states_or_a_producer_beside_no_drafts(engine: str) -> None:
    traces = [trace for trace in drawn(engine) if trace.spec.layers == "hybrid"]
    stored = [trace for trace in traces if trace.spec.transfer is not None]
    handed_over = [trace for trace in traces if trace.spec.handoff is not None]
    assert len(traces) // 10 < len(stored) < len(traces) // 3
    assert len(traces) // 20 < len(handed_over) < len(traces) // 5
    assert all(trace.spec.is_aligned and trace.spec.prefix_cache for trace in stored)
    assert any(trace.spec.num_speculative_tokens for trace in stored)
    assert not any(trace.spec.num_speculative_tokens for trace in handed_over)
    inside = [trace for trace in traces if trace.spec.match_tokens]
    assert len(traces) // 40 < len(inside) < len(traces) // 8
    assert {trace.spec.has_connector for trace in inside} == {False, True}
    assert all(trace.spec.transfer is not None for trace in inside if trace.spec.has_connector)


def test_no_load_of_overlapping_steps_is_lost_where_its_request_is_computed_again() -> None:
    lost = lost_in_turn = 0
    for trace in drawn(VLLM_V1):
        transfer = trace.spec.transfer or Transfer()
        is_lost = [
            each.how in ("drop", "fail")
            for each in trace.events
            if isinstance(each, DisturbTransfer) and each.of == "load"
        ]
        lost += any(is_lost)
        if (transfer.loads, transfer.failures) == ("synchronous", "recompute"):
            lost_in_turn += any(is_lost)
            assert trace.spec.depth == 1 or not any(is_lost)
    assert lost > 20
    assert lost_in_turn > 4


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_outputs_of_who_is_stored_mostly_end_with_a_block_and_many_are_preempted_as_they_fill_one(engine: str) -> None:
    ends, preempted = [], 0
    for trace in drawn(engine):
        spec = trace.spec
        if spec.offloading is None:
            continue
        names = {event.request for event in trace.events if isinstance(event, Preempt)}
        for submit in trace.submits():
            if isinstance(submit.prompt, PromptDraw) and -submit.prompt_length % spec.block_size <= SHORT_BY:
                ends.append((submit.prompt_length + submit.max_tokens) % spec.block_size)
                preempted += submit.request in names
    assert sum(end in (0, 1, 2) for end in ends) > len(ends) // 3
    assert preempted > len(ends) // 5


def test_a_producer_of_one_of_two_traces_has_little_room_and_computes_long_prompts_by_chunks() -> None:
    having = [trace.spec for trace in drawn(VLLM_V1) if trace.spec.handoff is not None]
    crowded = [spec for spec in having if spec.max_model_len <= 6 * spec.block_size and spec.max_num_seqs >= 4]
    chunked = [spec for spec in crowded if spec.block_size <= spec.long_prefill_token_threshold < 2 * spec.block_size]
    assert len(chunked) > len(having) // 4
