"""Decision log of an engine: what its host scheduled, launched, preempted and released.

The oracle's only input.

Requests are numbered in submission order; a name that is used again is another request. A commit is identified by
(request, epoch, step in epoch): the epoch counts preemptions, the step counts steps that scheduled the request in this
epoch. The log holds only decisions, never values.

Entries are never changed. Those made in each step are not frozen dataclasses, which take several times as long to make.
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
    """Log entry: a request entered the waiting queue; `submit` numbers its submit event."""

    request: int
    submit: int
    tick: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Log entry: the client aborted a request that was not finished."""

    request: int
    tick: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """Log entry: a running request was preempted.

    `epoch` is its new epoch, `mode` what happens to its results.

    `returned` are blocks that the step being scheduled had already allocated to it.
    """

    request: int
    epoch: int
    cause: Cause
    tick: int
    mode: PreemptMode = "deliver"
    returned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheReset:
    """Log entry: the prefix cache was reset."""

    tick: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Log entry: a request released its KV-cache blocks and its recurrent state slot."""

    request: int
    blocks: tuple[int, ...]
    state_slot: int


class Spoils(NamedTuple):
    """Corruption of a batch row by trace events: its sample, its logits, or a draft token.

    With `no_valid_token` its sample is removed, with `nan_logits` all logits are NaN.
    """

    no_valid_token: bool = False
    nan_logits: bool = False
    logit: SpoilLogit | None = None
    draft: SpoilDraft | None = None


UNSPOILED = Spoils()


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """KV-cache blocks added to a row: `new` ones, and `shared` ones of a prefix-cache hit.

    The hit has `hit_length` tokens.
    """

    new: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    hit_length: int = 0


NO_BLOCKS = RowBlocks()


@dataclass(slots=True)
class ScheduledRow:
    """One request's row of a step: `n` tokens, the last `d` of them draft tokens.

    `padded` says that draft tokens were added to keep the batch uniform.
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
    """Log entry: scheduler output of a step, and why other requests were not scheduled.

    `k_step` draft tokens are proposed per row.
    """

    step: int
    tick: int
    k_step: int
    rows: tuple[ScheduledRow, ...]
    skipped: tuple[tuple[int, SkipReason], ...]


@dataclass(slots=True)
class Launched:
    """Log entry: a step was launched with these requests by batch row, and this padded shape."""

    step: int
    order: tuple[int, ...]
    num_rows: int
    num_tokens: int
    uniform: bool


@dataclass(slots=True)
class Corrected:
    """Log entry: sampling results of a step corrected the host's counts."""

    step: int


@dataclass(slots=True)
class Processed:
    """Log entry: the scheduler processed the sampling results of a step."""

    step: int


Entry: TypeAlias = Submitted | Aborted | Preempted | CacheReset | Freed | Scheduled | Launched | Corrected | Processed
