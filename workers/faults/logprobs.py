"""Faults in logprobs: taken from wrong logits, columns or rows.

The fault in a device op exists only on the NumPy tier.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.logprobs.definition import FlattenLogprobs
from workers.lanes.lane import Span


@fault(
    id="vllm-30846-raw-after-processing",
    source="vllm PR #30846",
    symptom="raw logprobs are computed from logits after penalties and masks",
    trigger="one request needs raw logprobs, and its or another request's logits are processed",
    plane="logits",
    requires=(("logprobs_mode", "raw"),),
)
@in_place_of("logits_for_logprobs")
def _raw_after_processing(functions: EngineFunctions, reached: Reached, logits: Span, kept: Span) -> Span:
    reached()
    return logits


@fault(
    id="vllm-37238-every-column",
    source="vllm PR #37238, a remark of its review",
    symptom="a request gets stale logprobs of an earlier step, after another request's sampled tokens",
    trigger="two requests need logprobs, and a draft token of the first is rejected",
    plane="logits",
)
@in_place_of("flatten_logprobs")
def _every_column(functions: EngineFunctions, reached: Reached, given: FlattenLogprobs) -> None:
    # Nothing reads the values after the last row.
    if np.any(given.num_sampled[given.rows[:-1]] < given.width):
        reached()
    functions.flatten_logprobs(replace(given, num_sampled=np.full_like(given.num_sampled, given.width)))


@fault(
    id="tpu-2799-live-rows",
    source="tpu-inference PR #2799",
    symptom="output tokens have no logprobs",
    trigger="the batch has fewer rows when the previous step's logprobs arrive",
    plane="logits",
    requires=(("depth", 2),),
)
@in_place_of("logprob_rows")
def _live_rows(functions: EngineFunctions, reached: Reached, rows: Sequence[int], num_rows_now: int) -> Sequence[int]:
    here = [row for row in rows if row < num_rows_now]
    if len(here) < len(rows):
        reached()
    return here
