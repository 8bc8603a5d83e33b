"""Keeper of the process of one configuration: started when it is needed, and again after it has ended."""

from collections.abc import Callable

from workers.targets.child.process import SECONDS, EngineProcess, Launch, Seconds, StartFailed
from workers.targets.target import DeviceError


class Keeper:
    """One process of an engine at most.

    `launch` says how it is started, or raises a DeviceError that says why it cannot be.
    """

    def __init__(self, engine: str, launch: Callable[[], Launch], seconds: Seconds = SECONDS) -> None:
        self._engine, self.launch, self._seconds = engine, launch, seconds
        self._process: EngineProcess | None = None

    def process(self) -> EngineProcess:
        """Return a live process, started if there is none.

        Raises:
            DeviceError: none can be started; the message says what to do.
        """
        if self._process is not None and self._process.is_alive():
            return self._process
        self.stop()
        launch = self.launch()
        try:
            self._process = EngineProcess(launch, self._seconds)
        except StartFailed as error:
            raise DeviceError(f"engine {self._engine}: {error}") from error
        return self._process

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
