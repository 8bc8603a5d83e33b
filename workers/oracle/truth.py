"""Expected state of a request, a row, a step, and of caches when blocks are freed: values of the state oracle."""

from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.sampling import SamplingParams
from workers.oracle.drafters import Drafts
from workers.oracle.logits_processing import Edges
from workers.oracle.prefix_cache import BlockContents, Prefixes
from workers.oracle.random_sampling import Proposal
from workers.oracle.tape import Tape
from workers.record.log import ScheduledRow

# A row that was scheduled, and its request's `sched_computed`, `sched_placeholders` and `committed` before that.
Planned: TypeAlias = tuple[ScheduledRow, int, int, int]


@dataclass(slots=True, eq=False)
class Truth:
    """Expected state of one request; `incarnation` counts earlier requests of its name.

    `computed` is the number of tokens whose state is right after every launched step, `sched_computed` and
    `sched_placeholders` what the scheduler must believe. Results of epochs below `drop_before` are thrown away. `slots`
    maps a position to its cache slot. `deltas` holds the drafter's cache words that differ from the tape's: those at
    the end of a chunk that was not the last, and those taken over. `num_cached` blocks need not be registered.
    Where tokens depend on drafts the tape is the request's own; a preemption that drops tokens brings another one.
    `draft_params` are those by which its drafts are drawn, if they are.
    """

    index: int
    name: str
    incarnation: int
    tape: Tape
    script: list[int]
    num_prompt: int
    limit: int
    stop: frozenset[int]
    committed: int
    params: SamplingParams
    num_logprobs: int
    grammar: Edges
    priority: int
    draft_params: SamplingParams | None = None
    epoch: int = 0
    drop_before: int = 0
    running: bool = False
    finish_reason: str | None = None
    computed: int = 0
    computed_at_release: int = 0
    sched_computed: int = 0
    sched_placeholders: int = 0
    accepted: int = 0
    drafts: list[int] = field(default_factory=list)
    drawn: tuple[Proposal, ...] = ()
    blocks: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    state_slot: int = -1
    prefixes: list[int] = field(default_factory=list)
    num_cached: int = 0
    inherited: list[BlockContents] = field(default_factory=list)
    deltas: dict[int, int] = field(default_factory=dict)
    deltas_at_release: dict[int, int] = field(default_factory=dict)
    tape_at_release: Tape | None = None

    @property
    def who(self) -> str:
        """Request and incarnation, as reports show them."""
        return f"{self.name}/{self.incarnation}"

    @property
    def commit(self) -> str:
        """Commit key of a value that belongs to no row, as reports show it: request/incarnation/epoch."""
        return f"{self.who}/{self.epoch}"

    def chunk_end(self, kept: int, committed: int) -> int:
        """Return and keep the drafter's word at the end of a discarded chunk: the last known token follows it there."""
        drafter = self.tape.drafter
        word = drafter.chunk_end(kept - 1, self.tape.tokens[committed - 1])
        if word != drafter.words[kept - 1]:
            self.deltas[kept - 1] = word
        else:
            self.deltas.pop(kept - 1, None)
        return word

    def prefixes_until(self, length: int, numbers: Prefixes) -> list[int]:
        """Return the numbers of all prefixes that end with a full block below a position."""
        numbers.extend(self.prefixes, self.tape.tokens, length)
        return self.prefixes[: length // numbers.block_size]


@dataclass(slots=True, eq=False)
class RowTruth:
    """Expected values of one row of one step: counts before it, and its outcome. Never changed.

    Tokens at positions `computed` to `kept - 1` stay; `base` is the position of the token that is verified first;
    `drafts` are as scheduled, NO_DRAFT included, and `drawn` says what those of them were drawn from that are not
    certain. `chunk_end` is the drafter's cache word at the end of a discarded chunk, whose next token is the last one
    known. `status` has the bits of the sampler's status of a row: see `verified_drafts`. `drafted` is what it proposes.
    """

    truth: Truth
    tape: Tape
    row: ScheduledRow
    computed: int
    base: int
    kept: int
    valid: int
    discard: bool
    accepted_read: int
    accepted: int
    next_token: int
    sched_computed: int
    no_spec: int
    backup: int
    slots: list[int]
    drafts: list[int]
    drawn: tuple[Proposal, ...]
    status: int
    chunk_end: int
    drafted: Drafts

    @property
    def key(self) -> tuple[int, int]:
        """Its request and epoch."""
        return self.row.request, self.row.epoch

    @property
    def commit(self) -> str:
        """The commit key, as reports show it: request/incarnation/epoch/step."""
        return f"{self.truth.who}/{self.row.epoch}/{self.row.step_in_epoch}"


@dataclass(slots=True, eq=False)
class StepTruth:
    """Expected values of one step: rows in row order, their requests, and its padded shape. Never changed."""

    step: int
    k_step: int
    requests: tuple[int, ...]
    rows: tuple[RowTruth, ...]
    num_rows: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Release:
    """Expected caches of a request when its blocks are freed."""

    truth: Truth
    tape: Tape
    commit: str
    kv: tuple[int, ...]
    drafter_kv: tuple[int, ...]
