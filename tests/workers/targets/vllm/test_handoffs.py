"""Handoffs of prompts on the real vLLM: outputs of both runners, and steps of both engines."""

from pathlib import Path

import pytest

from scenarios.codec import load
from scenarios.spec import ENGINE, PRODUCER
from scenarios.trace import Trace
from workers.edits.fix import ALL
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.engine_run import Run
from workers.run.shard import judged_in_full
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1

SCENARIOS = Path(__file__).resolve().parents[4] / "scenarios" / "vllm"
NAMES = sorted(path.stem for path in SCENARIOS.glob("handed_over*.yaml"))
VALUE_CACHE = ModelValueCache()


def trace_of(name: str) -> Trace:
    return load(SCENARIOS / f"{name}.yaml").explicit()


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize("name", NAMES)
def test_requests_prefilled_by_a_producer_have_reference_outputs(name: str, engine: str) -> None:
    _, verdicts, _ = judged_in_full(trace_of(name), VALUE_CACHE, RunConfig(engine=engine, fixes=ALL))
    assert all(isinstance(verdict, Agreed) for verdict in verdicts)
    assert {"kv", "transfers", "books"} <= set(verdicts[-1].stats.planes)


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_producer_prefills_all_but_last_prompt_token(engine: str) -> None:
    trace = trace_of("handed_over")
    run = Run(trace, VALUE_CACHE, config=RunConfig(engine=engine, fixes=ALL))
    assert run.to_end() is None
    history = run.panel.history()
    run.target.close()
    lengths = [len(event.prompt) for event in trace.submits() if isinstance(event.prompt, tuple)]
    first = {of: dict[int, int]() for of in (ENGINE, PRODUCER)}
    for of, computed_first in first.items():
        for step in history.engines[of].steps.values():
            for request, computed in zip(step.requests, step.plan.scheduled_computed, strict=True):
                computed_first.setdefault(request, computed)
    assert first[PRODUCER] == dict.fromkeys(range(len(lengths)), 0)
    assert first[ENGINE] == {number: length - 1 for number, length in enumerate(lengths)}


@pytest.mark.parametrize("depth", [1, 2])
def test_handoff_on_a_cpu_without_streams_agrees(depth: int) -> None:
    trace = trace_of("handed_over_and_cached")
    spec = trace.spec.model_copy(update={"depth": depth})
    config = RunConfig(engine=VLLM_V1, device="cpu")
    _, verdicts, _ = judged_in_full(trace.model_copy(update={"spec": spec}), VALUE_CACHE, config)
    assert all(isinstance(verdict, Agreed) for verdict in verdicts)
