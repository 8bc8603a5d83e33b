"""Request features as an engine in a process of its own has them: its parameter for each, and when it lacks one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.capabilities import PLAIN, EventLimit, Excess, Without, asks, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.spec import EngineSpec

# The value of an engine's parameter for a request.
Value: TypeAlias = Callable[[Submit], object]
_PLAIN_SUBMIT = Submit(tick=0, request="plain", prompt=(0,), max_tokens=1)


@dataclass(frozen=True, slots=True)
class Has:
    """A request feature that an engine has.

    `sampling` are its sampling parameters in the engine by their keys, each with its value for a request; `request` are
    those that the engine takes with the request itself. The engine lacks the feature `without` some specifications,
    and has `limits` of requests with it. `unwritten` says why no exported test asks for it.
    """

    feature: str
    sampling: Mapping[str, Value] = field(default_factory=dict)
    request: Mapping[str, Value] = field(default_factory=dict)
    without: Callable[[EngineSpec], bool] | None = None
    limits: tuple[EventLimit, ...] = ()
    unwritten: str = ""


def of(param: str, key: str = "") -> Mapping[str, Value]:
    """Return the engine's parameter that is a sampling parameter of the request, under its own key or another one."""
    return {key or param: lambda submit: getattr(submit.params, param)}


@dataclass(frozen=True, slots=True)
class NotWith:
    """Limit: a request that is of a kind has no value of a sampling parameter."""

    param: str
    other: str
    is_of_kind: Callable[[Submit, EngineSpec], bool]
    reason: str = ""

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return the excess of a request of the kind that has a value."""
        if not isinstance(event, Submit) or not asks(event, self.param) or not self.is_of_kind(event, spec):
            return None
        default = getattr(PLAIN, self.param)
        allowed = f"with {self.other} {'none' if default == () else default} is allowed"
        mended = with_params(event, {self.param: default})
        return Excess(f"params.{self.param}", getattr(event.params, self.param), allowed, mended, self.reason)


@dataclass(frozen=True, slots=True)
class RequestFeatures:
    """The request features that an engine has, in the order in which its limits are applied to a request."""

    rows: tuple[Has, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.feature for each in self.rows)

    @property
    def lacks(self) -> tuple[Without, ...]:
        """The limits of specifications with which the engine lacks features."""
        return tuple(Without((each.feature,), each.without) for each in self.rows if each.without is not None)

    @property
    def limits(self) -> tuple[EventLimit, ...]:
        return tuple(limit for each in self.rows for limit in each.limits)

    def sampling(self, event: Submit) -> dict[str, object]:
        """Return the engine's sampling parameters for a request."""
        return {key: value(event) for each in self.rows for key, value in each.sampling.items()}

    def request(self, event: Submit) -> dict[str, object]:
        """Return the parameters that the engine takes with a request itself."""
        return {key: value(event) for each in self.rows for key, value in each.request.items()}

    def written(self, event: Submit) -> dict[str, object]:
        """Return the sampling parameters that a request changes, for an exported test."""
        plain = self.sampling(_PLAIN_SUBMIT)
        return {key: value for key, value in self.sampling(event).items() if value != plain[key]}

    def unwritten(self, event: Submit) -> str | None:
        """Return why no exported test makes a request: the first feature of it that none asks for, with the reason."""
        found = (
            f"{each.feature} {each.unwritten}" for each in self.rows if each.unwritten and asks(event, each.feature)
        )
        return next(found, None)
