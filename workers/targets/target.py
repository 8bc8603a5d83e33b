"""Run configuration: the engine that is tested and the device it runs on."""

from typing import Literal, TypeAlias, get_args

from scenarios.spec import Value

Device: TypeAlias = Literal["sim", "triton-cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)

SPECSTORM = "specstorm"


class RunConfig(Value):
    """What a user chooses beside the trace: which engine is driven, and on which device.

    It may change a verdict, and so all of it is part of the key of every job.
    """

    engine: str = SPECSTORM
    device: Device = "sim"

    @property
    def text(self) -> str:
        """Return the canonical text of all of it, for keys."""
        return self.model_dump_json()

    def changed(self) -> dict[str, str]:
        """Return what differs from the defaults, by name."""
        fields = type(self).model_fields
        return {name: str(value) for name, value in self if value != fields[name].default}

    def flags(self) -> list[str]:
        """Return the command-line flags that choose it; none for the defaults."""
        return [part for name, value in self.changed().items() for part in (f"--{name}", value)]


DEFAULT_CONFIG = RunConfig()


def known_engines() -> tuple[str, ...]:
    """Return the names of the engines that can be driven."""
    return (SPECSTORM,)
