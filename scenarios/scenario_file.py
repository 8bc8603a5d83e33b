"""Scenario file: a trace as YAML, and the run that found it."""

from typing import Annotated

from pydantic import Field

from scenarios.spec import Value
from scenarios.trace import Trace

# Values are printed on the terminal, so only plain words are allowed.
_WORD = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")]
_VERSION = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+!-]{0,200}$")]
_NAMES = Annotated[str, Field(pattern=r"^[a-z0-9_,]{0,4000}$")]
_DIGEST = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")]


class RunOn(Value):
    """Engine, device, options and sources of the run that found a trace.

    An empty value was not recorded.
    `version` is the version of the engine that ran. `release` selects one of the engine's installed releases, empty for
    the default one. `sources` is the digest of the source overlay, empty without an overlay.
    `fixes` names the findings with a fix applied to the sources: `all`, or names separated by commas.
    No key has the path of a program: a downloaded file must not choose what is started.
    """

    engine: _WORD = ""
    device: _WORD = ""
    release: _VERSION = ""
    kernels: _WORD = ""
    fixes: _NAMES = ""
    version: _VERSION = ""
    sources: _DIGEST = ""

    def recorded(self) -> dict[str, str]:
        """Return the stored settings (engine, device, options, sources) by key."""
        return {name: value for name, value in self if value}


class ScenarioFile(Trace):
    """A scenario file: a trace and `run_on`, which is not part of the trace."""

    run_on: RunOn = RunOn()

    def trace(self) -> Trace:
        """Return the trace without `run_on`."""
        return Trace.model_construct(**{name: getattr(self, name) for name in Trace.model_fields})
