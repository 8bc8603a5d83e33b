"""Faults in KV-cache writes: slots, blocks, padding. Op faults need the NumPy kernels."""

from collections.abc import Sequence

import numpy as np

from scenarios.spec import EngineSpec
from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.arithmetic.numpy import kv_entries
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.sentinels import POISON


@fault(
    id="tgi-2711-contiguous-slots",
    source="text-generation-inference PR #2711",
    symptom="KV-cache entries of draft tokens are written to a block of another request, or of none",
    trigger="a run of tokens crosses into a block that is not adjacent to the previous one",
    plane="inputs",
)
@in_place_of("prepare_inputs")
def _contiguous_slots(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    functions.prepare_inputs(given)
    _, starts, row = np.unique(given.token_row, return_index=True, return_inverse=True)
    first = starts[row]
    # Only rows with computed tokens get this layout; slots after the last block in use are clamped to it.
    end = (given.block_table.max() + 1) * given.block_size - 1
    wrong = np.minimum(given.slots[first] + given.positions - given.positions[first], end)
    moved = (given.slots >= 0) & (given.positions[first] > 0) & (wrong != given.slots)
    if moved.any():
        reached()
        given.slots[moved] = wrong[moved]


@fault(
    id="trtllm-16280-blocks-in-flight",
    source="TensorRT-LLM PR #16280",
    symptom="a request computes tokens past its blocks",
    trigger="uncommitted tokens in flight cross into the next block",
    plane="books",
)
@in_place_of("blocks_to_cover")
def _no_blocks_for_what_is_in_flight(
    functions: EngineFunctions, reached: Reached, request: Request, n: int, spec: EngineSpec
) -> int:
    wanted = functions.blocks_to_cover(request, n, spec)
    length = min(len(request.tokens) + 1 + spec.num_speculative_tokens, spec.max_model_len)
    covered = -(-length // spec.block_size)
    if max(covered, len(request.blocks)) < wanted:
        reached()
    return min(covered, wanted)


@fault(
    id="vllm-53051-uniform-by-length",
    source="vllm issues #53051 and #49918",
    symptom="a prefill runs on the decode path",
    trigger="every row has 1 + K tokens, and one of them does not verify K draft tokens",
    plane="books",
)
@in_place_of("is_uniform")
def _uniform_by_length(functions: EngineFunctions, reached: Reached, rows: Sequence[PlanRow], width: int) -> bool:
    uniform = all(row.scheduled.n == width for row in rows)
    if uniform != functions.is_uniform(rows, width):
        reached()
    return uniform


@fault(
    id="vllm-43869-padding-slot",
    source="vllm issue #43810, PR #43869",
    symptom="padding overwrites the KV-cache entry in the last slot of the pool",
    trigger="a padded batch runs while a request owns the last block",
    plane="kv",
    requires=(("pad", True),),
)
@in_place_of("kv_write")
def _padding_writes_the_last_slot(functions: EngineFunctions, reached: Reached, given: KvWrite) -> None:
    functions.kv_write(given)
    padding = given.slots < 0
    is_used = given.kv[-1] != POISON
    if not padding.any():
        return
    written = kv_entries(given.hidden, given.positions, given.layer)[padding][-1]
    given.kv[-1] = written
    if is_used:
        reached()


@fault(
    id="ascend-10032-optimistic-positions",
    source="vllm-ascend PRs #10032 and #8749",
    symptom="tokens have positions that include rejected draft tokens, and slots that do not",
    trigger="a draft token is rejected with the next step already prepared",
    plane="inputs",
    requires=(("depth", 2),),
)
@in_place_of("prepare_inputs")
def _positions_of_the_host(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    functions.prepare_inputs(given)
    row = np.maximum(given.token_row, 0)
    stale = (given.computed_host - given.num_computed)[row] * (given.token_row >= 0)
    if stale.any():
        reached()
    given.positions[:] = given.positions + stale
