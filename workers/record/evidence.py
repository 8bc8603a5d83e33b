"""Evidence: seen and due values of a judge's findings; `words` alone puts them into English.

Everything that tells findings apart (fingerprints, the shrinker, reports, known findings) reads these values.
"""

from enum import StrEnum
from math import isfinite
from typing import Literal, TypeAlias

import numpy as np
from typing_extensions import TypeAliasType

from scenarios.spec import Value

HOST = "host"
# The plane of missing orders.
RACES = "races"
# JSON has no such numbers: as evidence they are these texts.
NOT_FINITE = ("inf", "-inf", "nan")

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


class Reference(StrEnum):
    """Another run of the same requests, with which a run is compared."""

    SYNCHRONOUS = "synchronous"
    WITHOUT_SPECULATION = "without_speculation"
    ALONE = "alone"


class Fact(Value):
    """Something that was seen, or that was due: its kind, a key of `words.FACTS`, and the values that belong to it."""

    kind: str
    values: "dict[str, Fact | Plain]" = {}


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


class Rule(StrEnum):
    """Rules that the decisions in a log keep; the value stands in fingerprints, and stays whatever `words` say.

    R stands for a request, N for numbers; what stands in braces is a value that makes another bug.
    """

    # The fold of the oracle.
    NOT_ALIVE = "request N is not alive"
    NAME_IN_USE = "request R was submitted while another of its name was alive"
    SUBMITTED_OUT_OF_ORDER = "request N was submitted out of order"
    OTHER_CONTENTS = "request R takes block N over"
    NOT_THE_LAST_SCHEDULED = "step N was launched"
    OTHER_REQUESTS_RUN = "step N runs requests [N]"
    PAST_ITS_REACH = "request R computes position N"
    SAMPLES_ELSEWHERE = "request R samples position N"
    PROCESSED_BEFORE_LAUNCH = "step N was processed"
    DELIVERED_ELSEWHERE = "step N delivers R from position N"
    PREEMPTED_WHILE_WAITING = "request R was preempted into epoch N"
    FREED_WHILE_RUNNING = "request R gives its blocks back while it runs"
    OTHER_BLOCKS_FREED = "request R gives back (N)"
    # Places and order of entries.
    NEVER_SUBMITTED = "request N was never submitted"
    NEVER_CORRECTED = "step N was never corrected"
    STOPPED_EARLY = "the engine stopped while requests R"
    BEFORE_LAUNCH = "step N is not launched yet"
    BEFORE_SCHEDULE = "requests were preempted for step N"
    STEP_NUMBER = "it is step N at tick N"
    LAUNCH_ORDER = "step N was launched after step N"
    LAUNCHED_UNCORRECTED = "step N was launched with two steps to correct"
    TOO_MANY_IN_FLIGHT = "N steps are in flight"
    PROCESS_ORDER = "step N was processed out of turn"
    PROCESSED_EARLY = "step N was processed with N in flight"
    CORRECTED_OUT_OF_TURN = "step N was corrected out of turn"
    OBSERVED_ROWS = "requests (N)"
    # Decisions of the scheduler.
    DRAFTS_PROPOSED = "N drafts are proposed"
    NAMED_REQUESTS = "scheduled or skipped are requests [N]"
    VICTIMS = "preempted for want of blocks are requests [N]"
    RETURNED_BLOCKS = "request R gives blocks (N) of this step back"
    SKIPPED = "request R was left out for {reason!r}"
    SCHEDULED = "request R was scheduled"
    ROWS = "rows are [N]"
    EPOCH = "epoch is N"
    STEP_IN_EPOCH = "it is its step N"
    NUM_TOKENS = "N tokens are scheduled"
    NUM_DRAFTS = "N drafts are scheduled"
    PADDED = "it was padded with drafts"
    NOT_PADDED = "it joins a uniform batch"
    SAMPLE_TAKEN = "its sample was taken away"
    SAMPLE_LEFT = "its sample was not taken away"
    SPOILED_LOGITS = "its logits are made NaN: {seen}; due is {due}"
    SPOILS = "spoiled of it are others than due"
    NUM_BLOCKS = "N blocks were given"
    HITS = "blocks (N) are taken over (N tokens)"
    BLOCKS = "blocks (N) are given"
    BLOCK_OWNED = "block N is given to it"
    SLOT_CHANGED = "state slot N is given to it in place of its own"
    SLOT_OWNED = "state slot N is given to it"
    VICTIM = "request N was preempted"
    VICTIM_MODE = "request N was preempted for blocks in mode {mode}"
    VICTIM_TICK = "request N was preempted at tick N"
    BLOCK_FREED = "block N is given back by request N"
    SLOT_FREED = "state slot N is given back by request N"
    ROW_ORDER = "step N runs requests (N)"
    UNIFORM = "the batch is called uniform: {seen}; due is {due}"
    SHAPE = "the batch is padded to N rows and N tokens"
    # Events.
    SUBMITTED_EARLY = "request R was submitted before its event"
    SUBMITTED_AT = "submitted at tick N"
    RESET_UNASKED = "the prefix cache was reset at tick N"
    ABORT_UNASKED = "abort of request R at tick N"
    PREEMPT_UNASKED = "preempt of request R at tick N"
    RESET_MISSING = "the prefix cache was not reset"
    SUBMIT_MISSING = "request R was not submitted"
    ABORT_MISSING = "request R goes on"
    PREEMPT_MISSING = "request R runs on"
    # Properties that hold by counting.
    BUDGET = "N tokens more than the budget of a step are scheduled"
    CUT_SHORT = "request R gets N tokens and is cut short"
    BLOCK_HELD = "block N is given to request R"
    TOO_MANY_RUN = "N requests run"
    LEFT_OUT = "request R runs and is left out"
    IDLE = "N steps in a row run nothing"
    OVERTAKEN = "request R is admitted before R"
    COULD_RUN = "request R waits"
    GOES_ON_ENDED = "request R has ended and gets N tokens"
    COMPUTED_BEFORE_DRAFTS = "N tokens are computed before its drafts"
    TOO_MANY_TOKENS = "N tokens come from N drafts"
    NO_TOKEN = "a row that samples brings no token"
    CHUNK = "a chunk up to token N of N has N drafts and brings N tokens"
    DROPPED_DELIVERED = "N tokens of epoch N are delivered"
    BEYOND_LIMIT = "it has N tokens"
    ENDS_BELOW_LIMIT = "it ends with N tokens for its length"
    GOES_ON_AT_LIMIT = "it goes on with N tokens"


class Violation(Value):
    """A rule that a decision breaks: at an entry of the log, for a request where it is about one."""

    rule: Rule
    entry: str = ""
    request: str = ""
    values: dict[str, Plain] = {}


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
    `missing_order` are two unordered accesses, where the race detector saw some; `known` names the known bug of the
    engine that this is.
    """

    plane: str
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
    known: str = ""

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the other run that was asked about it keeps the contract."""
        return self.elsewhere is not None and self.elsewhere.how == "keeps"
