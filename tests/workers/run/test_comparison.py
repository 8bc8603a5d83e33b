"""Output comparison: no difference on the clean engine or for bugs without wrong outputs."""

from dataclasses import replace

import pytest

from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge.outputs import FailedRun, Outputs, compare
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import fact
from workers.run.comparison import outputs_of
from workers.run.engine_run import UNJUDGED
from workers.run.references import synchronous
from workers.targets.specstorm import Specstorm

VALUE_CACHE = ModelValueCache()
STEPS_MAX = 2000


def with_fault(fault: str, seed: int) -> Trace:
    trace = random_trace(seed).explicit()
    # A scripted drafter proposes the same drafts with any KV cache content.
    spec = trace.spec.model_copy(update={"drafter": "eagle", **dict(FAULTS[fault].requires)})
    return trace.model_copy(update={"spec": spec, "faults": (fault,)})


def outputs(trace: Trace, steps_max: int = STEPS_MAX) -> Outputs | FailedRun:
    return outputs_of(trace, VALUE_CACHE, Specstorm(), options=replace(UNJUDGED, steps_max=steps_max))


def difference(trace: Trace) -> str | None:
    correct = synchronous(trace.model_copy(update={"faults": ()}))
    found = compare(trace, outputs(trace), outputs(correct)).difference
    return found.variable if found is not None else None


@pytest.mark.parametrize("seed", range(40))
def test_outputs_of_clean_engine_equal_synchronous_run(seed: int) -> None:
    assert difference(random_trace(seed).explicit()) is None


def test_outputs_differ_with_inherited_recurrent_state() -> None:
    assert any(difference(with_fault("tpu-2431-inherited-state", seed)) is not None for seed in range(6))


def test_outputs_differ_with_logprobs_of_another_request() -> None:
    for fault in ("vllm-30846-raw-after-processing", "tpu-2799-live-rows"):
        seen = {difference(with_fault(fault, seed)) for seed in range(12)} - {None}
        assert seen == {"logprobs"}


@pytest.mark.parametrize("fault", ["vllm-38556-backup-token", "vllm-43434-draft-order"])
def test_outputs_do_not_differ_with_lower_acceptance_only(fault: str) -> None:
    assert [difference(with_fault(fault, seed)) for seed in range(10)] == [None] * 10


def test_outputs_of_run_without_end_is_an_error() -> None:
    trace = random_trace(1).explicit()
    assert outputs(trace, 2) == FailedRun("it does not end")
    found = compare(trace, FailedRun("it does not end"), outputs(trace)).difference
    assert found is not None
    assert (found.variable, found.actual) == ("end", fact("failed", error="it does not end"))
