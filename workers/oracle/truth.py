"""Expected (true) values of a request, a batch row, a step, and of KV blocks being freed."""

from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.sampling import SamplingParams
from workers.oracle.drafters import Drafts
from workers.oracle.logits_processing import Edges
from workers.oracle.model_values import ModelValues
from workers.oracle.prefix_cache import BlockContents, Prefixes
from workers.oracle.random_sampling import Proposal
from workers.record.log import ScheduledRow

# A scheduled row, and its request's `sched_computed`, `sched_placeholders` and `committed` before it.
Planned: TypeAlias = tuple[ScheduledRow, int, int, int]


@dataclass(slots=True, eq=False)
class Truth:
    """Expected state of one request; `incarnation` counts earlier requests of the same name.

    - `computed`: tokens with a correct state after every launched step.
    - `sched_computed`, `sched_placeholders`: the scheduler's expected counts.
    - `drop_before`: results of earlier epochs are discarded.
    - `slots`: the KV-cache slot of each position.
    - `deltas`: the drafter's KV entries that differ from `model_values`: at the end of a non-final prefill chunk, or in
      reused blocks.
    - `num_cached`: blocks that need not be registered.
    - `model_values`: the request's own if tokens depend on draft tokens; a preemption that drops tokens replaces it.
    - `draft_params`: sampling parameters of its draft tokens, if these are sampled.
    """

    index: int
    name: str
    incarnation: int
    model_values: ModelValues
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
    values_at_release: ModelValues | None = None

    @property
    def request_label(self) -> str:
        """The request name and incarnation, as printed in reports."""
        return f"{self.name}/{self.incarnation}"

    @property
    def commit_key(self) -> str:
        """Name of the request's values in reports: name/incarnation/epoch."""
        return f"{self.request_label}/{self.epoch}"

    def chunk_end(self, kept: int, committed: int) -> int:
        """Store and return the drafter's KV entry at the end of a non-final prefill chunk.

        The word is computed with the last known token as the next token.
        """
        drafter = self.model_values.drafter
        word = drafter.chunk_end(kept - 1, self.model_values.tokens[committed - 1])
        if word != drafter.words[kept - 1]:
            self.deltas[kept - 1] = word
        else:
            self.deltas.pop(kept - 1, None)
        return word

    def prefixes_until(self, length: int, numbers: Prefixes) -> list[int]:
        """Return the prefix ids of the request's full blocks below position `length`."""
        numbers.extend(self.prefixes, self.model_values.tokens, length)
        return self.prefixes[: length // numbers.block_size]


@dataclass(slots=True, eq=False)
class RowTruth:
    """Expected values of one batch row in one step: counts before it, and results; immutable.

    - Tokens at positions `computed` to `kept - 1` are kept; `base` is the position of the first verified token.
    - `drafts`: draft tokens as scheduled, NO_DRAFT included; `drawn`: the distributions of sampled ones.
    - `chunk_end`: the drafter's KV entry at the end of a discarded prefill chunk, computed with the last known token as
      the next token.
    - `status`: bits of the row's sampler status, see `state_oracle`. `drafted`: the draft tokens that it proposes.
    """

    truth: Truth
    model_values: ModelValues
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
        """The row's (request, epoch); each preemption begins a new epoch."""
        return self.row.request, self.row.epoch

    @property
    def commit_key(self) -> str:
        """Name of the row's results in reports: name/incarnation/epoch/step."""
        return f"{self.truth.request_label}/{self.row.epoch}/{self.row.step_in_epoch}"


@dataclass(slots=True, eq=False)
class StepTruth:
    """Expected values of one step: its rows in batch order and its padded shape; immutable.

    `poisoned` are the blocks that the step overwrites before it writes: given out by it, or lost to a reset before it.
    """

    step: int
    k_step: int
    requests: tuple[int, ...]
    rows: tuple[RowTruth, ...]
    num_rows: int
    num_tokens: int
    poisoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Expected KV cache of a request when its blocks are freed."""

    truth: Truth
    model_values: ModelValues
    commit_key: str
    kv: tuple[int, ...]
    drafter_kv: tuple[int, ...]
