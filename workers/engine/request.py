"""Requests, and the scheduler's plan of a step with one row per request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scenarios.sampling import SamplingParams
from workers.record.log import UNSPOILED, Scheduled, ScheduledRow, SkipReason, Spoils

_NOTHING = SamplingParams()


@dataclass(slots=True, eq=False)
class Request:
    """A request on the host: tokens, counts, blocks, and `epoch`, its number of preemptions.

    `tokens` holds only committed tokens. `num_computed` and `num_placeholders` are optimistic: they count every
    scheduled token as computed and every scheduled draft token as accepted until the step is processed; num_computed -
    num_placeholders == len(tokens) - 1 holds once a step has sampled for the request. Among the tokens in flight,
    `num_stale` belong to an earlier epoch and will be delivered, `num_dropped` to an epoch before `drop_before`, so
    their results are discarded. The first `num_cached` blocks are already registered.
    """

    index: int
    name: str
    tokens: list[int]
    num_prompt: int
    length_limit: int
    stop: frozenset[int]
    script: list[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    num_computed: int = 0
    num_placeholders: int = 0
    num_in_flight: int = 0
    num_stale: int = 0
    num_dropped: int = 0
    drop_before: int = 0
    num_drafts_next: int = 0
    num_accepted_last: int = 0
    running: bool = False
    finish_reason: str | None = None
    blocks: list[int] = field(default_factory=list)
    block_hashes: list[int] = field(default_factory=list)
    num_cached: int = 0
    state_slot: int = -1
    stalled_until: int = 0
    spoils_next: Spoils = UNSPOILED
    drafts: list[int] = field(default_factory=list)
    logprobs: list[int | float] = field(default_factory=list)
    last_step: int = -1
    has_params: bool = False

    def __post_init__(self) -> None:
        """Set `has_params`: whether the sampling parameters need logits processing."""
        self.has_params = self.params != _NOTHING


@dataclass(slots=True, eq=False)
class PlanRow:
    """One request's part of a step: scheduled tokens, drafts and blocks; immutable.

    `scheduled` is its entry in the log. `num_computed` is the value before the step; `num_tokens_no_spec` counts the
    committed tokens and those in flight; `num_accepted` is the number of tokens sampled by the request's last processed
    row; nothing is sampled from a row to `discard`. `drafts` are the draft tokens that the host knows.
    """

    request: Request
    scheduled: ScheduledRow
    num_computed: int
    num_tokens_no_spec: int
    num_accepted: int
    discard: bool
    drafts: tuple[int, ...] = ()


class Plan(NamedTuple):
    """Scheduler output of one step: rows, number of draft tokens to propose, blocks to poison.

    `is_spoiled` says that an event corrupts logits or draft tokens of some row.
    """

    step: int
    k_step: int
    rows: tuple[PlanRow, ...]
    poisoned: tuple[int, ...] = ()
    is_spoiled: bool = False


class PlanWorkspace:
    """Mutable state of the scheduler while it plans one step.

    `returned` is the budget of removed rows.
    """

    def __init__(self) -> None:
        self.rows: list[PlanRow] = []
        self.skipped: list[tuple[int, SkipReason]] = []
        self.budget = self.returned = 0
        self.begin(0)

    def begin(self, budget: int) -> None:
        """Clear the state for the next step."""
        assert self.budget >= 0, f"the previous step exceeded its budget by {-self.budget} tokens"
        self.budget, self.returned = budget, 0
        self.preempted = self.has_prefill = self.is_spoiled = False
        self.rows.clear()
        self.skipped.clear()

    def take_spoils(self, request: Request, verifies: bool) -> Spoils:
        """Remove and return a request's pending corruption events, for the row being planned.

        The corruption of a draft token stays pending unless the row `verifies` some.
        """
        waiting = request.spoils_next
        assert waiting is not UNSPOILED, f"request {request.name} has no pending corruption"
        self.is_spoiled = True
        request.spoils_next = UNSPOILED if verifies or waiting.draft is None else Spoils(draft=waiting.draft)
        return waiting if verifies else waiting._replace(draft=None)

    @staticmethod
    def return_spoils(request: Request, taken: Spoils) -> None:
        """Give a withdrawn row's corruption events back to its request, unless it has newer ones."""
        newer = request.spoils_next
        if taken is not UNSPOILED:
            request.spoils_next = Spoils(
                newer.no_valid_token or taken.no_valid_token,
                newer.nan_logits or taken.nan_logits,
                newer.logit or taken.logit,
                newer.draft or taken.draft,
            )
            assert request.spoils_next != UNSPOILED, "corruptions of a removed row were lost"


def log_entry(plan: Plan, tick: int, skipped: Sequence[tuple[int, SkipReason]]) -> Scheduled:
    """Return the log entry of a scheduler output: its rows, and why each other request waits."""
    return Scheduled(plan.step, tick, plan.k_step, tuple(row.scheduled for row in plan.rows), tuple(skipped))
