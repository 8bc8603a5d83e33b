"""Streaming sessions of engines in child processes: a part after an abort is not submitted."""

import pytest

from scenarios.events import Abort, AnyEvent, Pause, Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.child.test_adder import Adder
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import UNJUDGED, Run
from workers.targets.target import DEFAULT_CONFIG

PARTS = tuple(
    Submit(tick=tick, request=name, prompt=(3, 5), max_tokens=6, session="s") for tick, name in ((0, "a"), (2, "a.1"))
)


@pytest.mark.parametrize("aborting", [Abort(tick=2, request="a"), Pause(tick=2)])
def test_part_in_the_tick_of_the_abort_before_it_is_not_submitted(aborting: AnyEvent) -> None:
    kind = Adder()
    trace = Trace(spec=EngineSpec(depth=1, num_speculative_tokens=0), events=(PARTS[0], aborting, PARTS[1]))
    try:
        run = Run(trace.explicit(), ModelValueCache(), UNJUDGED, kind, DEFAULT_CONFIG)
        assert run.to_end() is None
        outputs = run.target.outputs()
        run.target.close()
    finally:
        kind.kept.stop()
    assert outputs == {"a": Output((8, 16), "abort")}
