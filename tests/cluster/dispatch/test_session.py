"""Stop signals: the first one requests a stop, the second one acts at once."""

import signal

import pytest

from cluster.dispatch.session import STOPPING, Stop, stop_on_signal
from cluster.dispatch.signals import SIGNALS


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_first_signal_asks_for_a_stop_and_a_second_one_acts_at_once(
    first: signal.Signals, second: signal.Signals
) -> None:
    seen: list[int] = []
    before = {each: signal.signal(each, lambda signum, frame: seen.append(signum)) for each in SIGNALS}
    try:
        stop = Stop()
        with stop_on_signal(stop):
            signal.raise_signal(first)
            assert stop.signum == first
            assert seen == []
            signal.raise_signal(second)
            assert seen == [second]
            assert stop.signum == first
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_first_signal_prints_a_message_while_a_job_runs(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_on_signal(Stop(), waits=True):
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == STOPPING.decode()
