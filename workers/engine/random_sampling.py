"""Sampling by chance: what the host says about each row, and the ops that verify drafts against noise."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from struct import pack, unpack

import numpy as np

from scenarios.sampling import SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod
from workers.engine.context import Context, Forward, NamedRows
from workers.engine.input_batch import Row
from workers.engine.memory import SAMPLING_FIELDS, Array, View, device_array
from workers.kernels import verify_drafts
from workers.kernels.probabilities import TILE_SIZE, block_size_of
from workers.lanes.lane import Buffer, Function, Machine, Span

# A logit of 1.0, in the units in which a temperature divides logits.
ONE = 1 << 20
# How often a token from what drafts were drawn from leaves of the target is tried before it is added up. Of a certain
# draft it leaves every other token, which takes no tries.
NUM_TRIES = 2
METHODS: dict[SamplingMethod, int] = {
    "strict": verify_drafts.STRICT,
    "standard": verify_drafts.STANDARD,
    "synthetic": verify_drafts.SYNTHETIC,
    "block": verify_drafts.BLOCK,
}
GREEDY = SamplingParams()
Call = Callable[[], None]
STATS = ("block_max", "block_sum", "block_best", "tile_sum")


def bits_of(number: float) -> int:
    """Return the bits of a number, which is not negative, as float32."""
    bits: int = unpack("i", pack("f", number))[0]
    return bits


def draws_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Tell whether drafts of a request are drawn.

    What the host cuts off because a grammar does not allow it is never rejected: what follows comes from the whole
    target and not from what the draft left of it. That makes no difference for certain drafts alone.
    """
    return spec.draft_sampling == "probabilistic" and params.temperature > 0 and not params.grammar


def write_sampling(table: Array, params: Iterable[SamplingParams], spec: EngineSpec) -> None:
    """Write the fields of `memory.SAMPLING_FIELDS` into a table [fields, rows]."""
    temperature, top_p, top_k, seed, point_mass = table
    point_mass.fill(1)
    for index, each in enumerate(params):
        temperature[index], top_p[index] = bits_of(each.temperature * ONE), bits_of(each.top_p)
        top_k[index], seed[index] = each.top_k, each.seed
        if draws_drafts(each, spec):
            point_mass[index] = 0


class Chance:
    """The memory and ops of sampling by chance; a step in which every row is greedy enqueues nothing of it."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        spec, rows = context.spec, context.memory.rows_max
        k = spec.num_speculative_tokens
        self._method = METHODS[spec.sampling]
        self._num_tries = NUM_TRIES if spec.draft_sampling == "probabilistic" else 0
        self._rates = np.array([int(rate * RATE_STEPS) for rate in spec.rates] or [0] * k, dtype=np.int64)
        self._block_size = block_size_of(spec.vocab_size)
        # How many elements a row has in each buffer.
        blocks = -(-spec.vocab_size // self._block_size)
        floats = {
            "temperature": 1,
            "top_p": 1,
            "floors": 1 + k,
            "accept_noise": k,
            "select_noise": (1 + k) * (1 + self._num_tries) * 4,
            "block_max": (1 + 2 * k) * blocks,
            "block_sum": (1 + 2 * k) * blocks,
            "tile_sum": (1 + k) * blocks * (self._block_size // TILE_SIZE),
            "residual": k * blocks,
        }
        integers = {"noise_positions": 1, "block_best": (1 + k) * blocks, "sampler_status": 1}
        self._widths = floats | integers
        self._buffers: dict[str, Buffer] = {}
        for name, width in self._widths.items():
            array = device_array(rows * width, np.float32 if name in floats else np.int64)
            self._buffers[name] = machine.buffer(name, array, lane="compute")
        self._kept_rates = machine.buffer("rates", device_array(k, np.float32), lane="compute").all
        self._calls: dict[tuple[View, bool], tuple[Sequence[Call], Sequence[Span]]] = {}

    def is_needed(self, named: NamedRows) -> bool:
        """Tell whether a step with these rows is sampled by chance; rates hold for greedy rows too."""
        return bool(named.random) or self._context.spec.sampling == "synthetic"

    def stage(self, staged: Array, rows: Sequence[Row]) -> None:
        """Write how each row of a step is sampled into its staging slot; padding rows are greedy."""
        memory = self._context.memory
        params = self._context.parts.row_params(rows)
        first, size = memory.layout.sampling, len(SAMPLING_FIELDS) * memory.rows_max
        table = staged[first : first + size].reshape(len(SAMPLING_FIELDS), -1)
        write_sampling(table, chain(params, repeat(GREEDY, memory.rows_max - len(rows))), self._context.spec)
        staged[first + size : first + size + len(self._rates)] = self._rates

    def launch(self, forward: Forward) -> None:
        """Enqueue what samples a step, and capture what it went by."""
        key = forward.view, bool(forward.named.limited)
        if key not in self._calls:
            self._calls[key] = self._bind(*key)
        calls, seen = self._calls[key]
        for call in calls:
            call()
        self._context.captures.sampling(forward.view, forward.step, forward.requests, seen)

    def _bind(self, view: View, is_limited: bool) -> tuple[Sequence[Call], Sequence[Span]]:
        """Return the calls that sample a step of this shape, and what to capture: both are the same at every step."""
        context, parts, spec, size = self._context, self._context.parts, self._context.spec, self._block_size
        calls: list[Call] = []

        def launch(op: Function, *arguments: Span | int) -> None:
            calls.append(partial(context.compute.launch, op, *arguments))

        k, vocab_size = spec.num_speculative_tokens, spec.vocab_size
        own = {name: self._buffers[name].span(0, view.num_rows * width) for name, width in self._widths.items()}
        given = {name: context.memory.sampling_field(name, view.num_rows) for name in SAMPLING_FIELDS}
        noise = (own["accept_noise"], own["select_noise"])
        launch(parts.sampling_inputs, *self._inputs_of(view, own, given))
        launch(parts.draw_noise, given["seed"], own["noise_positions"], *noise, k, self._num_tries)
        if is_limited:
            limits, floors = (given["top_k"], own["top_p"], view.num_drafts), own["floors"]
            launch(parts.logit_floors, view.logits, own["temperature"], *limits, floors, k, vocab_size, vocab_size)
        certain, stats = given["point_mass"], [own[name] for name in STATS]
        # Line by line of logits, and of the logits of drafts, which are none where all are certain.
        drawn_from = (context.memory.draft_logits.all, view.state_slot)
        lines = (view.logits, *drawn_from, own["floors"], own["temperature"])
        sizes = (k, vocab_size, vocab_size, vocab_size, size)
        launch(parts.sampler_stats, *lines, view.num_drafts, certain, *stats, *sizes, TILE_SIZE)
        drafts = (view.scheduled_drafts, view.num_drafts)
        # Nothing is left to add up before a single draft.
        if spec.sampling == "block" and k > 1:
            sums = (own["block_max"], own["block_sum"], own["residual"])
            launch(parts.residual_mass, *lines, *drafts, certain, *sums, *sizes)
        rows = (*drafts, view.num_scheduled, view.invalid, certain, self._kept_rates)
        found = (view.sampled, own["sampler_status"])
        method = (self._method, self._num_tries)
        launch(parts.verify_drafts, *lines, *rows, *stats, own["residual"], *noise, *found, *method, *sizes, TILE_SIZE)
        seen = (own["temperature"], own["top_p"], given["top_k"], given["seed"], own["noise_positions"])
        return calls, (*seen, own["sampler_status"])

    def _inputs_of(self, view: View, own: Mapping[str, Span], given: Mapping[str, Span]) -> tuple[Span | int, ...]:
        """Return the arguments of the op that turns the host's table into what the other ops take."""
        return (
            given["temperature"],
            given["top_p"],
            self._context.memory.staged_rates(),
            view.num_computed,
            view.num_scheduled,
            view.num_drafts,
            own["temperature"],
            own["top_p"],
            self._kept_rates,
            own["noise_positions"],
            own["floors"],
            self._context.spec.num_speculative_tokens,
        )
