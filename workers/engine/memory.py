"""Buffers of one engine, on the device and in pinned host memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT
from workers.kernels.process_logits.definition import line_of
from workers.kernels.sentinels import PAD_SLOT, POISON
from workers.lanes.lane import Buffer, Machine, Span

FIELDS = (
    "computed_host",
    "num_scheduled",
    "num_drafts",
    "prev_position",
    "prev_num_scheduled",
    "prev_num_drafts",
    "state_slot",
    "discard",
    "backup",
    "accepted_host",
    "invalid",
    "query_start",
    "taken_over",
)

# A step reads the counts of the previous step in that step's row order, and writes its own to the other half, so rows
# may move freely.
NUM_COMPUTED_RING = 2

Array: TypeAlias = NDArray[Any]
Allocate: TypeAlias = Callable[[str, int], Buffer]


# Groups of batch rows that need special sampling.
NAMED = ("processed", "spoiled", "logprobs", "grammar")
# Sampling parameters of each row, in a step with random sampling; the first two as float32 bits. A row with point_mass
# has certain (not sampled) draft tokens.
SAMPLING_FIELDS = ("temperature_bits", "top_p_bits", "top_k", "seeds", "point_mass")


def device_array(length: int, dtype: type = np.int64, fill: float = 0) -> NDArray[Any]:
    """Allocate a flat array for a device buffer, filled with a value."""
    array: NDArray[Any] = np.empty(length, dtype)
    array.fill(fill)
    return array


def capture_size(num_rows: int) -> int:
    """Return a number of rows padded to a power of two, like a CUDA graph size."""
    return 1 << (num_rows - 1).bit_length()


class Layout:
    """Offsets of a step's inputs in its pinned staging buffer.

    In order: fields of rows; token ids; the row of each token; the block table; blocks that get a new owner; the rows
    of each group in NAMED; draft tokens from the host (by rows of the previous step); fields of random sampling; rates
    of synthetic acceptance.
    """

    def __init__(
        self, rows_max: int, tokens_max: int, max_blocks: int, num_blocks: int, drafts: int, rates: int
    ) -> None:
        self.max_blocks = max_blocks
        self.tokens = len(FIELDS) * rows_max
        self.token_row = self.tokens + tokens_max
        self.block_table = self.token_row + tokens_max
        self.fresh_blocks = self.block_table + rows_max * max_blocks
        self.special_rows = self.fresh_blocks + num_blocks
        self.host_drafts = self.special_rows + len(NAMED) * rows_max
        self.sampling = self.host_drafts + drafts
        self.rates = self.sampling + len(SAMPLING_FIELDS) * rows_max
        self.length = self.rates + rates


@dataclass(frozen=True, slots=True)
class Staging:
    """One step's pinned buffers, to which the host writes its inputs; steps use them in turn."""

    inputs: Buffer
    scripts: Buffer
    lines: Buffer


class Memory:
    """All device and pinned buffers of an engine, by name.

    `rows_max` and `tokens_max` include padding. The staging and output rings have `depth` slots: before a slot is
    reused, its last step has been processed. The counts ring has two slots: the counts of a step are read right after
    the launch of the next step. Accepted counts on the host are read before that launch and need no ring.
    """

    def __init__(self, spec: EngineSpec, machine: Machine) -> None:
        self._spec = spec
        k = spec.num_speculative_tokens
        self.rows_max = rows = capture_size(spec.max_num_seqs) if spec.pad else spec.max_num_seqs
        multiple = spec.token_multiple
        self.tokens_max = tokens = max(-(-spec.max_num_batched_tokens // multiple) * multiple, rows * (1 + k))
        self.max_blocks = spec.max_blocks_per_request
        drafts_on_host = TRAITS[spec.drafter].goes_through_host
        self.layout = Layout(rows, tokens, self.max_blocks, spec.num_blocks, rows * k if drafts_on_host else 0, k)
        script = spec.max_num_seqs * spec.max_model_len
        self.line_length = line_of(spec.vocab_size).tokens + spec.max_model_len
        cache = spec.num_blocks * spec.block_size
        self._views: dict[tuple[int, int, int], View] = {}

        def integers(name: str, length: int) -> Buffer:
            return machine.buffer(name, device_array(length))

        def scratch(name: str, length: int) -> Buffer:
            return machine.buffer(name, device_array(length), lane="compute")

        def words(name: str, length: int) -> Buffer:
            return machine.buffer(name, device_array(length, np.uint64, POISON), lane="compute")

        self._rings(spec, machine, script)
        self.inputs = machine.buffer("inputs", device_array(self.layout.length), whole=True)
        self.script = integers("script", script)
        self.lines = integers("lines", spec.max_num_seqs * self.line_length)
        self.num_computed = scratch("num_computed", NUM_COMPUTED_RING * rows)
        self.seq_lens = scratch("seq_lens", rows)
        self.positions = scratch("positions", tokens)
        self.slots = scratch("slots", tokens)
        self.input_ids = scratch("input_ids", tokens)
        self.scheduled_drafts = scratch("scheduled_drafts", rows * k)
        self.accepted_read = scratch("accepted_read", rows)
        self.sampled = integers("sampled", rows * (1 + k))
        # Without a copy to the host, only the compute lane uses it.
        self.accepted = (integers if spec.accepted_counts == "host" else scratch)("accepted", rows)
        self.slot_accepted = scratch("slot_accepted", spec.max_num_seqs)
        self.next_tokens = scratch("next_tokens", rows)
        self.valid = integers("valid", rows)
        self.token_index = scratch("token_index", rows)
        self.draft_tokens = scratch("draft_tokens", rows * k)
        staged = self.inputs.span(self.layout.host_drafts, self.layout.sampling, "host_drafts")
        self.prev_drafts = staged if drafts_on_host else self.draft_tokens.all
        self.raw = words("raw", rows * k)
        self.hidden = words("hidden", tokens)
        self.attended = words("attended", tokens)
        self.drafter_hidden = words("drafter_hidden", tokens)
        self.kv = words("kv", cache)
        self.drafter_kv = words("drafter_kv", cache)
        self._drafter_memory(spec, rows, tokens, words, scratch)
        self._chain_memory(spec, rows, machine)
        self.states = words("states", spec.max_num_seqs * (2 + k))
        self.conv = words("conv", spec.max_num_seqs * (spec.conv_width + k))
        kept = spec.num_blocks if spec.is_aligned else 0
        self.block_states = words("block_states", kept)
        self.block_windows = words("block_windows", kept * (spec.conv_width - 1))
        logits = device_array(rows * (1 + k) * spec.vocab_size, np.float32)
        self.logits = machine.buffer("logits", logits, lane="compute")

    def _drafter_memory(self, spec: EngineSpec, rows: int, tokens: int, words: Allocate, integers: Allocate) -> None:
        """Allocate the buffers that the specified drafter needs.

        Buffers that this drafter does not need are empty.
        """
        k, traits, is_limited = spec.num_speculative_tokens, TRAITS[spec.drafter], spec.drafter_max_len > 0
        slots = spec.max_num_seqs if traits.has_model and spec.layers == "hybrid" else 0
        self.drafter_slots = integers("drafter_slots", tokens if is_limited else 0)
        self.drafter_attended = words("drafter_attended", tokens if traits.has_model else 0)
        self.own = integers("own", rows * k if traits.has_model else 0)
        self.drafter_states = words("drafter_states", slots * (2 + k))
        self.drafter_conv = words("drafter_conv", slots * (spec.conv_width + k))
        self.carried = words("carried", spec.max_num_seqs if traits.carries_hidden_state else 0)

    def _chain_memory(self, spec: EngineSpec, rows: int, machine: Machine) -> None:
        """Allocate slot mapping, noise and logits buffers for successive draft tokens.

        No draft token has a slot before the first step. Logits stay in a state slot until they are verified.
        """
        mapping = rows * spec.num_speculative_tokens if TRAITS[spec.drafter].caches_drafts else 0
        self.draft_slots = machine.buffer("draft_slots", device_array(mapping, fill=PAD_SLOT), lane="compute")
        drawn = spec.num_speculative_tokens if spec.draft_sampling == "probabilistic" else 0
        lines = device_array(spec.max_num_seqs * drawn * spec.vocab_size, np.float32, np.nan)
        self.draft_logits = machine.buffer("draft_logits", lines, lane="compute")
        noise = device_array(rows * spec.num_speculative_tokens * NUMBERS_PER_DRAFT, np.float32)
        self.draft_noise = machine.buffer("draft_noise", noise, lane="compute")

    def _rings(self, spec: EngineSpec, machine: Machine, script: int) -> None:
        """Allocate the pinned host buffers that successive steps use in turn (rings)."""
        rows = self.rows_max

        def ring(name: str, kind: str, length: int) -> list[Buffer]:
            slots = range(ring_size(kind, spec))
            return [machine.buffer(f"{name}[{slot}]", device_array(length), pinned=True) for slot in slots]

        inputs, scripts = ring("staging", "staging", self.layout.length), ring("staging_scripts", "staging", script)
        lines = ring("staging_lines", "staging", spec.max_num_seqs * self.line_length)
        self.staging = [Staging(*slot) for slot in zip(inputs, scripts, lines, strict=True)]
        self.outputs = ring("output", "output", rows * (1 + spec.num_speculative_tokens))
        self.counts = ring("counts", "counts", rows)
        self.accepted_counts = machine.buffer("accepted_counts", device_array(rows), pinned=True)

    def special_rows(self, name: str, count: int) -> Span:
        """Return the part of the device's input buffer with the row indexes of one group of rows."""
        start = self.layout.special_rows + NAMED.index(name) * self.rows_max
        return self.inputs.span(start, start + count, f"{name}_rows")

    def sampling_field(self, name: str, num_rows: int) -> Span:
        """Return the part of the device's input buffer that holds one sampling parameter by row."""
        start = self.layout.sampling + SAMPLING_FIELDS.index(name) * self.rows_max
        return self.inputs.span(start, start + num_rows, name)

    def staged_rates(self) -> Span:
        """Return the part of the device's input buffer that holds the synthetic acceptance rates."""
        return self.inputs.span(self.layout.rates, self.layout.length, "rates_in_steps")

    def view(self, step: int, num_rows: int, num_tokens: int) -> "View":
        """Return the buffer spans for a padded batch shape (rows, tokens) in a step."""
        key = (step % NUM_COMPUTED_RING, num_rows, num_tokens)
        found = self._views.get(key)
        if found is None:
            assert 0 < num_rows <= self.rows_max, f"step {step}: {num_rows} rows, allowed are 1 to {self.rows_max}"
            other = self._views.get((1 - key[0], num_rows, num_tokens))
            shape = other.shape if other is not None else ShapeView(self, self._spec, num_rows, num_tokens)
            found = self._views[key] = View(self, shape, key[0])
        return found


# A step uses slot `step % size` of each ring. At depth 2:
#
#   step                     0 1 2 3   a slot is reused when
#   staging, D slots         0 1 0 1   the step D before has been processed: its copies have been read
#   output, D slots          0 1 0 1   the same
#   counts, 2 slots          0 1 0 1   the next step has been launched: the host reads them right after that
#   num_computed, 2 halves   0 1 0 1   on the device: a step reads the other half, in the previous step's row
#                                      order, and writes its own
#
# At depth 1 staging and output have one slot; the other two are the same.
def ring_size(ring: str, spec: EngineSpec) -> int:
    """Return how many buffers a ring has: one per step in flight, or two for counts."""
    return 2 if ring == "counts" else spec.depth


class ShapeView:
    """Buffer spans of one padded batch shape (rows, tokens) that do not change between steps.

    `built` caches objects that are built from the view, by the function that builds them.
    """

    def __init__(self, memory: Memory, spec: EngineSpec, num_rows: int, num_tokens: int) -> None:
        k, layout = spec.num_speculative_tokens, memory.layout

        def field(name: str, length: int = num_rows) -> Span:
            start = FIELDS.index(name) * memory.rows_max
            return memory.inputs.span(start, start + length, name)

        self.built: dict[Any, Any] = {}
        self.num_rows, self.num_tokens = num_rows, num_tokens
        self.computed_host = field("computed_host")
        self.num_scheduled = field("num_scheduled")
        self.num_drafts = field("num_drafts")
        self.prev_position = field("prev_position")
        self.prev_num_scheduled = field("prev_num_scheduled", memory.rows_max)
        self.prev_num_drafts = field("prev_num_drafts", memory.rows_max)
        self.state_slot = field("state_slot")
        self.discard = field("discard")
        self.backup = field("backup")
        self.accepted_host = field("accepted_host")
        self.invalid = field("invalid")
        self.query_start = field("query_start")
        self.taken_over = field("taken_over")
        self.host_ids = memory.inputs.span(layout.tokens, layout.tokens + num_tokens, "host_ids")
        self.token_row = memory.inputs.span(layout.token_row, layout.token_row + num_tokens, "token_row")
        table = layout.block_table
        self.block_table = memory.inputs.span(table, table + num_rows * memory.max_blocks, "block_table")
        self.seq_lens = memory.seq_lens.span(0, num_rows)
        self.positions = memory.positions.span(0, num_tokens)
        self.slots = memory.slots.span(0, num_tokens)
        self.input_ids = memory.input_ids.span(0, num_tokens)
        self.scheduled_drafts = memory.scheduled_drafts.span(0, num_rows * k)
        self.accepted_read = memory.accepted_read.span(0, num_rows)
        self.sampled = memory.sampled.span(0, num_rows * (1 + k))
        self.logits = memory.logits.span(0, num_rows * (1 + k) * spec.vocab_size)
        self.accepted = memory.accepted.span(0, num_rows)
        self.next_tokens = memory.next_tokens.span(0, num_rows)
        self.valid = memory.valid.span(0, num_rows)
        self.token_index = memory.token_index.span(0, num_rows)
        self.draft_tokens = memory.draft_tokens.span(0, num_rows * k)
        self.draft_noise = memory.draft_noise.span(0, num_rows * k * NUMBERS_PER_DRAFT)
        self.raw = memory.raw.span(0, num_rows * k)
        self.hidden = memory.hidden.span(0, num_tokens)
        self.attended = memory.attended.span(0, num_tokens)
        self.drafter_hidden = memory.drafter_hidden.span(0, num_tokens)
        self.drafter_slots = memory.drafter_slots.span(0, num_tokens) if spec.drafter_max_len else self.slots
        traits = TRAITS[spec.drafter]
        self.draft_slots = memory.draft_slots.span(0, num_rows * k if traits.caches_drafts else 0)
        self.drafter_attended = memory.drafter_attended.span(0, num_tokens if traits.has_model else 0)
        self.own = memory.own.span(0, num_rows * k if traits.has_model else 0)


class View(ShapeView):
    """Buffer spans of one padded batch shape, including this step's half of `num_computed`.

    `shape` has the spans that are the same in every step: arguments that need only these are shared objects.
    """

    def __init__(self, memory: Memory, shape: ShapeView, slot: int) -> None:
        vars(self).update(vars(shape))
        self.built = {}
        self.shape = shape
        start, other = slot * memory.rows_max, (1 - slot) * memory.rows_max
        self.num_computed = memory.num_computed.span(start, start + self.num_rows)
        self.prev_num_computed = memory.num_computed.span(other, other + memory.rows_max, "prev_num_computed")
