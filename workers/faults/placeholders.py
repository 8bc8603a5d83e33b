"""Faults with prefill chunks and placeholders (counts for tokens not sampled yet).

Faults in device ops exist only on the NumPy tier.
"""

from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.prepare_inputs.definition import PrepareInputs


@fault(
    id="vllm-26231-chunks-count",
    source="vllm PR #26231",
    symptom="a prefill chunk that is not the last counts a valid token",
    trigger="such a chunk runs in a batch without draft tokens",
    plane="counts",
)
@in_place_of("count_sampled")
def _chunks_count_without_drafts(functions: EngineFunctions, reached: Reached, given: CountSampled) -> None:
    if given.num_drafts.any() or not given.discard.any():
        functions.count_sampled(given)
        return
    reached()
    functions.count_sampled(replace(given, discard=np.zeros_like(given.discard)))


@fault(
    id="vllm-30618-drafts-on-a-chunk",
    source="vllm PR #30618",
    symptom="a request verifies draft tokens together with the last prefill chunk of its prompt",
    trigger="the token budget cuts a prompt into chunks, and is not used up by the last one",
    plane="books",
)
@in_place_of("drafts_after")
def _drafts_after_a_chunk(functions: EngineFunctions, reached: Reached, row: PlanRow, k_step: int) -> int:
    if row.discard and k_step:
        reached()
    return k_step


@fault(
    id="vllm-46899-placeholder-input",
    source="vllm PRs #46899 and #40768",
    symptom="the model input is the placeholder of a draft token that was not proposed",
    trigger="a request with draft tokens to verify was left out of the previous step, or joins as a padded decode",
    plane="inputs",
)
@in_place_of("prepare_inputs")
def _placeholders_are_embedded(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    functions.prepare_inputs(given)
    k = given.num_speculative_tokens
    (rows,) = np.nonzero((given.prev_position < 0) & (given.num_drafts > 0))
    if not len(rows):
        return
    reached()
    first = (given.query_start + given.num_scheduled - given.num_drafts)[rows]
    wanted = np.arange(k) < given.num_drafts[rows][:, None]
    index = (first[:, None] + np.arange(k))[wanted]
    given.input_ids[index] = given.host_ids[index]
