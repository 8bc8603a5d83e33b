"""Evidence: seen and due values of a judge's findings; `words` alone puts them into English.

Everything that tells findings apart (fingerprints, the shrinker, reports, known findings) reads these values.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Literal, Self, TypeAlias

import numpy as np
from pydantic import model_validator
from typing_extensions import TypeAliasType

from scenarios.spec import Value
from workers.record.names import Plane
from workers.record.phrases import FACTS, RULES, needs_of
from workers.record.rules import Reference, Rule

HOST = "host"
# The plane of missing orders.
RACES = "races"
# JSON has no such numbers: as evidence they are these texts.
NOT_FINITE = ("inf", "-inf", "nan")

# Beyond it an integer is no float.
_NUMBER_MAX = 1e300

# A value that was captured, observed or delivered; what is neither finite nor a number of JSON is a text.
Plain = TypeAliasType("Plain", "bool | int | float | str | tuple[Plain, ...] | None")


class Site(Value):
    """A place in a program; `line` is 0 where only the function is known."""

    function: str
    file: str = ""
    line: int = 0


class Access(Value):
    """One use of memory: by an op of a lane or by the host, in a step, from a place in the program where that is known.

    `replaced` is the step whose write the reader expected to be the last; `callers` are those of the site, the nearest
    first, where they are kept.
    """

    lane: str
    op: str
    step: int
    how: Literal["read", "write"] = "write"
    replaced: int | None = None
    site: Site | None = None
    callers: tuple[Site, ...] = ()

    @property
    def actor(self) -> str:
        """The function that made the access, where that is known; else its lane."""
        return self.site.function if self.site is not None else self.lane


class Harm(Value):
    """The changes by a race under a schedule that runs the tasks in another order.

    `masked` is what changes a task and nothing that the host is given, `harmful` what the host is given; `task` is the
    first that differs, in `what`, and `given` the first of those that give the host other bytes. Under the `policy` of
    an engine that ends there is its `error`.
    """

    kind: Literal["benign", "masked", "harmful"]
    task: Access | None = None
    what: Literal["", "reads", "writes", "other_task", "only_one"] = ""
    given: Access | None = None
    policy: str = "lazy"
    error: str = ""


class MissingOrder(Value):
    """Two accesses of the same memory, at least one a write, that nothing orders.

    `memory` names it for the first access, `reused_as` for the second if it was handed out again in between;
    `allocated` is where, of memory without a name.
    """

    first: Access
    second: Access
    memory: str
    reused_as: str = ""
    allocated: Site | None = None
    harm: "Harm | None" = None


class Fact(Value):
    """Something that was seen, or that was due: its kind, a key of `words.FACTS`, and the values that belong to it."""

    kind: str
    values: "dict[str, Fact | Plain]" = {}

    @model_validator(mode="after")
    def _has_a_sentence(self) -> Self:
        if self.kind not in FACTS:
            raise ValueError(f"kind is {self.kind!r}, which is no kind of fact")
        _check_values(FACTS[self.kind], self.values)
        return self


Shown: TypeAlias = Fact | Plain


def fact(kind: str, **values: object) -> Fact:
    """Return a fact of a kind, of plain values and other facts."""
    return Fact(kind=kind, values={name: shown(value) for name, value in values.items()})


def shown(value: object) -> Shown:
    """Return a value as evidence: sequences as tuples, numbers as Python's."""
    match value:
        case None | bool() | int() | str() | Fact():
            return value
        case float() | np.floating():
            return float(value) if isfinite(value) else str(float(value))
        case np.integer() | np.bool_():
            found: Shown = value.item()
            return found
        case list() | tuple():
            return tuple(_plain(shown(each)) for each in value)
    raise TypeError(f"{type(value).__name__} is no evidence")


def _plain(value: Shown) -> Plain:
    assert not isinstance(value, Fact), "a sequence holds plain values"
    return value


class Violation(Value):
    """A rule that a decision breaks: at an entry of the log, for a request where it is about one."""

    rule: Rule
    entry: str = ""
    request: str = ""
    values: dict[str, Plain] = {}

    @model_validator(mode="after")
    def _has_a_sentence(self) -> Self:
        _check_values(RULES[self.rule], self.values)
        _check_values(self.rule, self.values)
        return self


def _check_values(template: str, values: Mapping[str, Shown]) -> None:
    """Check that a template can be filled in with values.

    Raises:
        ValueError: one is missing, or has to be a number and is none.
    """
    for name, is_number in needs_of(template):
        if name not in values:
            raise ValueError(f"values has no {name!r}")
        value = values[name]
        is_finite = isinstance(value, int | float) and abs(value) <= _NUMBER_MAX
        if is_number and not is_finite and value not in NOT_FINITE:
            raise ValueError(f"{name!r} is {str(value)[:40]!r}, and has to be a number")


def violation(rule: Rule, **values: object) -> Violation:
    """Make the violation of a rule, with plain values."""
    return Violation(rule=rule, values={name: _plain(shown(value)) for name, value in values.items()})


class Elsewhere(Value):
    """Whether another run keeps the contract that a run breaks; `breach` is what it breaks instead, if it does."""

    reference: Reference
    how: Literal["keeps", "breaks", "other", "failed"]
    contract: str = ""
    request: str = ""
    error: str = ""


class Difference(Value):
    """The first place where engine and oracle part.

    `commit` is request/incarnation/epoch/step; `position` a token position or a column, where the variable has one;
    `reference` is the run in which it was as expected, where it was compared with one, `elsewhere` another run that
    was asked about a broken contract; `writers` are the last device ops or host points that wrote the value, newest
    first; `made_at` are the places in the engine's program that are to see to it, where its target names some, or where
    another run broke off;
    `missing_order` are two unordered accesses, where the race detector saw some.
    """

    plane: Plane
    variable: str
    request: str = ""
    commit: str = ""
    step: int
    position: int | None = None
    expected: Fact | Plain
    actual: Violation | Fact | Plain
    reference: Reference | None = None
    elsewhere: Elsewhere | None = None
    writers: tuple[Access, ...] = ()
    made_at: tuple[Site, ...] = ()
    missing_order: MissingOrder | None = None

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the other run that was asked about it keeps the contract."""
        return self.elsewhere is not None and self.elsewhere.how == "keeps"
