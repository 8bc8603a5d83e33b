"""Recorded calls of device ops, on which NumPy and Triton implementations are timed."""

import numpy as np
import pytest

from benchmarks.speed.twins import CALLS_MAX, NUM_ROWS, Recorder, copied, definition_of, main, traces
from workers.kernels.count_sampled.definition import CountSampled
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.targets.devices import CLEAN
from workers.targets.specstorm import Specstorm


def test_recorded_call_has_four_rows_and_can_be_repeated() -> None:
    recorder = Recorder()
    assert isinstance(check(next(traces()), ModelValueCache(), kind=Specstorm(recorder.functions())), Agreed)
    calls = recorder.calls["count_sampled"]
    assert 0 < len(calls) <= CALLS_MAX
    call = calls[0]
    assert isinstance(call, CountSampled)
    assert len(call.state_slot) == NUM_ROWS
    again = copied(call)
    assert isinstance(again, CountSampled)
    again.accepted.fill(-7)
    CLEAN.count_sampled(again)
    assert np.all((again.accepted >= 0) & (call.sampled == again.sampled).all())
    assert not np.shares_memory(again.accepted, call.accepted)


def test_op_without_twin_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert definition_of(CLEAN.state_copy) is CLEAN.state_copy
    assert definition_of(CLEAN.attention) is not CLEAN.attention
    assert main(["state_copy"]) == 2
    assert "no NumPy twins: state_copy; expected some of" in capsys.readouterr().err
