"""Program that runs every test program under every schedule and prints the results as JSON.

Usage: python -m tests.workers.simulated_torch.program_runs
"""

import json
from pathlib import Path
from typing import TypedDict

from scenarios.events import Schedule
from tests.workers.simulated_torch.programs import PROGRAMS
from workers.simulated_torch.device import activate

SCHEDULES = (Schedule(), Schedule(policy="lazy"), Schedule(policy="random", seed=1), Schedule(policy="random", seed=2))


class Shown(TypedDict):
    """Result of one run of a program."""

    program: str
    sound: bool
    schedule: str
    values: list[float]
    races: list[str]
    buffers: list[str]
    expected_buffer: str
    counts: dict[str, int]


def runs() -> list[Shown]:
    """Run every program, correct and with its mistake, under every schedule."""
    device = activate()
    device.root = Path(__file__).parent
    found: list[Shown] = []
    for schedule in SCHEDULES:
        for name, program in PROGRAMS.items():
            for sound in (True, False):
                device.begin(schedule, new_streams=True)
                values = program.run(device, sound)
                report = device.end()
                found.append(
                    Shown(
                        program=name,
                        sound=sound,
                        schedule=f"{schedule.policy} {schedule.seed}",
                        values=values,
                        races=[str(race) for race in report.races],
                        buffers=[race.buffer for race in report.races],
                        expected_buffer=program.buffer,
                        counts=dict(report.counts),
                    )
                )
    return found


if __name__ == "__main__":
    print(json.dumps(runs()))
