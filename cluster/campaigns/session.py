"""Open a pool for one command, and run what one finding asks for on it."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import TypeAlias

from cluster.campaigns.campaign import WAIT_SECONDS, Stop, stop_on_signal
from cluster.campaigns.findings import Pursuit
from cluster.campaigns.instructions import obey
from cluster.dispatch.coordinator import Coordinator, Instruction, JobAdded, Record
from cluster.dispatch.job import AnyJob
from cluster.dispatch.pool import InProcessPool, Pool, RayCluster, RayPool, gpu_share
from workers.targets.target import DEFAULT_CONFIG, RunConfig

Pools: TypeAlias = Callable[[], AbstractContextManager[Pool]]


@contextmanager
def open_pools(
    address: str | None, workers: int | None, jobs: int, deadline: float, stop: Stop, config: RunConfig = DEFAULT_CONFIG
) -> Iterator[Pools]:
    """Provide pools, one after another, with no more slots than there are jobs; a signal sets `stop` meanwhile.

    Ray starts once in a process. It prints a paragraph on stdout for each dead worker: stdout belongs to the report
    and is closed until then.
    """
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), stop_on_signal(stop) as arm:
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
) -> Iterator[Pool]:
    """Provide one pool, as `open_pools` does."""
    with open_pools(address, workers, jobs, deadline, stop, config) as pools, pools() as pool:
        yield pool


def pursue(pursuit: Pursuit, pool: Pool, stop: Stop) -> None:
    """Work on one finding until it is confirmed or a stop is asked for."""
    coordinator = Coordinator(pool.slots)
    jobs: dict[str, AnyJob] = {}

    def carry_out(instructions: list[Instruction]) -> None:
        obey(instructions, pool, None, lambda key, _attempt, _slot: jobs[key], record)

    def record(instruction: Record) -> None:
        pursuit.take(instruction.job, instruction.result, instruction.deaths)

    while pursuit.is_open and stop.signum is None:
        for task in pursuit.tasks(pool.slots):
            jobs[task.job.key] = task.job
            carry_out(coordinator.handle(JobAdded(task.job.key, 0, task.losses_max)))
        for event in pool.wait(WAIT_SECONDS):
            carry_out(coordinator.handle(event))
