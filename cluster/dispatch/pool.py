"""Worker pools: run jobs in this process or on Ray actors, and report what happens.

Ray is imported only when a `RayPool` starts, after its environment is set. A pool never retries and never judges: every
death or error of a worker becomes an event.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, Self

from cluster.dispatch.coordinator import AttemptRaised, Event, ResultArrived, WorkerLost, WorkerReady
from cluster.dispatch.exporter import Exporter
from cluster.dispatch.host import EngineHost, PoolError, ReachError, read_answer
from cluster.dispatch.job import WORKER, AnyJob, build
from cluster.dispatch.liveness import RAY_SETTINGS, Liveness
from cluster.dispatch.origin import ROOT
from cluster.dispatch.reach import check_memory, reach, token_file

# Ray reports an actor that has just died as dead or as unavailable, depending on the time of the call. Both get the
# same message, since the reason of a loss may become part of a finding.
_DEATHS: Mapping[str, str] = {
    "OutOfMemoryError": "it ran out of memory",
    "NodeDiedError": "its node died",
}


def death(error: Exception, started: bool) -> str:
    """Describe the death of an actor without process ids and addresses."""
    if not started and "creation task" in str(error):
        return f"it could not start: {str(error).strip().rpartition(chr(10))[2]}"
    return _DEATHS.get(type(error).__name__, "its process died")


def exception_text(error: BaseException) -> str:
    """Return a text on an exception that our own code raised in a worker."""
    return f"the worker raised {type(error).__name__}: {first_line(str(error))}"


def ray_failed(error: Exception) -> PoolError:
    """Return the error with which a campaign ends after its Ray cluster failed."""
    return PoolError(f"Ray failed: {type(error).__name__}: {first_line(str(error))}")


def first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.strip().partition("\n")[0]


OBJECT_STORE_BYTES = 200 * 1024 * 1024
START_SECONDS = 120.0


class WorkerPool(Protocol):
    """A pool of slots with one worker each, which runs attempts and reports events.

    Slots are numbered from 0, and the first worker of a slot is number 0.

    A pool reports each worker as ready once: it serves one coordinator.
    """

    slots: int

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Start an attempt on a slot's worker, which must be idle."""

    def replace(self, slot: int, worker: int) -> None:
        """Kill a slot's worker if it is alive, and start worker number `worker` there."""

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call; wait for the first for about `seconds`."""

    def close(self) -> None:
        """Kill all workers."""


class InProcessPool:
    """Pool with one slot in this process; jobs and answers pass through JSON as on a cluster."""

    slots = 1

    def __init__(self, factory: str = WORKER) -> None:
        self._factory = factory
        self._host = EngineHost(factory)
        self._events: list[Event] = [WorkerReady(0, 0)]
        self._waiting: tuple[AnyJob, int] | None = None

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        assert self._waiting is None, "slot 0 is busy"
        self._waiting = job, attempt

    def replace(self, slot: int, worker: int) -> None:
        assert slot == 0, f"slot {slot}; there is one"
        self._host = EngineHost(self._factory)
        self._events.append(WorkerReady(slot, worker))

    def wait(self, seconds: float) -> list[Event]:
        """Run the dispatched attempt to its end and return its event."""
        if self._waiting is not None:
            (job, attempt), self._waiting = self._waiting, None
            try:
                answer = read_answer(job, self._host.perform(job.model_dump_json()))
            except Exception as error:  # any exception of the worker's own code becomes an event, as on a cluster
                self._events.append(AttemptRaised(job.key, attempt, exception_text(error)))
            else:
                self._events.append(ResultArrived(job.key, attempt, answer))
        assert self._waiting is None, "every attempt is run to its end"
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Do nothing: this pool has no worker process, and attempts run only inside `wait`."""


@dataclass(slots=True)
class _Seat:
    """One slot of a `RayPool`: its actor, the running call, and the call's deadline.

    A job takes two calls: `ready`, and after its reply `perform`. `has_begun` is set between them, so a worker that
    dies in `perform` has always begun the job, even if it dies so early that its reply is lost.
    """

    worker: int
    actor: Any
    call: Any
    deadline: float
    has_begun: bool = False
    since: float = 0.0
    job: AnyJob | None = None
    attempt: int = 0
    pid: int | None = None


class RayPool:
    """A pool of Ray actors with one engine each; each uses the share `gpus` of a GPU.

    A worker that dies, runs out of memory or exceeds `deadline_seconds` with a job is reported as lost. Ray itself
    neither restarts an actor nor repeats a call.
    """

    def __init__(
        self,
        ray: "RayCluster",
        slots: int,
        deadline_seconds: float,
        factory: str = WORKER,
        start_seconds: float = START_SECONDS,
        gpus: float = 0,
    ) -> None:
        self.slots = slots
        self._start_seconds = start_seconds
        self._ray = ray.module
        self._liveness = ray.liveness
        self._deadline_seconds = deadline_seconds
        self._factory = factory
        self._gpus = gpus
        remote = self._ray.remote(EngineHost)
        self._actors = remote.options(
            num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0, max_pending_calls=4
        )
        self._exporter = Exporter()
        self._seats = [self._start(0) for _ in range(slots)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int | None]:
        """Return the process id of each slot's worker, None until it is ready."""
        return [seat.pid for seat in self._seats]

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        seat = self._seats[slot]
        assert seat.call is None, f"slot {slot} is busy"
        seat.job, seat.attempt, seat.has_begun = job, attempt, False
        self._call(seat, seat.actor.ready.remote())

    def replace(self, slot: int, worker: int) -> None:
        before = self._seats[slot]
        assert worker == before.worker + 1, f"slot {slot} goes from worker {before.worker} to {worker}"
        self._kill(before)
        self._seats[slot] = self._start(worker)

    def wait(self, seconds: float) -> list[Event]:
        """Return the events of all calls that have ended or are overdue.

        Raises:
            PoolError: Ray itself is gone, or fails.
        """
        self._liveness.watch()
        self._exporter.workers(sum(seat.pid is not None for seat in self._seats))
        if all(seat.call is None for seat in self._seats):
            time.sleep(seconds)
            return []
        end = time.monotonic() + seconds
        while True:
            events = self._events(max(0.0, end - time.monotonic()))
            if events or time.monotonic() >= end:
                return events

    def close(self) -> None:
        if self._liveness.is_lost:
            return
        for seat in self._seats:
            self._kill(seat)

    def _events(self, seconds: float) -> list[Event]:
        """Wait until a call ends or is overdue; return the events of such calls."""
        finished = self._finished([seat.call for seat in self._seats if seat.call is not None], seconds)
        now = time.monotonic()
        events: list[Event] = []
        for slot, seat in enumerate(self._seats):
            event: Event | None = None
            if seat.call is not None and seat.call in finished:
                event = self._outcome(slot, seat)
            elif seat.call is not None and now > seat.deadline:
                event = self._overdue(slot, seat)
            if isinstance(event, WorkerLost) and seat.job is not None:
                self._exporter.lost()
            events += [] if event is None else [event]
        return events

    def _finished(self, calls: list[Any], seconds: float) -> list[Any]:
        """Wait for the first of these calls to end; return all that have ended."""
        try:
            finished, _ = self._ray.wait(calls, num_returns=1, timeout=seconds)
            if finished:
                finished, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        except self._ray.exceptions.RayError as error:
            raise ray_failed(error) from error
        return list(finished)

    def _start(self, worker: int) -> _Seat:
        actor = self._actors.remote(self._factory)
        return _Seat(worker, actor, actor.ready.remote(), time.monotonic() + self._start_seconds)

    def _call(self, seat: _Seat, call: Any) -> None:
        """Store an actor call as the seat's running call, and set its deadline."""
        assert seat.call is None, "one call at a time"
        assert seat.job is not None, "a call of a job"
        seat.call, seat.since = call, time.monotonic()
        seat.deadline = seat.since + self._deadline_seconds

    def _kill(self, seat: _Seat) -> None:
        assert any(seat is each for each in self._seats), "a seat that is another's"
        seat.call = None
        self._ray.kill(seat.actor, no_restart=True)

    def _outcome(self, slot: int, seat: _Seat) -> Event | None:
        """Return the event of an ended actor call: ready, result, lost or raised.

        None for the first call of a job, after which the job is sent.

        Application errors are handled first, then deaths; other errors of Ray end the run.
        """
        assert seat.call is not None, f"slot {slot} was not called"
        call, seat.call = seat.call, None
        errors = self._ray.exceptions
        of_nodes = errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError
        deaths = errors.RayActorError, errors.OutOfMemoryError, *of_nodes
        try:
            value = self._ray.get(call, timeout=60)
        except errors.RayTaskError as error:
            if seat.job is None or not seat.has_begun:
                return WorkerLost(slot, seat.worker, exception_text(error.cause), had_begun=False)
            return AttemptRaised(seat.job.key, seat.attempt, exception_text(error.cause))
        except deaths as error:
            # Workers also die with Ray itself, which must not count against a job.
            self._liveness.check()
            reason = death(error, started=seat.pid is not None)
            return WorkerLost(slot, seat.worker, reason, had_begun=seat.has_begun)
        except errors.RayError as error:
            raise ray_failed(error) from error
        if seat.job is None:
            return self._arrived(slot, seat, value)
        if not seat.has_begun:
            seat.has_begun = True
            self._call(seat, seat.actor.perform.remote(seat.job.model_dump_json()))
            return None
        job, seat.job, seat.has_begun = seat.job, None, False
        answer = read_answer(job, value)
        self._exporter.answered(job, answer, time.monotonic() - seat.since)
        return ResultArrived(job.key, seat.attempt, answer)

    def _arrived(self, slot: int, seat: _Seat, value: tuple[str, int]) -> Event:
        assert seat.pid is None, f"worker {seat.worker} of slot {slot} is ready twice"
        code, seat.pid = value
        if code != build():
            why = "the code was edited during the run, or another version is installed on a node"
            raise PoolError(f"a worker runs specstorm {code}, this process {build()}: {why}")
        return WorkerReady(slot, seat.worker)

    def _overdue(self, slot: int, seat: _Seat) -> Event:
        assert seat.call is not None, f"slot {slot} was not called"
        seat.call = None
        if seat.job is not None:
            late = "it took longer than" if seat.has_begun else "it did not answer within"
            reason = f"{late} the deadline of {self._deadline_seconds:g} s"
            return WorkerLost(slot, seat.worker, reason, had_begun=seat.has_begun)
        each = f"a CPU and {self._gpus:g} of a GPU" if self._gpus else "a CPU"
        wanted = f"each of {self.slots} needs {each}; give fewer --workers"
        reason = f"it did not start within {self._start_seconds:g} s: {wanted}"
        return WorkerLost(slot, seat.worker, reason, had_begun=False)


def gpu_share(slots: int, num_gpus: int) -> float:
    """Return each actor's share of a GPU; an actor uses one GPU only."""
    return 1 / -(-slots // num_gpus)


class RayCluster(AbstractContextManager["RayCluster"]):
    """A connection to the Ray cluster at `address`.

    For `local` it starts a private cluster on this host's loopback interface.

    A context manager. Install signal handlers inside it, since Ray replaces them.
    """

    def __init__(self, address: str, num_cpus: int | None) -> None:
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
        with ExitStack() as stack:
            stack.enter_context(_environment(is_private=address == "local"))
            if address == "local":
                check_memory()
                options |= {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            try:
                reach(address)
                import ray  # noqa: PLC0415  not before its environment is set, and not at all without it

                ray.init(**options)
            except ReachError:
                raise
            except Exception as error:
                kind = PoolError if address == "local" else ReachError
                raise kind(f"Ray at {address}: {type(error).__name__}: {first_line(str(error))}") from error
            with ExitStack() as leaving:
                leaving.callback(ray.shutdown)
                self.liveness = Liveness(ray)
                self._leave = leaving.pop_all()
            self.module: Any = ray
            self._is_private = address == "local"
            self._end = stack.pop_all()

    @property
    def num_cpus(self) -> int:
        """Return the number of CPUs of all nodes, at least 1."""
        return max(1, int(self.module.cluster_resources().get("CPU", 1)))

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs of all nodes, at least 1.

        Raises:
            PoolError: the cluster has no GPU.
        """
        found = int(self.module.cluster_resources().get("GPU", 0))
        if not found:
            raise PoolError("--device cuda needs a GPU; this Ray cluster has none")
        return found

    def __exit__(self, *error: object) -> None:
        """Disconnect from Ray; if the cluster is lost, only end the processes of a private one.

        During a regular disconnect Ray would wait for its answer, or end this process with the exit code of a finding.
        """
        if not self.liveness.is_lost:
            self._leave.close()
        elif self._is_private:
            # A process that hangs ignores a request to end: it is killed.
            self.module._private.worker._global_node.kill_all_processes(check_alive=False)
        self._end.close()


def is_stuck() -> bool:
    """Return whether this process is still connected to Ray after a failure.

    Ray's exit hooks would then block, or change the exit code.
    """
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


@contextmanager
def _environment(is_private: bool) -> Iterator[None]:
    """Set the environment variables of a Ray driver during a `with` block.

    A private Ray has no telemetry, its own token, and sockets on loopback only.

    Processes of Ray inherit it, and find our packages through it. RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 makes Ray listen
    on loopback only; a test lists the sockets.
    """
    settings = {name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()}
    private = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_ENABLE_AUTO_CONNECT": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with tempfile.TemporaryDirectory(prefix="specstorm-", ignore_cleanup_errors=True) as folder:
        settings |= private if is_private else {}
        has_token = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or token_file().is_file()
        if is_private and not has_token:
            token = Path(folder, "token")
            token.touch(mode=0o600)
            token.write_text(token_hex(32))
            settings["RAY_AUTH_TOKEN_PATH"] = str(token)
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
