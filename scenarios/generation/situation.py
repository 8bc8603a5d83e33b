"""Situations: named changes of random traces, each for a kind of bug."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from scenarios.capabilities import Capabilities
from scenarios.generation.weights import TABLE, Area
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

# Stages in the order of application: `feature` changes a trace before it is rescaled to the engine's block size. A
# trace gets at most one situation of `size` and `last`.
Stage: TypeAlias = Literal["base", "feature", "drafts", "size", "batch", "last", "window", "connector"]
T = TypeVar("T")


class Generated(NamedTuple):
    """A generated trace, and the names of the situations that changed it."""

    trace: Trace
    situations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """Condition on an engine and on a trace's specification for a situation.

    `text` is its name in lists.
    """

    text: str
    engine: Callable[[Capabilities], bool] = lambda _: True
    spec: Callable[[Capabilities, EngineSpec], bool] = lambda *_: True


def event(*kinds: str) -> Requirement:
    """Require an engine that supports one of these kinds of events."""
    return Requirement(f"event {' or '.join(kinds)}", engine=lambda engine: bool({*kinds} & {*engine.events}))


def feature(name: str) -> Requirement:
    """Require an engine that supports a request feature."""
    return Requirement(
        f"feature {name}",
        engine=lambda engine: name in engine.features,
        spec=lambda engine, spec: name in engine.features_on(spec),
    )


def allows(key: str, value: object) -> Requirement:
    """Require an engine that allows a value of a specification key."""
    return Requirement(f"{key}: {value}", engine=lambda engine: engine.allows(key, value))


def when(text: str, holds: Callable[[EngineSpec], bool]) -> Requirement:
    """Require a specification that satisfies a condition."""
    return Requirement(text, spec=lambda _, spec: holds(spec))


def is_set(key: str, value: object) -> Requirement:
    """Require a specification with this value of a key."""
    return Requirement(
        f"{key} {value}",
        engine=lambda engine: engine.allows(key, value),
        spec=lambda _, spec: getattr(spec, key) == value,
    )


def allows_any(key: str) -> Requirement:
    """Require an engine that allows any value of a specification key."""
    return Requirement(f"any {key}", engine=lambda engine: engine.allowed(key) is None)


DRAFTS = when("drafts", lambda spec: spec.num_speculative_tokens > 0)
RUNS = when("two drafts or more", lambda spec: spec.num_speculative_tokens > 1)
NO_DRAFTS = when("no drafts", lambda spec: spec.num_speculative_tokens == 0)
ATTENTION = is_set("layers", "attention")
HYBRID = is_set("layers", "hybrid")
PREFIX_CACHE = is_set("prefix_cache", True)
OWN_DRAFTS = Requirement("drafts that are not scripted", engine=lambda engine: not engine.scripts_drafts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation(Generic[T]):
    """A situation with weight, area and bugs; `change` is the function that changes a trace.

    A situation without `change` is part of the base generator or of the situation `part_of`, which asks for it by name.
    A trace with the situation `along_with` always has this one, a trace with one of `unless` never. An engine that
    declares a situation of its own has it in place of the one that it `replaces`.
    """

    name: str
    needs: tuple[Requirement, ...] = ()
    change: Callable[[T], None] | None = None
    stage: Stage = "batch"
    part_of: str = ""
    along_with: str = ""
    unless: tuple[str, ...] = ()
    replaces: str = ""

    def __call__(self, trace: T) -> None:
        """Apply the situation to a trace under generation."""
        assert self.change is not None, f"{self.name} is part of {self.part_of}"
        self.change(trace)

    @property
    def area(self) -> Area:
        """The part of the engine that the situation tests."""
        return TABLE[self.name][1]

    @property
    def finds(self) -> str:
        """The bugs that the situation should find, in one line."""
        return TABLE[self.name][2]

    @property
    def requires(self) -> str:
        """The requirements of the situation in words."""
        return ", ".join(need.text for need in self.needs) or "nothing"

    def is_possible(self, engine: Capabilities) -> bool:
        """Whether some trace of an engine can have the situation."""
        return all(need.engine(engine) for need in self.needs)

    def is_possible_in(self, engine: Capabilities, spec: EngineSpec) -> bool:
        """Whether a trace with this specification can have the situation."""
        return self.is_possible(engine) and all(need.spec(engine, spec) for need in self.needs)


def situation(
    *needs: Requirement,
    stage: Stage = "batch",
    part_of: str = "",
    along_with: str = "",
    unless: tuple[str, ...] = (),
    replaces: str = "",
) -> Callable[[Callable[[T], None]], Situation[T]]:
    """Return a decorator that declares a function, which changes a trace, as a situation.

    The situation has the name of the function.
    """

    def named(change: Callable[[T], None]) -> Situation[T]:
        return Situation(
            name=change.__name__,
            needs=needs,
            change=change,
            stage=stage,
            part_of=part_of,
            along_with=along_with,
            unless=unless,
            replaces=replaces,
        )

    return named
