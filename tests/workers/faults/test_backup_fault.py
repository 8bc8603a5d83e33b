"""Damage by the backup fault after its first difference, seen by a checker without inputs."""

from scenarios.codec import load
from scenarios.generation.strategies import random_trace
from tests.workers.run.runs import judged_by
from tests.workers.run.test_smoke import PATHS
from workers.engine.functions import EngineFunctions
from workers.judge.checker import Checker
from workers.oracle.expected_captures import Expectation
from workers.oracle.model_values import ModelValueCache
from workers.oracle.truth import Release, StepTruth
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm

FAULT = "vllm-38556-backup-token"
VALUE_CACHE = ModelValueCache()


class BlindToInputs(Checker):
    """Compares everything except the backup token and the rows' next input tokens."""

    def _host(self, observed: Observation) -> Difference | None:
        return None if observed.point == "launched" else super()._host(observed)

    def _compare(self, expected: Expectation, capture: Observation, whose: StepTruth | Release) -> Difference | None:
        expected.pop("next_tokens", None)
        return super()._compare(expected, capture, whose)


def test_wrong_backup_token_stays_in_the_drafter_kv_cache() -> None:
    planes = []
    traces = [load(path) for path in PATHS if "discard" in load(path).expect] + [
        random_trace(seed) for seed in range(100)
    ]
    for trace in traces:
        # Only what the EAGLE-like drafter stores depends on the token after a prefill chunk.
        if trace.spec.drafter != "eagle" or trace.spec.drafter_max_len:
            continue
        run = Run(
            trace.explicit().model_copy(update={"faults": (FAULT,)}),
            VALUE_CACHE,
            Options(),
            Specstorm(EngineFunctions()),
        )
        found = judged_by(run, BlindToInputs(run.trace, VALUE_CACHE)).to_end()
        if run.probes.get(f"fault {FAULT}"):
            assert isinstance(found, Difference)
            planes.append((found.plane, found.variable))
    assert len(planes) >= 20
    assert {variable for _, variable in planes} <= {"drafter_kv", "drafter_kv_at_end"}
