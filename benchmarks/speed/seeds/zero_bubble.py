"""Compare the measured step period at depth 1 and 2 with a model of async scheduling.

Run with `python -m benchmarks.speed.seeds.zero_bubble` on a machine with a GPU. Each step is host work, a kernel that
spins on the device, a copy of its results into pinned memory, and an event. With device time g, host time c, latency l
from the end of a kernel to a host that has read its results, and depth D, the model of the period is max(g, c, (g + c +
l) / D). Host time includes every launch; g, c and l are measured in the same run, without checks. Source: vLLM PR
#32951.
"""

import statistics
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import torch

from workers.lanes.cuda import cycles_per_microsecond

NUM_STEPS = 200
WARM_UP = 30
HOST_MS = 1.0
DEVICE_MS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
NUM_RESULTS = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over the steps of one engine loop, in milliseconds.

    `gap` is the idle time of the device between two kernels, `wait` the time for which the host is blocked.
    """

    period: float
    host: float
    device: float
    gap: float
    wait: float


@dataclass(slots=True)
class Flight:
    """A step in flight: its events, and the buffer of its results."""

    begun: torch.cuda.Event
    ended: torch.cuda.Event
    landed: torch.cuda.Event
    results: torch.Tensor


def model_period(device: float, host: float, latency: float, depth: int) -> float:
    """Return the modelled period of a loop with `depth` steps in flight."""
    return max(device, host, (device + host + latency) / depth)


def spin_host(milliseconds: float) -> None:
    """Keep the host busy for some time."""
    end = time.perf_counter_ns() + int(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass


def clock() -> torch.cuda.Event:
    """Return a new CUDA event that measures time, not recorded yet."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def spin_device(cycles: int) -> None:
    """Keep the current stream busy for some time."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


class Loop:
    """An engine loop without a model: compute stream, copy stream, ring of pinned results."""

    def __init__(self, depth: int, host_ms: float, cycles: int) -> None:
        self._depth = depth
        self._host_ms = host_ms
        self._cycles = cycles
        self._compute: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._copies: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._device = [torch.zeros(NUM_RESULTS, dtype=torch.int64, device="cuda") for _ in range(depth)]
        self._pinned = [torch.zeros(NUM_RESULTS, dtype=torch.int64, pin_memory=True) for _ in range(depth)]

    def launch(self, step: int) -> Flight:
        """Prepare and enqueue a step."""
        spin_host(self._host_ms)
        begun, ended, landed = clock(), clock(), clock()
        # The slot is free: the host has waited for the step that used it last.
        slot = step % self._depth
        with torch.cuda.stream(self._compute):
            begun.record()
            spin_device(self._cycles)
            self._device[slot].fill_(step + 1)
            ended.record()
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(ended)
            self._pinned[slot].copy_(self._device[slot], non_blocking=True)
            landed.record()
        return Flight(begun, ended, landed, self._pinned[slot])

    def run(self) -> Timing:
        """Run the loop and return its medians.

        Raises:
            AssertionError: a step returned the results of another step.
        """
        flying: deque[Flight] = deque()
        done: list[Flight] = []
        periods, hosts, waits = [], [], []
        last = time.perf_counter_ns()
        for step in range(NUM_STEPS):
            begin = time.perf_counter_ns()
            flying.append(self.launch(step))
            launched = time.perf_counter_ns()
            if len(flying) >= self._depth:
                flight = flying.popleft()
                flight.landed.synchronize()
                assert int(flight.results[0]) == len(done) + 1, f"step {len(done)} has results of another step"
                done.append(flight)
            now = time.perf_counter_ns()
            periods.append((now - last) / 1e6)
            hosts.append((launched - begin) / 1e6)
            waits.append((now - launched) / 1e6)
            last = now
        torch.cuda.synchronize()
        kernels = [flight.begun.elapsed_time(flight.ended) for flight in done]
        gaps = [one.ended.elapsed_time(other.begun) for one, other in pairwise(done)]
        middle = statistics.median
        return Timing(
            middle(periods[WARM_UP:]),
            middle(hosts[WARM_UP:]),
            middle(kernels[WARM_UP:]),
            middle(gaps[WARM_UP:]),
            middle(waits[WARM_UP:]),
        )


def main() -> int:
    """Print measured and modelled periods for several timings; return 3 without a GPU."""
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU", file=sys.stderr)
        return 3
    rate = 1000 * cycles_per_microsecond()
    print(f"on {torch.cuda.get_device_name()}, {NUM_STEPS} steps each, medians in ms; error is measured / model - 1")
    print("    g      c      l   D  period   model  error    gap   wait  speed-up")
    for device_ms in DEVICE_MS:
        cycles = int(device_ms * rate)
        # With one step in flight and no host work, the period minus kernel and launch is the latency.
        probe = Loop(1, 0.0, cycles).run()
        latency = probe.period - probe.device - probe.host
        synchronous = 0.0
        for depth in (1, 2):
            seen = Loop(depth, HOST_MS, cycles).run()
            synchronous = synchronous or seen.period
            model = model_period(seen.device, seen.host, latency, depth)
            print(
                f"{seen.device:6.3f} {seen.host:6.3f} {latency:6.3f} {depth:3} {seen.period:7.3f} {model:7.3f} "
                f"{seen.period / model - 1:6.1%} {seen.gap:6.3f} {seen.wait:6.3f} {synchronous / seen.period:8.2f}"
            )
        model = model_period(seen.device, seen.host, latency, 3)
        print(f"{'':20} {3:3} {'':7} {model:7.3f}  by the model alone {'':12} {synchronous / model:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
