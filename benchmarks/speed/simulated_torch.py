"""Measure the cost of the simulated PyTorch device: a plain loop on it and on the CPU.

Run with `python -m benchmarks.speed.simulated_torch`. The loop keeps one step in flight: inputs staged in pinned
memory, a network of eight blocks, its result copied back on a separate stream. CPU time, one thread; configurations
alternate, and the median is printed.
"""

import statistics
import time
from collections.abc import Callable

import torch

from scenarios.events import Schedule
from workers.simulated_torch.backend import Event, Stream, current_stream, stream
from workers.simulated_torch.device import Watching, activate

REPEATS = 7
STEPS = 60
ROWS = 32
UNWATCHED = Watching(races=False, guard=False, poison=None)
CONFIGURATIONS: dict[str, tuple[Schedule, Watching]] = {
    "eager, nothing watched": (Schedule(), UNWATCHED),
    "eager, races": (Schedule(), Watching(guard=False)),
    "eager, races and guard": (Schedule(), Watching()),
    "lazy, races and guard": (Schedule(policy="lazy"), Watching()),
    "random, races and guard": (Schedule(policy="random"), Watching()),
    "eager, races, guard, digests": (Schedule(), Watching(digests=True)),
}


def network(width: int) -> torch.nn.Module:
    """Return the small network that each step of the loop runs."""
    torch.manual_seed(0)
    blocks = [(torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.SiLU()) for _ in range(8)]
    return torch.nn.Sequential(*(layer for block in blocks for layer in block))


@torch.inference_mode()
def on_cpu(layers: torch.nn.Module, width: int) -> None:
    """Run the loop of steps on the CPU."""
    staging, inputs, output = (torch.zeros(ROWS, width) for _ in range(3))
    for step in range(STEPS):
        staging.fill_(step)
        inputs.copy_(staging)
        output.copy_(layers(inputs))
        float(output[0, 0])


@torch.inference_mode()
def on_device(layers: torch.nn.Module, width: int) -> None:
    """Run the loop of steps on the simulated device, with one step in flight."""
    staging = torch.zeros(ROWS, width, pin_memory=True)
    inputs = torch.zeros(ROWS, width, device="sim")
    outputs = [torch.zeros(ROWS, width, pin_memory=True) for _ in range(2)]
    copied, staged, copies = [Event(), Event()], Event(), Stream()
    for step in range(STEPS):
        staged.synchronize()
        staging.fill_(step)
        inputs.copy_(staging, non_blocking=True)
        staged.record()
        result = layers(inputs)
        copies.wait_stream(current_stream())
        with stream(copies):
            outputs[step % 2].copy_(result, non_blocking=True)
            copied[step % 2].record()
        result.record_stream(copies)
        if step:
            copied[(step - 1) % 2].synchronize()
            float(outputs[(step - 1) % 2][0, 0])


def seconds(loop: Callable[[torch.nn.Module, int], None], layers: torch.nn.Module, width: int) -> float:
    """Return the CPU time of one step of a loop."""
    start = time.process_time()
    loop(layers, width)
    return (time.process_time() - start) / STEPS


def main() -> None:
    """Print the time of a step on the CPU and on the simulated device, by network width."""
    torch.set_num_threads(1)
    device = activate()
    for width in (32, 256):
        layers = network(width)
        moved = network(width).to("sim")
        spent: dict[str, list[float]] = {"on the CPU": []}
        tasks = 0
        for _ in range(REPEATS):
            spent["on the CPU"].append(seconds(on_cpu, layers, width))
            for name, (schedule, watching) in CONFIGURATIONS.items():
                device.begin(schedule, watching, new_streams=True)
                spent.setdefault(name, []).append(seconds(on_device, moved, width))
                report = device.end()
                assert report.races == (), report.races
                tasks = report.counts["tasks"]
        medians = {name: statistics.median(times) for name, times in spent.items()}
        print(f"{ROWS} rows of {width}, {tasks / STEPS:.0f} tasks a step{'us/step':>22}{'ratio':>8}")
        for name, median in medians.items():
            print(f"{name:40}{median * 1e6:12.0f}{median / medians['on the CPU']:8.2f}")


if __name__ == "__main__":
    main()
