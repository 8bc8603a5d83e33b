"""Log of host decisions: scheduling, launches and releases of an engine, the oracle's only input.

Requests are numbered in the order of their submission: a name that is used again is another request. Commits are named
by (request, epoch, step in epoch): the epoch counts preemptions, the steps are those that scheduled the request in this
epoch. Values never enter the log, only decisions do.

Entries are never changed. Those that each step makes are not frozen: to make one that is takes several times as long.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from scenarios.events import PreemptMode, SpoilDraft, SpoilLogit

SkipReason: TypeAlias = Literal[
    "stalled", "limit", "model_length", "budget", "blocks", "rows", "stale", "preempted", "grammar"
]
Cause: TypeAlias = Literal["event", "blocks", "reset"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request entered the waiting queue; it came with the trace's submit number `submit`."""

    request: int
    submit: int
    tick: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """A live request was aborted by its client."""

    request: int
    tick: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """A running request lost its blocks and state; `epoch` is its new epoch, `mode` what becomes of its results.

    `returned` are blocks that the step which is being decided had given it before.
    """

    request: int
    epoch: int
    cause: Cause
    tick: int
    mode: PreemptMode = "deliver"
    returned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheReset:
    """The prefix cache forgot everything."""

    tick: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Blocks and a recurrent state slot went back to the pool."""

    request: int
    blocks: tuple[int, ...]
    state_slot: int


class Spoils(NamedTuple):
    """One row's parts spoiled by events: its sample, all logits it samples from, one of them, a draft that it verifies.

    With `no_valid_token` its sample is taken away, with `nan_logits` no logit is a number.
    """

    no_valid_token: bool = False
    nan_logits: bool = False
    logit: SpoilLogit | None = None
    draft: SpoilDraft | None = None


UNSPOILED = Spoils()


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Blocks given to a row: `new` ones, and `shared` ones of the prefix cache with `hit_length` computed tokens."""

    new: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    hit_length: int = 0


NO_BLOCKS = RowBlocks()


@dataclass(slots=True)
class ScheduledRow:
    """One request's share of a step: n tokens, the last d of them drafts, in its state slot and blocks.

    `padded` says that the drafts were added to keep the batch uniform.
    """

    request: int
    epoch: int
    step_in_epoch: int
    n: int
    d: int
    state_slot: int
    blocks: RowBlocks = NO_BLOCKS
    padded: bool = False
    spoils: Spoils = UNSPOILED


@dataclass(slots=True)
class Scheduled:
    """The scheduler's decision for a step, in the order it was taken; `k_step` drafts are proposed in it."""

    step: int
    tick: int
    k_step: int
    rows: tuple[ScheduledRow, ...]
    skipped: tuple[tuple[int, SkipReason], ...]


@dataclass(slots=True)
class Launched:
    """A step was enqueued: its requests in row order, and the padded shape it runs in."""

    step: int
    order: tuple[int, ...]
    num_rows: int
    num_tokens: int
    uniform: bool


@dataclass(slots=True)
class Corrected:
    """The host mirrors were corrected by what this step sampled."""

    step: int


@dataclass(slots=True)
class Processed:
    """The results of a step reached the scheduler."""

    step: int


Entry: TypeAlias = Submitted | Aborted | Preempted | CacheReset | Freed | Scheduled | Launched | Corrected | Processed
