"""Checks of what tasks read and wrote: the name of each is a sentence that is true when it returns."""

import torch

from scenarios.events import Schedule
from tests.workers.simulated_torch.device_checks import LAZY, SIM
from workers.simulated_torch.backend import Stream, current_stream, stream
from workers.simulated_torch.device import Device, Watching
from workers.simulated_torch.digests import RaceHarm, first_difference, harm_of
from workers.simulated_torch.reports import Report


def digests_tell_a_race_that_did_harm_from_one_that_did_not(device: Device) -> None:
    def run(schedule: Schedule, read: bool) -> None:
        device.begin(schedule, Watching(digests=True), new_streams=True)
        numbers, side = torch.ones(8, device=SIM), Stream()
        with stream(side):
            doubled = numbers * 2
            # What was doubled too early matters only where the mask lets it through.
            chosen = torch.where(torch.full((8,), read, device=SIM), doubled, torch.zeros(8, device=SIM))
            side.synchronize()
        assert chosen.shape == (8,)

    for read in (True, False):
        run(Schedule(), read)
        eager = device.digests()
        run(LAZY, read)
        lazy = device.digests()
        found = first_difference(eager, lazy)
        assert found is not None
        assert (found.task.op, found.what) == ("mul", "reads")
        assert (eager[-1].writes == lazy[-1].writes) is not read
    run(LAZY, True)
    assert first_difference(lazy, lazy) is None


def a_race_is_harmful_masked_or_benign_by_what_its_tasks_read_and_what_the_host_gets(device: Device) -> None:
    def run(schedule: Schedule, order: str, factor: float, digests: bool) -> Report:
        device.begin(schedule, Watching(digests=digests, fill=0xA5), new_streams=True)
        device.step(0)
        numbers, side, result = torch.ones(8, device=SIM), Stream(), torch.empty(8, pin_memory=True)
        if order == "waits":
            side.wait_stream(current_stream())
        with stream(side):
            given = (numbers * 2).clamp(max=factor)
            result.copy_(given, non_blocking=True)
            side.synchronize()
        return device.end()

    told = {"waits": 9.0, "masked": -9.0, "harmful": 9.0}
    for name, factor in told.items():
        eager_races = run(Schedule(), name, factor, False).races
        runs = []
        for schedule in (Schedule(), LAZY):
            run(schedule, name, factor, True)
            runs.append(device.digests())
        if name == "waits":
            assert eager_races == ()
            continue
        (race,) = eager_races
        assert (race.first.op, race.second.op) == ("fill_", "mul")
        harm = harm_of(race, *runs)
        assert harm.kind == name
        assert harm.first is not None
        assert (harm.first.task.op, harm.first.task.step, harm.first.what) == ("mul", 0, "reads")
        assert (harm.given is not None) is (name == "harmful")
        assert harm_of(race, runs[0], runs[0]) == RaceHarm("benign")
