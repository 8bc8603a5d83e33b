"""Begin and end of engines with several ranks in this process."""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from scenarios.spec import EngineSpec
from workers.simulated_torch import process_group
from workers.simulated_torch.device import activate
from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.replacements import Replacement, Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.vllm.inside.ranks import queues, sockets
from workers.targets.vllm.inside.ranks.variables import VARIABLES


class _FailingLogger:
    """Logger of a rank: an exception that the rank only logs ends the run, as its peers would wait for ever."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def exception(self, *arguments: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            queues.hosts().fail(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


_EXECUTOR = "vllm.v1.executor.multiproc_executor"
_COORDINATOR = "vllm.v1.engine.coordinator"
# Applied before the first engine with several ranks.
REPLACEMENTS = (
    *(
        Replacement(
            module, "MessageQueue", "it is shared memory that processes poll", lambda before: queues.MessageQueue
        )
        for module in (_EXECUTOR, "vllm.distributed.device_communicators.shm_broadcast")
    ),
    Replacement(_EXECUTOR, "Thread", "a rank's thread for outputs runs in its turn", lambda before: queues.RankThread),
    Replacement(
        _EXECUTOR,
        "queue",
        "a rank's thread for outputs waits by it",
        lambda before: SimpleNamespace(Queue=queues.Inbox),
    ),
    Replacement(_EXECUTOR, "logger", "the peers of a rank that has failed would wait for ever", _FailingLogger),
    Replacement(_COORDINATOR, "set_process_title", "a thread has no title", lambda before: lambda title: None),
    Replacement(_COORDINATOR, "zmq", "a socket is a queue of this process", lambda before: sockets.Sockets),
    Replacement(
        _COORDINATOR, "make_zmq_socket", "a socket is a queue of this process", lambda before: sockets.open_socket
    ),
)


class Ranks:
    """Host threads and groups of the ranks of this process; an engine without ranks needs none of them."""

    def __init__(self, device: SimulatedDevice, version: Version) -> None:
        self._device, self._version = device, version
        self.hosts: Hosts | None = None
        self.network: process_group.Network | None = None

    def prepare(self) -> None:
        """Keep the values that module variables have before the first engine: each rank begins with them."""
        if self.hosts is None:
            self.hosts = Hosts(VARIABLES.own_variables(), native().default_generator())

    def prepared_network(self) -> process_group.Network:
        """Return the groups of this process; the first call prepares vLLM for ranks that are threads."""
        assert self.hosts is not None, "prepared before the first engine"
        if self.network is None:
            queues.use_hosts(self.hosts)
            self.network = process_group.Network(activate(), self.hosts)
            process_group.install(self.network)
            for replacement in REPLACEMENTS:
                replacement.apply(self._version)
            self._device.hosts = self.hosts
        return self.network

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments, except their numbers, of engines with steps on several ranks."""
        self.prepared_network()
        from workers.targets.vllm.inside.ranks.executor import RankExecutor  # noqa: PLC0415  after the replacements

        return {"distributed_executor_backend": RankExecutor}

    def end(self, engine: Any) -> None:
        """End the threads of an engine's ranks, if it has any, and forget the collectives that they have begun."""
        ended = engine if hasattr(engine, "cores") else engine.model_executor
        if self.network is not None and (ended is engine or hasattr(ended, "processes")):
            ended.shutdown()
            self.network.forget()

    def check(self, spec: EngineSpec) -> None:
        """Check for an engine with several ranks that a rule assigns each variable of vLLM's loaded modules to ranks.

        Raises:
            Unknown: there is none for a variable.
        """
        if spec.num_ranks > 1:
            VARIABLES.check(self._version)
