"""Evidence of a finding as values: what was expected, what was found, and where.

Only `words` turns them into English.

Fingerprints, the shrinker, reports and known bugs distinguish findings by these values.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Literal, Self, TypeAlias

import numpy as np
from pydantic import model_validator
from typing_extensions import TypeAliasType

from scenarios.spec import Value
from workers.record.names import Plane
from workers.record.phrases import FACTS, RULES, template_values
from workers.record.rules import Reference, Rule

HOST = "host"
# The plane (state category) of missing orders.
RACES = "races"
# JSON has no such numbers, so evidence holds these texts instead.
NOT_FINITE = ("inf", "-inf", "nan")

# An integer beyond this is not converted to float.
_NUMBER_MAX = 1e300

# A captured, observed or delivered value; numbers that JSON lacks are texts.
Plain = TypeAliasType("Plain", "bool | int | float | str | tuple[Plain, ...] | None")


class Site(Value):
    """A source location; `line` is 0 if only the function is known."""

    function: str
    file: str = ""
    line: int = 0


class Access(Value):
    """One read or write of memory, by an op or the host, with its step and source location.

    `replaced` is the step that the reader expected to be the last writer; `callers` are the callers of the site,
    nearest first, if recorded.
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
        """Name of the function that made the access; if unknown, of its lane (stream)."""
        return self.site.function if self.site is not None else self.lane


class Harm(Value):
    """Effect of a race: which results change if the device runs its tasks in another order.

    - `masked`: a task changes, but nothing that the host receives. `harmful`: the host receives other bytes.
    - `task` is the first task that differs, `what` says how; `given` is the first task that gives the host other bytes.
    - `error`: the engine's exception, if the engine crashed under `policy`.
    """

    kind: Literal["benign", "masked", "harmful"]
    task: Access | None = None
    what: Literal["", "reads", "writes", "other_task", "only_one"] = ""
    given: Access | None = None
    policy: str = "lazy"
    error: str = ""


class MissingOrder(Value):
    """A race: two accesses to the same memory, at least one a write, not ordered by any wait.

    `memory` is the name for the first access, `reused_as` for the second if the memory was allocated again in between;
    `allocated` is the source location of the allocation of unnamed memory.
    """

    first: Access
    second: Access
    memory: str
    reused_as: str = ""
    allocated: Site | None = None
    harm: "Harm | None" = None


class Fact(Value):
    """Message about an expected or actual value: a template (key of `words.FACTS`), and values."""

    kind: str
    values: "dict[str, Fact | Plain]" = {}

    @model_validator(mode="after")
    def _has_a_sentence(self) -> Self:
        if self.kind not in FACTS:
            raise ValueError(f"unknown kind of fact {self.kind!r}; expected a key of words.FACTS")
        _check_values(FACTS[self.kind], self.values)
        return self


EvidenceValue: TypeAlias = Fact | Plain


def fact(kind: str, **values: object) -> Fact:
    """Return the message with template `kind` (key of `words.FACTS`) and these values."""
    return Fact(kind=kind, values={name: plain_value(value) for name, value in values.items()})


def plain_value(value: object) -> EvidenceValue:
    """Convert a value so that evidence can store it: lists to tuples, NumPy to Python numbers."""
    match value:
        case None | bool() | int() | str() | Fact():
            return value
        case float() | np.floating():
            return float(value) if isfinite(value) else str(float(value))
        case np.integer() | np.bool_():
            found: EvidenceValue = value.item()
            return found
        case list() | tuple():
            return tuple(_plain(plain_value(each)) for each in value)
    raise TypeError(f"cannot store a {type(value).__name__} as evidence")


def _plain(value: EvidenceValue) -> Plain:
    assert not isinstance(value, Fact), "a sequence must hold plain values, not facts"
    return value


class Violation(Value):
    """A scheduler decision that breaks a rule: the rule, the log entry and the request."""

    rule: Rule
    entry: str = ""
    request: str = ""
    values: dict[str, Plain] = {}

    @model_validator(mode="after")
    def _has_a_sentence(self) -> Self:
        _check_values(RULES[self.rule], self.values)
        _check_values(self.rule, self.values)
        return self


def _check_values(template: str, values: Mapping[str, EvidenceValue]) -> None:
    """Raise if a sentence template cannot be filled in with the values.

    Raises:
        ValueError: a value is missing, or must be a number and is not.
    """
    for name, is_number in template_values(template):
        if name not in values:
            raise ValueError(f"values has no {name!r}")
        value = values[name]
        is_finite = isinstance(value, int | float) and abs(value) <= _NUMBER_MAX
        if is_number and not is_finite and value not in NOT_FINITE:
            raise ValueError(f"{name!r} is {str(value)[:40]!r}, expected a number")


def violation(rule: Rule, **values: object) -> Violation:
    """Return a `Violation` of a rule, with values that evidence can store."""
    return Violation(rule=rule, values={name: _plain(plain_value(value)) for name, value in values.items()})


class Elsewhere(Value):
    """Whether a reference run keeps the output rule (contract) that this run violates.

    If it breaks a different contract, `contract` and `request` name it.
    """

    reference: Reference
    how: Literal["keeps", "breaks", "other", "failed"]
    contract: str = ""
    request: str = ""
    error: str = ""


class Difference(Value):
    """First difference between engine and oracle (the independent reference computation).

    - `commit` is request/incarnation/epoch/step; `position` is a token position or a column, if the variable has one.
    - `reference` is the run that it was compared with, if any; `elsewhere` is another run that was checked for a broken
      contract.
    - `writers` are the last device ops or host accesses that wrote the value, newest first.
    - `made_at` are source locations of the engine that compute the value, or where another run failed.
    - `missing_order` are two unordered accesses, if the race detector found some.
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
        """Whether the reference run keeps the output rule (contract) that this run breaks."""
        return self.elsewhere is not None and self.elsewhere.how == "keeps"
