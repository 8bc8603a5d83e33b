"""Faults in logprobs: wrong logits, columns or rows. The one in a device op exists on the NumPy tier."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workers.engine.parts import Parts
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.logprobs.definition import FlattenLogprobs
from workers.lanes.lane import Span


@fault(
    id="vllm-30846-raw-after-processing",
    source="vllm PR #30846",
    symptom="raw logprobs are those of logits after penalties and masks",
    trigger="one request wants raw logprobs, it or another has its logits processed",
    plane="logits",
    requires=(("logprobs_mode", "raw"),),
)
@in_place_of("logits_of")
def _raw_after_processing(parts: Parts, reached: Reached, logits: Span, kept: Span) -> Span:
    reached()
    return logits


@fault(
    id="vllm-37238-every-column",
    source="vllm PR #37238, a remark of its review",
    symptom="a request gets logprobs of tokens that an earlier step left behind the sampled ones of another",
    trigger="two requests want logprobs, and a draft of the first is rejected",
    plane="logits",
)
@in_place_of("flatten_logprobs")
def _every_column(parts: Parts, reached: Reached, given: FlattenLogprobs) -> None:
    # What is written behind the last row is never read.
    if np.any(given.num_sampled[given.rows[:-1]] < given.width):
        reached()
    parts.flatten_logprobs(replace(given, num_sampled=np.full_like(given.num_sampled, given.width)))


@fault(
    id="tpu-2799-live-rows",
    source="tpu-inference PR #2799",
    symptom="tokens come without logprobs",
    trigger="the batch has fewer rows when the logprobs of the step before land",
    plane="logits",
    requires=(("depth", 2),),
)
@in_place_of("logprob_rows")
def _live_rows(parts: Parts, reached: Reached, rows: Sequence[int], num_rows_now: int) -> Sequence[int]:
    here = [row for row in rows if row < num_rows_now]
    if len(here) < len(rows):
        reached()
    return here
