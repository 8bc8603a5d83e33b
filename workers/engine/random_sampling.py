"""Random sampling: sampling parameters by row, and the ops of the rejection sampler."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from struct import pack, unpack

import numpy as np

from scenarios.sampling import SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod
from workers.engine.context import B, Context, Forward, SpecialRows
from workers.engine.input_batch import Row
from workers.engine.memory import SAMPLING_FIELDS, Array, View, device_array
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.logit_floors.definition import LogitFloors, workspace_length_of
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.residual_mass.definition import ResidualMass
from workers.kernels.sampler_stats.definition import SamplerStats
from workers.kernels.sampling_inputs.definition import SamplingInputs
from workers.kernels.verify_drafts import definition as verify_drafts
from workers.kernels.verify_drafts.definition import VerifyDrafts
from workers.lanes.lane import Buffer, Machine, Span

# A logit of 1.0, in the units in which a temperature divides logits.
ONE = 1 << 20
# Number of tries to sample a token of a sampled draft's residual before the residual is summed. The residual of a
# certain draft token is every other token, which needs no tries.
NUM_TRIES = 2
METHODS: dict[SamplingMethod, int] = {
    "strict": verify_drafts.STRICT,
    "standard": verify_drafts.STANDARD,
    "synthetic": verify_drafts.SYNTHETIC,
    "block": verify_drafts.BLOCK,
}
GREEDY = SamplingParams()
Call = Callable[[], None]


def float_bits(number: float) -> int:
    """Return the float32 bits of a non-negative number."""
    bits: int = unpack("i", pack("f", number))[0]
    return bits


def samples_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Return whether a request's draft tokens are sampled, not the drafter's argmax.

    Draft tokens that the host removes because of a grammar are not rejected: the next token is then sampled from the
    whole target distribution, not from the residual. Only for certain draft tokens does this make no difference.
    """
    return spec.draft_sampling == "probabilistic" and params.temperature > 0 and not params.grammar


def write_sampling(table: Array, params: Iterable[SamplingParams], spec: EngineSpec) -> None:
    """Write the sampling parameters of each row into a table [fields, rows]."""
    temperature, top_p, top_k, seed, point_mass = table
    point_mass.fill(1)
    for index, each in enumerate(params):
        temperature[index], top_p[index] = float_bits(each.temperature * ONE), float_bits(each.top_p)
        top_k[index], seed[index] = each.top_k, each.seed
        if samples_drafts(each, spec):
            point_mass[index] = 0


class RandomSampling:
    """Buffers and ops of random sampling; a step with greedy rows only runs none of the ops."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        spec, rows = context.spec, context.memory.rows_max
        k = spec.num_speculative_tokens
        num_tries = NUM_TRIES if spec.draft_sampling == "probabilistic" else 0
        self._rates = np.array([int(rate * RATE_STEPS) for rate in spec.rates] or [0] * k, dtype=np.int64)
        block_size = block_size_of(spec.vocab_size, spec.vocab_tile, spec.vocab_block)
        self._numbers: dict[str, Span | int] = {
            "method": METHODS[spec.sampling],
            "num_tries": num_tries,
            "logits_stride": spec.vocab_size,
            "draft_stride": spec.vocab_size,
            "block_size": block_size,
            "tile_size": spec.vocab_tile,
        }
        # Number of elements per row in each buffer.
        blocks = -(-spec.vocab_size // block_size)
        floats = {
            "temperature": 1,
            "top_p": 1,
            "floors": 1 + k,
            "floors_workspace": (1 + k) * workspace_length_of(spec.vocab_size),
            "accept_noise": k,
            "select_noise": (1 + k) * (1 + num_tries) * 4,
            "block_max": (1 + 2 * k) * blocks,
            "block_sum": (1 + 2 * k) * blocks,
            "tile_sum": (1 + k) * blocks * (block_size // spec.vocab_tile),
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

    def is_needed(self, named: SpecialRows) -> bool:
        """Return whether any row has a temperature, or acceptance is synthetic.

        Synthetic rates need it for all rows.
        """
        return bool(named.random) or self._context.spec.sampling == "synthetic"

    def stage(self, staged: Array, rows: Sequence[Row]) -> None:
        """Write the sampling parameters of each row to pinned memory.

        Padding rows are greedy.
        """
        memory = self._context.memory
        params = self._context.functions.row_params(rows)
        first, size = memory.layout.sampling, len(SAMPLING_FIELDS) * memory.rows_max
        table = staged[first : first + size].reshape(len(SAMPLING_FIELDS), -1)
        write_sampling(table, chain(params, repeat(GREEDY, memory.rows_max - len(rows))), self._context.spec)
        staged[first + size : first + size + len(self._rates)] = self._rates

    def launch(self, forward: Forward) -> None:
        """Enqueue the ops that sample a step, and copies of their inputs for the judges."""
        assert self.is_needed(forward.named), (
            f"step {forward.step}: all rows are greedy, so no sampling parameters were staged"
        )
        key = forward.view, bool(forward.named.limited)
        if key not in self._calls:
            self._calls[key] = self._bind(*key)
        calls, seen = self._calls[key]
        for call in calls:
            call()
        self._context.captures.sampling(forward.view, forward.step, forward.requests, seen)

    def _bind(self, view: View, is_limited: bool) -> tuple[Sequence[Call], Sequence[Span]]:
        """Return the sampler's op launches for one batch shape, and the buffer spans to capture.

        Reused at every step.
        """
        functions, lane, spec = self._context.functions, self._context.compute, self._context.spec
        spans = {name: self._buffers[name].span(0, view.num_rows * width) for name, width in self._widths.items()}
        spans |= {name: self._context.memory.sampling_field(name, view.num_rows) for name in SAMPLING_FIELDS}
        own = {**self._numbers, **spans, "rates": self._kept_rates}
        positions, status, drafts = spans["noise_positions"], spans["sampler_status"], view.scheduled_drafts
        slots, rates = view.state_slot, self._context.memory.staged_rates()

        def call(op: Callable[[B], None], arguments: type[B], **named: Span) -> Call:
            return partial(lane.launch, op, self._context.bound(arguments, view, own, **named))

        calls = [call(functions.sampling_inputs, SamplingInputs, rates_in_steps=rates, positions=positions)]
        if is_limited:
            calls.append(call(functions.logit_floors, LogitFloors, workspace=spans["floors_workspace"]))
        calls.append(call(functions.sampler_stats, SamplerStats, draft_slots=slots))
        # On a GPU it overlaps with the pass over the logits.
        calls.append(call(functions.draw_noise, DrawNoise, positions=positions))
        # Before the first draft token there is no residual to sum.
        if spec.sampling == "block" and spec.num_speculative_tokens > 1:
            calls.append(call(functions.residual_mass, ResidualMass, draft_slots=slots, drafts=drafts))
        calls.append(call(functions.verify_drafts, VerifyDrafts, draft_slots=slots, drafts=drafts, status=status))
        seen = (spans["temperature"], spans["top_p"], spans["top_k"], spans["seeds"], spans["noise_positions"])
        return calls, (*seen, spans["accept_noise"], spans["select_noise"], spans["sampler_status"])
