"""Checks of ordering calls: each is recorded, and can be skipped, by its source line."""

from pathlib import Path

import torch

from scenarios.events import Schedule
from tests.workers.simulated_torch.programs import sound_loop
from workers.simulated_torch.backend import Stream, stream
from workers.simulated_torch.device import Device

LAZY = Schedule(policy="lazy")


def every_ordering_call_of_a_loop_is_recorded_and_its_absence_detected(device: Device) -> None:
    """The loop stages inputs, computes and copies results back.

    It keeps the tensors that it copies from, so it does not need `record_stream`.
    """
    device.begin(new_streams=True)
    right = sound_loop(device)
    assert device.end().races == ()
    orders = device.orders()
    assert [order.calls for order in orders] == [
        ("synchronize",),
        ("synchronize",),
        ("record",),
        ("record", "wait"),
        ("record",),
        ("record_stream",),
    ]
    for order in orders:
        shown: list[bool] = []
        for schedule in (Schedule(), LAZY):
            device.begin(schedule, new_streams=True)
            device.leave_out([order.line])
            shown += [sound_loop(device) == right, device.end().races == ()]
        needed = order.calls != ("record_stream",)
        assert shown == ([True, False, False, False] if needed else [True] * 4), order
    device.begin(new_streams=True)
    assert sound_loop(device) == right
    assert device.end().races == ()


def blocking_copy_can_be_made_non_blocking(device: Device) -> None:
    numbers = torch.arange(64.0, device="sim")
    target, source = torch.zeros(64, pin_memory=True), torch.ones(64).pin_memory()

    def program() -> tuple[float, float]:
        target.copy_(numbers)
        seen = float(target.numpy()[5])
        numbers.copy_(source)
        source.numpy()[:] += 1
        return seen, float(source.numpy()[0])

    device.begin(LAZY)
    assert program()[0] == 5
    assert device.end().races == ()
    copies = [order for order in device.orders() if order.calls == ("blocking copy",)]
    assert len(copies) == 2
    for copy in copies:
        device.begin(LAZY)
        device.leave_out([copy.line])
        numbers.copy_(torch.arange(64.0))
        program()
        (race,) = device.end().races
        assert copy.line in race.first.lines


def lines_of_skipped_folders_are_not_named(device: Device) -> None:
    launch = eval(compile("lambda work: work()", "/launchers/launcher.py", "eval"))
    files: list[str] = []
    for _ in range(2):
        device.begin(new_streams=True)
        numbers, side = torch.zeros(4, device="sim"), Stream()
        with stream(side):
            launch(lambda numbers=numbers: numbers.add_(1))
        (race,) = device.end().races
        files.append(race.second.lines[1].file)
        device.pass_over([Path("/launchers")])
    assert files[0].endswith("launcher.py")
    assert files[1].endswith("order_checks.py")
