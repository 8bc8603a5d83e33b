"""Scenario file: a trace, and what it was found on, as the keys of a YAML file."""

from scenarios.spec import Value
from scenarios.trace import Trace


class RunOn(Value):
    """The engine and the device that a file was made on, and the options that chose them; none says nothing."""

    engine: str = ""
    device: str = ""
    engine_home: str = ""
    engine_path: str = ""
    kernels: str = ""


class ScenarioFile(Trace):
    """A scenario file: a trace, and what it was run on, which is not part of it."""

    run_on: RunOn = RunOn()

    def trace(self) -> Trace:
        """Return the trace alone."""
        return Trace.model_construct(**{name: getattr(self, name) for name in Trace.model_fields})
