"""PyTorch programs on the device: mistakes are reported, correct versions are not."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.simulated_torch.processes import needs_device, printed
from tests.workers.simulated_torch.program_runs import Shown
from tests.workers.simulated_torch.programs import PROGRAMS

NAMES = tuple(PROGRAMS)
pytestmark = needs_device


def shown(program: str, sound: bool) -> Iterator[Shown]:
    runs: list[Shown] = json.loads(printed("program_runs", "0"))
    found = [run for run in runs if run["program"] == program and run["sound"] == sound]
    assert found, f"{program} was not run"
    yield from found


@pytest.mark.parametrize("name", NAMES)
def test_mistake_is_reported_for_its_buffer_under_every_schedule(name: str) -> None:
    runs = list(shown(name, sound=False))
    assert runs
    for run in runs:
        assert run["expected_buffer"] in run["buffers"], run


@pytest.mark.parametrize("name", NAMES)
def test_correct_version_has_no_race_and_equal_results(name: str) -> None:
    runs = list(shown(name, sound=True))
    assert [run["races"] for run in runs] == [[]] * len(runs)
    assert {tuple(run["values"]) for run in runs} == {tuple(runs[0]["values"])}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_results_occur_only_under_other_schedules_than_eager(name: str) -> None:
    right = next(shown(name, sound=True))["values"]
    by_schedule = {run["schedule"]: run["values"] for run in shown(name, sound=False)}
    harmed = {schedule for schedule, values in by_schedule.items() if values != right}
    assert "eager 0" not in harmed or name in ("two columns", "two halves")
    assert harmed or name == "freed memory reused"


def test_report_names_buffer_op_stream_and_both_lines() -> None:
    (race,) = next(shown("staging reused", sound=False))["races"]
    source = (Path(__file__).parent / "programs.py").read_text(encoding="utf-8").splitlines()
    copied = 1 + source.index("        inputs.copy_(staging, non_blocking=True)")
    written = 1 + source.index("        staging.numpy()[:] = step + 1")
    assert race == (
        f"nothing orders the read by stream 0:copy_h2d@0 (programs.py:{copied} in loop) before the write by the host "
        f"(programs.py:{written} in loop) (both use staging, at byte 0, 3 times)"
    )


def test_reused_memory_is_reported_with_both_owners() -> None:
    (race,) = next(shown("freed memory reused", sound=False))["races"]
    assert "the memory of temporary was reused as a buffer of 256 bytes allocated at programs.py:" in race


def test_results_do_not_depend_on_the_hash_seed() -> None:
    assert printed("program_runs", "0") == printed("program_runs", "17")
