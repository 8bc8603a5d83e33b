"""A small asynchronous engine on the device: correct, and with mistakes that eager hides."""

import json

import pytest

from tests.workers.simulated_torch.engine_runs import Served
from tests.workers.simulated_torch.processes import needs_device, printed

pytestmark = needs_device
RACES = {
    "staging reused": ("read by stream 0:copy_h2d@0", "write by the host", "staging[0]"),
    "copy waits for nothing": ("write by stream 0:argmax@0", "read by stream 1:copy_d2h@0", "a buffer of 24 bytes"),
    "read before its event": ("write by stream 1:copy_d2h@0", "read by the host", "outputs[1]"),
}


def served(mistake: str | None) -> dict[tuple[int, str], Served]:
    """Return the runs of the small engine with a mistake, by depth and schedule."""
    runs: list[Served] = json.loads(printed("engine_runs", "0"))
    return {(run["depth"], run["schedule"]): run for run in runs if run["mistake"] == mistake}


SYNCHRONOUS = (1, "eager")


def test_async_outputs_equal_synchronous_ones_under_every_schedule() -> None:
    runs = served(None)
    assert len(runs) == 4
    assert [run["outputs"] for run in runs.values()] == [runs[SYNCHRONOUS]["outputs"]] * 4


def test_correct_engine_has_no_race_and_no_bypass() -> None:
    runs = served(None).values()
    assert runs
    for run in runs:
        assert (run["races"], run["forced"], run["num_bypasses"]) == ([], {}, 0)


@pytest.mark.parametrize("mistake", RACES)
def test_eager_run_reports_missing_wait_that_changes_no_token(mistake: str) -> None:
    runs = served(mistake)
    right = served(None)[SYNCHRONOUS]["outputs"]
    assert runs[2, "eager"]["outputs"] == right != runs[2, "lazy"]["outputs"]
    for run in runs.values():
        assert all(text in run["races"][0] for text in RACES[mistake]), run["races"]


def test_host_mistake_is_no_race_but_changes_tokens() -> None:
    right = served(None)[SYNCHRONOUS]["outputs"]
    runs = served("rows of now").values()
    assert runs
    for run in runs:
        assert run["races"] == []
        assert run["outputs"] != right
