"""Worker pools of one command, and the signals that stop the command."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

from cluster.dispatch.pool import InProcessPool, RayCluster, RayPool, WorkerPool, gpu_share
from cluster.dispatch.signals import SIGNALS, signal_watch
from workers.targets.target import DEFAULT_CONFIG, RunConfig

Pools: TypeAlias = Callable[[], AbstractContextManager[WorkerPool]]
STOPPING = b"\nspecstorm: stopping once the job at hand is done; a second signal stops it at once\n"


@dataclass(slots=True)
class Stop:
    """A request to stop, which a signal handler sets to its signal's number."""

    signum: int | None = None


@contextmanager
def stop_on_signal(stop: Stop, waits: bool = False) -> Iterator[Callable[[], None]]:
    """Let the first SIGINT or SIGTERM stop the campaign after the running jobs.

    A second one acts at once.

    With `waits`, the command waits for the end of a job, so the first signal prints a message. The yielded function
    must be called once Ray has started: Ray installs its own handler for SIGTERM, and an exception from that handler is
    swallowed at a fork. The signal watch receives the signal in any case.
    """
    watch = signal_watch()
    watch.listen()
    num_before = len(watch.seen())

    def handler(signum: int, frame: FrameType | None) -> None:
        stop.signum = signum
        for each, previous in before.items():
            signal.signal(each, previous)
        if waits:
            os.write(2, STOPPING)

    def arm() -> None:
        stop.signum = next(iter(watch.seen()[num_before:]), stop.signum)
        for signum in SIGNALS:
            signal.signal(signum, handler)

    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    arm()
    try:
        yield arm
    finally:
        for signum, previous in before.items():
            signal.signal(signum, previous)


@contextmanager
def open_pools(
    address: str | None, workers: int | None, jobs: int, deadline: float, stop: Stop, config: RunConfig = DEFAULT_CONFIG
) -> Iterator[Pools]:
    """Yield a function that opens a pool with at most one slot per job.

    A signal sets `stop` meanwhile.

    Ray starts once in a process. It prints a paragraph on stdout for each dead worker: stdout is reserved for the
    report, and is closed until then.
    """
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), stop_on_signal(stop, waits=address is None) as arm:
        if address is None:
            arm()
            yield lambda: nullcontext(InProcessPool())
            return
        num_cpus = None if address != "local" else min(workers or len(os.sched_getaffinity(0)), jobs)
        with RayCluster(address, num_cpus) as cluster:
            slots = min(workers or (cluster.num_gpus if config.device == "cuda" else cluster.num_cpus), jobs)
            gpus = gpu_share(slots, cluster.num_gpus) if config.device == "cuda" else 0
            arm()
            yield lambda: RayPool(cluster, slots, deadline, gpus=gpus)


@contextmanager
def open_pool(
    address: str | None, workers: int | None, jobs: int, deadline: float, stop: Stop, config: RunConfig = DEFAULT_CONFIG
) -> Iterator[WorkerPool]:
    """Open a single worker pool for a `with` block; arguments as for `open_pools`."""
    with open_pools(address, workers, jobs, deadline, stop, config) as pools, pools() as pool:
        yield pool
