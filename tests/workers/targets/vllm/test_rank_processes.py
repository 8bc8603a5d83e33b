"""The real vLLM with two ranks as its own worker processes, on a CPU with gloo."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.codec import load
from scenarios.events import Schedule
from tests.workers.targets.vllm.test_vllm import laid_over
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed
from workers.run.check import judge_trace
from workers.run.engine_run import UNJUDGED, Options, Run
from workers.targets.child.answers import Reported
from workers.targets.child.process import Keeper, Launch, Seconds
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM_V1
from workers.targets.vllm.target import VllmV1

SCENARIOS = Path(__file__).resolve().parents[4] / "scenarios" / "vllm"
CONFIG, VALUE_CACHE = RunConfig(engine=VLLM_V1, device="cpu"), ModelValueCache()
TRACE = load(SCENARIOS / "ranks_of_tensors.yaml").explicit()
OPTIONS = Options(confirm="never")
RANK_SECONDS = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
EXECUTE = "output = self.model_runner.execute_model("
FAILS = f"{EXECUTE}*([][0] if self.rank == 1 else []), "
# Seconds in which a rank must answer; they mark the processes of a test.
SECONDS_OF_FAILURE = 7


class Patient(VllmV1):
    """The first runner in a process of its own, which may start slowly; its ranks must answer in `rank_seconds`."""

    def __init__(self, config: RunConfig, rank_seconds: int) -> None:
        launch = VllmV1().keeper(config).launch

        def patient() -> Launch:
            made = launch()
            more = {RANK_SECONDS: str(rank_seconds)}
            return replace(made, environment={**made.environment, **more})

        self.kept = Keeper(self.name, patient, Seconds(start=900.0, answer=900.0))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


@pytest.fixture(scope="module")
def kind() -> Iterator[Patient]:
    kind = Patient(CONFIG, rank_seconds=300)
    yield kind
    kind.kept.stop()


@pytest.mark.parametrize("policy", ["eager", "random"])
def test_two_ranks_deliver_the_tokens_of_one_rank(kind: Patient, policy: str) -> None:
    trace = TRACE.model_copy(update={"schedule": Schedule.model_validate({"policy": policy, "seed": 1})})
    verdict = judge_trace(trace, VALUE_CACHE, OPTIONS, kind, CONFIG)
    assert isinstance(verdict, Agreed), verdict
    assert set(verdict.stats.planes) >= {"blocks", "books", "counts", "contracts", "tokens"}
    # Model inputs are in other processes.
    assert {"inputs", "kv", "drafts", "ranks"}.isdisjoint(verdict.stats.planes)


def test_launches_of_both_ranks_are_delayed(kind: Patient) -> None:
    for policy, is_delayed in (("lazy", True), ("eager", False)):
        trace = TRACE.model_copy(update={"schedule": Schedule.model_validate({"policy": policy})})
        run = Run(trace, VALUE_CACHE, UNJUDGED, kind, CONFIG)
        while not run.feed.drained():
            run.feed.step()
        counts = kind.kept.process().ask({"do": "report"}, Reported).counts
        run.target.close()
        assert (counts.get("delayed_launches", 0) > 1000) is is_delayed


def test_rank_that_fails_without_a_reply_is_named_and_no_process_is_left(tmp_path: Path) -> None:
    config = laid_over(tmp_path, "v1/worker/gpu_worker.py", EXECUTE, FAILS)
    config = config.model_copy(update={"device": "cpu"})
    kind = Patient(config, SECONDS_OF_FAILURE)
    verdict = judge_trace(TRACE, VALUE_CACHE, OPTIONS, kind, config)
    assert isinstance(verdict, Crashed), verdict
    assert verdict.error == "rank 1: IndexError: list index out of range"
    assert verdict.where.file == "gpu_worker.py"
    mark = f"{RANK_SECONDS}={SECONDS_OF_FAILURE}".encode()
    assert [each.parent.name for each in Path("/proc").glob("[0-9]*/environ") if mark in each.read_bytes()] == []
