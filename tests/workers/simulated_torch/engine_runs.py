"""Program that runs the small engine and prints the runs as JSON.

It runs without a mistake and with each one, at both depths and under every schedule.

Usage: python -m tests.workers.simulated_torch.engine_runs
"""

import json
from pathlib import Path
from typing import TypedDict

import torch

from scenarios.draw import below
from scenarios.events import Schedule
from tests.workers.simulated_torch.engine import MISTAKES, VOCAB, Engine, Request
from workers.simulated_torch.device import Device, Watching, activate

SCHEDULES = (Schedule(), Schedule(policy="lazy"), Schedule(policy="random", seed=1))


class Served(TypedDict):
    """Result of one run of the engine."""

    mistake: str | None
    depth: int
    schedule: str
    outputs: list[list[int]]
    races: list[str]
    forced: dict[str, int]
    num_bypasses: int


def requests() -> list[Request]:
    """Return seven requests with random prompts, for an engine with three batch rows."""
    return [
        Request(
            tuple(1 + below(VOCAB - 1, 1, "prompt", str(index), position) for position in range(2 + index % 4)),
            max_tokens=3 + 5 * index % 11,
        )
        for index in range(7)
    ]


def serve(device: Device, depth: int, schedule: Schedule, mistake: str | None) -> Served:
    """Serve the requests once."""
    device.begin(schedule, Watching(closed=mistake is None), new_streams=True)
    chosen = next((known for known in MISTAKES if known == mistake), None)
    engine = Engine("sim", depth, chosen)
    for name in ("staging", "outputs"):
        for slot, tensor in enumerate(getattr(engine, name)):
            device.name(tensor, f"{name}[{slot}]")
    outputs = engine.generate(requests())
    report = device.end()
    return Served(
        mistake=mistake,
        depth=depth,
        schedule=schedule.policy,
        outputs=outputs,
        races=[str(race) for race in report.races],
        forced=dict(report.forced),
        num_bypasses=len(report.bypasses),
    )


def main() -> None:
    """Print every run."""
    torch.set_num_threads(1)
    device = activate()
    device.root = Path(__file__).parent
    runs = [serve(device, 1, Schedule(), None)]
    for mistake in (None, *MISTAKES):
        runs += [serve(device, 2, schedule, mistake) for schedule in SCHEDULES]
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
