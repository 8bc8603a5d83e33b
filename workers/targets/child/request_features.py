"""Request features that an engine supports, mapped to the engine's own parameters.

A feature is, for example, stop tokens, logprobs of prompt tokens, or a grammar for the output tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.capabilities import PLAIN, EventLimit, Excess, Without, uses_feature, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.spec import EngineSpec

# Returns the value of an engine's parameter for a request.
Value: TypeAlias = Callable[[Submit], object]
_PLAIN_SUBMIT = Submit(tick=0, request="plain", prompt=(0,), max_tokens=1)


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """One request feature (e.g. penalties) of an engine: its parameters and limits.

    `sampling` maps each of the engine's sampling parameters for it to its value for a request; `request` has the
    parameters that are not sampling parameters. The engine lacks the feature for the specifications for which `without`
    is true, e.g. with a drafter, and `limits` restrict requests that use it. `unwritten` says why no exported test can
    use it.
    """

    feature: str
    sampling: Mapping[str, Value] = field(default_factory=dict)
    request: Mapping[str, Value] = field(default_factory=dict)
    without: Callable[[EngineSpec], bool] | None = None
    limits: tuple[EventLimit, ...] = ()
    unwritten: str = ""


def of(param: str, key: str = "") -> Mapping[str, Value]:
    """Map the engine's parameter `key` (default: the same name) to our parameter `param`."""
    return {key or param: lambda submit: getattr(submit.params, param)}


@dataclass(frozen=True, slots=True)
class ExcludedParam:
    """Limit of an engine: requests of some kind cannot use the parameter `param`."""

    param: str
    other: str
    is_of_kind: Callable[[Submit, EngineSpec], bool]
    reason: str = ""

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return an `Excess` if the request is of this kind and uses `param`, else None."""
        if not isinstance(event, Submit) or not uses_feature(event, self.param) or not self.is_of_kind(event, spec):
            return None
        default = getattr(PLAIN, self.param)
        allowed = f"with {self.other} {'none' if default == () else default} is allowed"
        fixed = with_params(event, {self.param: default})
        return Excess(f"params.{self.param}", getattr(event.params, self.param), allowed, fixed, self.reason)


@dataclass(frozen=True, slots=True)
class RequestFeatures:
    """The request features of an engine, in the order in which their limits are applied."""

    rows: tuple[FeatureSupport, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.feature for each in self.rows)

    @property
    def lacks(self) -> tuple[Without, ...]:
        """The features that the engine lacks under some specifications, such as with a drafter."""
        return tuple(Without((each.feature,), each.without) for each in self.rows if each.without is not None)

    @property
    def limits(self) -> tuple[EventLimit, ...]:
        return tuple(limit for each in self.rows for limit in each.limits)

    def sampling(self, event: Submit) -> dict[str, object]:
        """Return the arguments of the engine's sampling parameters for a request."""
        return {key: value(event) for each in self.rows for key, value in each.sampling.items()}

    def request(self, event: Submit) -> dict[str, object]:
        """Return the engine's arguments for a request that are not sampling parameters."""
        return {key: value(event) for each in self.rows for key, value in each.request.items()}

    def written(self, event: Submit) -> dict[str, object]:
        """Return a request's non-default sampling parameters, for an exported test."""
        plain = self.sampling(_PLAIN_SUBMIT)
        return {key: value for key, value in self.sampling(event).items() if value != plain[key]}

    def unwritten(self, event: Submit) -> str | None:
        """Return which feature of a request exported tests do not support, and why; or None."""
        found = (
            f"{each.feature} {each.unwritten}"
            for each in self.rows
            if each.unwritten and uses_feature(event, each.feature)
        )
        return next(found, None)
