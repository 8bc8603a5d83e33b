"""Begin and end of engines with several ranks in this process."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

from scenarios.spec import EngineSpec
from workers.simulated_torch import process_group
from workers.simulated_torch.device import activate
from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.vllm.inside.ranks import queues
from workers.targets.vllm.inside.ranks.variables import check_variables, own_variables

# Modules with names of queues and threads that ranks replace.
_EXECUTOR = "vllm.v1.executor.multiproc_executor"
_BROADCAST = "vllm.distributed.device_communicators.shm_broadcast"


class _FailingLogger:
    """Logger of a rank: an exception that the rank only logs ends the run, as its peers would wait for ever."""

    def __init__(self, logger: Any, hosts: Hosts) -> None:
        self._logger, self._hosts = logger, hosts

    def exception(self, *arguments: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            self._hosts.fail(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class Ranks:
    """Host threads and groups of the ranks of this process; an engine without ranks needs none of them."""

    def __init__(self, device: SimulatedDevice, version: Version) -> None:
        self._device, self._version = device, version
        self.hosts: Hosts | None = None
        self.network: process_group.Network | None = None

    def prepare(self) -> None:
        """Keep the values that module variables have before the first engine: each rank begins with them."""
        if self.hosts is None:
            self.hosts = Hosts(own_variables(), native().default_generator())

    def executor(self) -> type:
        """Return the executor class of engines with ranks."""
        assert self.hosts is not None, "prepared before the first engine"
        if self.network is None:
            queues.use_hosts(self.hosts)
            self.network = process_group.Network(activate(), self.hosts)
            process_group.install(self.network)
            executor: Any = importlib.import_module(_EXECUTOR)
            executor.MessageQueue, executor.Thread = queues.MessageQueue, queues.RankThread
            executor.queue = SimpleNamespace(Queue=queues.Inbox)
            executor.logger = _FailingLogger(executor.logger, self.hosts)
            broadcast: Any = importlib.import_module(_BROADCAST)
            broadcast.MessageQueue = queues.MessageQueue
            self._device.hosts = self.hosts
        from workers.targets.vllm.inside.ranks.executor import RankExecutor  # noqa: PLC0415  after the replacements

        return RankExecutor

    def end(self, executor: Any) -> None:
        """End the threads of an executor's ranks, if it has any, and forget the collectives that they have begun."""
        if self.network is not None and hasattr(executor, "processes"):
            executor.shutdown()
            self.network.forget()

    def check(self, spec: EngineSpec) -> None:
        """Check for an engine with several ranks that a rule assigns each variable of vLLM's loaded modules to ranks.

        Raises:
            Unknown: there is none for a variable.
        """
        if spec.num_ranks > 1:
            check_variables(self._version)
