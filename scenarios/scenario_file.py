"""Scenario file: a trace, and what it was found on, as the keys of a YAML file."""

from typing import Annotated

from pydantic import Field

from scenarios.spec import Value
from scenarios.trace import Trace

# Values are printed, and so no more than words.
_WORD = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")]
_VERSION = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+!-]{0,200}$")]
_NAMES = Annotated[str, Field(pattern=r"^[a-z0-9_,]{0,4000}$")]
_DIGEST = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")]


class RunOn(Value):
    """What a trace was run on: engine, device, options and sources; an empty value was not recorded.

    `version` is the release of the engine, `sources` the digest of the sources that were laid over it, empty if none
    were. `fixes` are the findings whose fixes were applied to the sources: `all`, or names separated by commas.
    No key says where a program is: a file from a stranger must not choose what is started.
    """

    engine: _WORD = ""
    device: _WORD = ""
    kernels: _WORD = ""
    fixes: _NAMES = ""
    version: _VERSION = ""
    sources: _DIGEST = ""

    def recorded(self) -> dict[str, str]:
        """Return the values that were recorded, by key."""
        return {name: value for name, value in self if value}


class ScenarioFile(Trace):
    """A scenario file: a trace, and what it was run on, which is not part of it."""

    run_on: RunOn = RunOn()

    def trace(self) -> Trace:
        """Return the trace alone."""
        return Trace.model_construct(**{name: getattr(self, name) for name in Trace.model_fields})
