"""Begin and end of engines with several ranks in this process."""

from collections.abc import Callable
from typing import Any

from workers.simulated_torch import process_group
from workers.simulated_torch.device import activate
from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.sglang.inside.ranks.variables import VARIABLES


class Ranks:
    """Host threads and groups of the ranks of this process; an engine with one rank needs none of them."""

    def __init__(self, simulated: SimulatedDevice, version: Version) -> None:
        self._device, self._version = simulated, version
        self._hosts: Hosts | None = None
        # The module variable that this release lacks, as the error of its import names it.
        self._missing = ""
        self._network: process_group.Network | None = None
        # The driver's runtime context, while that of rank 0 takes its place.
        self._context_before: Any = None

    def prepare(self) -> None:
        """Keep the values that module variables have before the first engine: each rank begins with them."""
        if self._hosts is None and not self._missing:
            try:
                self._hosts = Hosts(VARIABLES.own_variables(), native().default_generator())
            except (ImportError, AttributeError) as error:
                # An older release, on which engines with one rank run.
                self._missing = str(error)

    @property
    def are_installed(self) -> bool:
        """Whether there was an engine with several ranks: process groups belong to threads from then on."""
        return self._network is not None

    def install(self) -> None:
        """Let process groups connect the ranks of this process.

        Raises:
            Unknown: this release lacks a module variable of which ranks have their own values.
        """
        if self._hosts is None:
            raise self._version.lacks(f"variable that ranks have of their own: {self._missing}")
        if self._network is None:
            self._network = process_group.Network(activate(), self._hosts)
            process_group.install(self._network)
            self._device.hosts = self._hosts

    def made(self, num_ranks: int, make: Callable[[int], Any], reset: Callable[[Any], None]) -> Any:
        """Return the schedulers of an engine with several ranks.

        Raises:
            Unknown: no rule assigns a variable of SGLang's loaded modules to ranks.
        """
        from sglang.srt.runtime_context import get_context  # noqa: PLC0415

        from workers.targets.sglang.inside.ranks.schedulers import RankSchedulers, use_context  # noqa: PLC0415

        assert self._hosts is not None, "prepared before the first engine"
        made = RankSchedulers(num_ranks, self._hosts, make, reset)
        self._context_before = get_context()
        try:
            made.load()
            # The driver asks the scheduler of rank 0 whether it is idle.
            use_context(made.contexts[0])
            VARIABLES.check(self._version)
        except Exception:
            self.end(made)
            raise
        return made

    def end(self, engine: Any) -> None:
        """End the threads of an engine's ranks, and forget the collectives that they have begun."""
        engine.end()
        if self._network is not None:
            self._network.forget()
        if self._context_before is not None:
            from workers.targets.sglang.inside.ranks.schedulers import use_context  # noqa: PLC0415

            use_context(self._context_before)
            self._context_before = None
