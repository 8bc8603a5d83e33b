"""Every fault has a small regression trace: found in its plane, and clean without the fault."""

from pathlib import Path
from statistics import median

import pytest

from scenarios import codec
from scenarios.trace import Trace, problems
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.shrink.shrinker import num_exceptions

FOLDER = Path(__file__).resolve().parents[3] / "scenarios" / "regressions"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
VALUE_CACHE = ModelValueCache()


def trace_of(name: str) -> Trace:
    return codec.load(FILES[name])


def test_every_fault_has_a_regression_trace() -> None:
    missing = sorted(FAULTS.keys() - FILES.keys())
    assert not missing, f"run `python -m cluster.campaigns.regressions` for {', '.join(missing)}"
    assert FILES.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", FILES)
def test_fault_is_found_in_its_plane_and_clean_engine_agrees(name: str) -> None:
    trace = trace_of(name)
    assert trace.faults == (name,)
    assert trace == trace.explicit()
    verdict = check(trace, VALUE_CACHE)
    assert isinstance(verdict, Diverged), verdict
    assert verdict.difference.plane == FAULTS[name].plane
    clean = trace.model_copy(update={"faults": ()})
    # A fault may lift a refusal; no engine runs the trace without it.
    assert problems(clean) or isinstance(check(clean, VALUE_CACHE), Agreed)


def test_regressions_are_small() -> None:
    traces = [trace_of(name) for name in FILES]
    assert median(len(trace.events) for trace in traces) <= 8
    assert median(num_exceptions(trace) for trace in traces) <= 3
    assert max(num_exceptions(trace) for trace in traces) <= 3
