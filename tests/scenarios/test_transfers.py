"""Transfers of random traces: who has them is given some of each kind, and room for what is loaded twice."""

import pytest

from scenarios.edges import drawn_for
from scenarios.events import DisturbTransfer
from scenarios.random_trace import random_trace
from scenarios.spec import Transfer
from workers.targets.registry import kind_of
from workers.targets.target import VLLM, VLLM_V1


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_one_trace_of_six_has_a_store_and_all_that_can_be_done_to_a_transfer_is_done_to_some(engine: str) -> None:
    traces = [drawn_for(random_trace(seed), kind_of(engine).capabilities) for seed in range(400)]
    having = [trace for trace in traces if trace.spec.transfer is not None]
    assert len(traces) // 8 < len(having) < len(traces) // 3
    done = {(each.of, each.how) for trace in having for each in trace.events if isinstance(each, DisturbTransfer)}
    assert {how for _, how in done} == {"delay", "hasten", "drop", "fail", "repeat"}
    assert {of for of, _ in done} == {"load", "store"}
    for key in ("loads", "stores", "failures"):
        assert len({getattr(trace.spec.transfer, key) for trace in having}) == 2


def test_no_load_of_overlapping_steps_is_lost_where_its_request_is_computed_again() -> None:
    lost = 0
    for seed in range(400):
        trace = drawn_for(random_trace(seed), kind_of(VLLM_V1).capabilities)
        transfer = trace.spec.transfer or Transfer()
        is_lost = [
            each.how in ("drop", "fail")
            for each in trace.events
            if isinstance(each, DisturbTransfer) and each.of == "load"
        ]
        lost += any(is_lost)
        if trace.spec.depth > 1 and (transfer.loads, transfer.failures) == ("synchronous", "recompute"):
            assert not any(is_lost)
    assert lost > 20
