"""PyTorch programs with streams: classic mistakes, each with a correct version.

A program receives the device and whether it is to be `sound` (correct), and returns what it computed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from workers.simulated_torch.backend import Event, Stream, current_stream, stream
from workers.simulated_torch.device import Device

Values = list[float]
STEPS = 4
SIZE = 64


@dataclass(frozen=True, slots=True)
class Program:
    """A test program, and the name of the buffer in its expected race."""

    run: Callable[[Device, bool], Values]
    buffer: str


def _pinned(device: Device, name: str) -> torch.Tensor:
    made = torch.zeros(SIZE, pin_memory=True)
    device.name(made, name)
    return made


def _on_device(device: Device, name: str) -> torch.Tensor:
    made = torch.zeros(SIZE, device="sim")
    device.name(made, name)
    return made


def _total(tensor: torch.Tensor) -> float:
    return float(tensor.numpy().sum())


def loop(device: Device, sound: bool, mistake: str) -> Values:
    """A loop with one step in flight: stages inputs, computes, copies back on another stream."""
    values: Values = []
    staging, inputs = _pinned(device, "staging"), _on_device(device, "inputs")
    outputs = [_pinned(device, f"outputs {slot}") for slot in range(2)]
    copied, staged = [Event(), Event()], Event()
    compute, copies = current_stream(), Stream()

    def collect(step: int) -> None:
        if sound or mistake != "read before the event":
            copied[step % 2].synchronize()
        values.append(_total(outputs[step % 2]))

    for step in range(STEPS):
        device.step(step)
        if step and (sound or mistake != "staging reused"):
            staged.synchronize()
        staging.numpy()[:] = step + 1
        inputs.copy_(staging, non_blocking=True)
        staged.record()
        result = inputs * 10 + 1
        device.name(result, "result")
        with stream(copies):
            if sound or mistake != "no wait for the result":
                copies.wait_stream(compute)
            outputs[step % 2].copy_(result, non_blocking=True)
            copied[step % 2].record()
        result.record_stream(copies)
        if step:
            collect(step - 1)
    collect(STEPS - 1)
    return values


def sound_loop(device: Device) -> Values:
    return loop(device, True, "")


def staging_reused(device: Device, sound: bool) -> Values:
    return loop(device, sound, "staging reused")


def no_wait_for_the_result(device: Device, sound: bool) -> Values:
    return loop(device, sound, "no wait for the result")


def read_before_the_event(device: Device, sound: bool) -> Values:
    return loop(device, sound, "read before the event")


def waits_for_an_event_before_it_is_recorded(device: Device, sound: bool) -> Values:
    """Mistake: wait for an event before it is recorded, which waits for nothing."""
    inputs, side, ready = _on_device(device, "inputs"), Stream(), Event()
    if not sound:
        side.wait_event(ready)
    inputs.add_(5)
    ready.record()
    if sound:
        side.wait_event(ready)
    with stream(side):
        doubled = inputs * 2
        side.synchronize()
        return [float(doubled.sum().item())]


def records_before_the_copy(device: Device, sound: bool) -> Values:
    """Mistake: record the event before the copy that it should follow."""
    inputs, output, done = _on_device(device, "inputs"), _pinned(device, "output"), Event()
    inputs.add_(3)
    if not sound:
        done.record()
    output.copy_(inputs, non_blocking=True)
    if sound:
        done.record()
    done.synchronize()
    return [_total(output)]


def waits_for_the_other_slot(device: Device, sound: bool) -> Values:
    """Mistake: of two slots with an event each, wait for the wrong event."""
    values: Values = []
    inputs = _on_device(device, "inputs")
    slots = [_pinned(device, "slot 0"), _pinned(device, "slot 1")]
    events = [Event(), Event()]
    for step in range(STEPS):
        inputs.add_(1)
        slots[step % 2].copy_(inputs, non_blocking=True)
        events[step % 2].record()
        events[(step if sound else step + 1) % 2].synchronize()
        values.append(_total(slots[step % 2]))
    return values


def waits_for_the_wrong_stream(device: Device, sound: bool) -> Values:
    """Mistake: copy on the side stream, but synchronise with the compute stream."""
    inputs, output, side = _on_device(device, "inputs"), _pinned(device, "output"), Stream()
    inputs.add_(7)
    side.wait_stream(current_stream())
    with stream(side):
        output.copy_(inputs, non_blocking=True)
    (side if sound else current_stream()).synchronize()
    return [_total(output)]


def overwrites_what_is_being_copied(device: Device, sound: bool) -> Values:
    """Mistake: start the next step while a side stream copies the last result."""
    values: Values = []
    result, side = _on_device(device, "result"), Stream()
    outputs = [_pinned(device, f"output {step}") for step in range(STEPS)]
    for step in range(STEPS):
        device.step(step)
        result.add_(1)
        side.wait_stream(current_stream())
        with stream(side):
            outputs[step].copy_(result, non_blocking=True)
        if sound:
            current_stream().wait_stream(side)
    side.synchronize()
    values += [_total(output) for output in outputs]
    return values


def freed_memory_reused(device: Device, sound: bool) -> Values:
    """Mistake: free a tensor that another stream reads, without `record_stream`."""
    output, side = _pinned(device, "output"), Stream()
    temporary = torch.full((SIZE,), 2.0, device="sim")
    device.name(temporary, "temporary")
    side.wait_stream(current_stream())
    with stream(side):
        output.copy_(temporary, non_blocking=True)
    if sound:
        temporary.record_stream(side)
    del temporary
    following = torch.full((SIZE,), 9.0, device="sim")
    device.name(following, "following")
    side.synchronize()
    return [_total(output), float(following.sum().item())]


def read_right_after_to_cpu(device: Device, sound: bool) -> Values:
    """Mistake: read the result of `to("cpu", non_blocking=True)` before the copy runs."""
    inputs = _on_device(device, "inputs")
    inputs.add_(4)
    moved = inputs.to("cpu", non_blocking=True)
    device.name(moved, "moved")
    if sound:
        current_stream().synchronize()
    return [_total(moved)]


def uploads_without_a_wait(device: Device, sound: bool) -> Values:
    """Mistake: compute on inputs that a copy stream uploads, without waiting for it."""
    staging, inputs, upload = _pinned(device, "staging"), _on_device(device, "inputs"), Stream()
    staging.numpy()[:] = 6
    upload.wait_stream(current_stream())
    with stream(upload):
        inputs.copy_(staging, non_blocking=True)
    if sound:
        current_stream().wait_stream(upload)
    return [float((inputs + 1).sum().item())]


def adds_on_two_streams(device: Device, sound: bool) -> Values:
    """Mistake: write one accumulator on two streams."""
    total, side = _on_device(device, "total"), Stream()
    side.wait_stream(current_stream())
    with stream(side):
        total.add_(1)
    if sound:
        current_stream().wait_stream(side)
    total.mul_(3)
    torch.sim.synchronize()  # type: ignore[attr-defined]
    return [float(total.sum().item())]


def writes_what_the_device_sees(device: Device, sound: bool) -> Values:
    """Mistake: overwrite pinned memory that a pending task reads in place."""
    counters = _pinned(device, "counters")
    seen = device.device_view(counters)
    counters.numpy()[:] = 1
    doubled = seen * 2
    if sound:
        current_stream().synchronize()
    counters.numpy()[:] = 5
    return [float(doubled.sum().item())]


def reads_a_result_of_python_too_early(device: Device, sound: bool) -> Values:
    """Mistake: read the result of a Python task on another stream, without waiting."""
    keys, side = _on_device(device, "keys"), Stream()
    side.wait_stream(current_stream())
    device.enqueue("attend", lambda keys: keys.fill_(8), writes=[keys])
    if sound:
        side.wait_stream(current_stream())
    with stream(side):
        return [float(keys.sum().item())]


def two_columns(device: Device, sound: bool) -> Values:
    """Two streams write columns of one matrix: different ones, or (mistake) the same one."""
    matrix, side = torch.zeros(8, 8, device="sim"), Stream()
    device.name(matrix, "matrix")
    side.wait_stream(current_stream())
    matrix[:, 0] = 1
    with stream(side):
        matrix[:, 3 if sound else 0] = 2
    torch.sim.synchronize()  # type: ignore[attr-defined]
    return [float(matrix.sum().item())]


def two_halves(device: Device, sound: bool) -> Values:
    """The host fills one half of a pinned buffer while the other, or the same one, is copied."""
    staging, inputs = _pinned(device, "staging"), torch.zeros(SIZE // 2, device="sim")
    half = SIZE // 2
    staging.numpy()[:half] = 1
    inputs.copy_(staging[:half], non_blocking=True)
    staging.numpy()[half if sound else 0 :] = 2
    return [float(inputs.sum().item())]


PROGRAMS: dict[str, Program] = {
    "staging reused": Program(staging_reused, "staging"),
    "no wait for the result": Program(no_wait_for_the_result, "result"),
    "read before the event": Program(read_before_the_event, "outputs 0"),
    "waits for an event before it is recorded": Program(waits_for_an_event_before_it_is_recorded, "inputs"),
    "records before the copy": Program(records_before_the_copy, "output"),
    "waits for the other slot": Program(waits_for_the_other_slot, "slot 0"),
    "waits for the wrong stream": Program(waits_for_the_wrong_stream, "output"),
    "overwrites what is being copied": Program(overwrites_what_is_being_copied, "result"),
    "freed memory reused": Program(freed_memory_reused, "temporary"),
    "read right after to(cpu)": Program(read_right_after_to_cpu, "moved"),
    "uploads without a wait": Program(uploads_without_a_wait, "inputs"),
    "adds on two streams": Program(adds_on_two_streams, "total"),
    "writes what the device sees": Program(writes_what_the_device_sees, "counters"),
    "reads a result of Python too early": Program(reads_a_result_of_python_too_early, "keys"),
    "two columns": Program(two_columns, "matrix"),
    "two halves": Program(two_halves, "staging"),
}
