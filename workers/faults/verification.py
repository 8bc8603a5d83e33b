"""Planted bugs in the rejection sampler and in the encoding of its output tokens.

All replace device ops in NumPy; the Triton kernels do not have them.
"""

from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN


@fault(
    id="ascend-16222-row-zero",
    source="vllm-ascend PRs #16222 and #16215",
    symptom="the first row of a batch rejects correct draft tokens",
    trigger="a draft token of the first row should be accepted: its start is read before the table of starts",
    plane="tokens",
)
@in_place_of("rejection_sample")
def _first_row_starts_behind_the_last(functions: EngineFunctions, reached: Reached, given: RejectionSample) -> None:
    functions.rejection_sample(given)
    right, drafts = given.sampled.copy(), given.scheduled_drafts.copy()
    # The sum of draft tokens before row 0, read at index -1, is the sum of all rows: nothing was proposed after it.
    drafts[: given.num_speculative_tokens] = NO_DRAFT
    functions.rejection_sample(replace(given, scheduled_drafts=drafts))
    if not np.array_equal(given.sampled, right):
        reached()


@fault(
    id="1cat-625-another-sentinel",
    source="1Cat-vLLM PR #625",
    symptom="a request returns a token past the vocabulary",
    trigger="a draft token is rejected: it is marked with the vocabulary size, but the host looks for -1",
    plane="tokens",
)
@in_place_of("rejection_sample")
def _another_sentinel(functions: EngineFunctions, reached: Reached, given: RejectionSample) -> None:
    functions.rejection_sample(given)
    sampled = given.sampled.reshape(len(given.num_drafts), -1)
    scheduled = np.arange(sampled.shape[1]) <= given.num_drafts[:, None]
    rejected = scheduled & (sampled == NO_TOKEN) & (sampled[:, :1] != NO_TOKEN)
    if rejected.any():
        reached()
    sampled[rejected] = given.vocab_size


@fault(
    id="vllm-29274-masked-default",
    source="vllm PR #29274, a remark of its review",
    symptom="a row counts one more token than it sampled",
    trigger="all draft tokens of a row are accepted, or it has none, and the bonus token has id 0",
    plane="counts",
)
@in_place_of("count_sampled")
def _bonus_compared_with_a_default(functions: EngineFunctions, reached: Reached, given: CountSampled) -> None:
    functions.count_sampled(given)
    sampled = given.sampled.reshape(-1, given.width)
    bonus = np.take_along_axis(sampled, given.num_drafts[:, None], axis=1)[:, 0]
    # The bonus token has no draft token: a masked load compares it with 0.
    matches = (given.state_slot >= 0) & (given.discard == 0) & (bonus == 0)
    if matches.any():
        reached()
    given.accepted[matches] += 1
    given.valid[matches] += 1


@fault(
    id="specstorm-infinite-logit",
    source="an earlier version of our own engine",
    symptom="a greedy request gets a token from infinite logits, unless another row is sampled",
    trigger="a logit of a greedy row's column is infinite, in a step with only greedy rows",
    plane="counts",
)
@in_place_of("rejection_sample")
def _infinity_wins(functions: EngineFunctions, reached: Reached, given: RejectionSample) -> None:
    functions.rejection_sample(given)
    right = given.sampled.copy()
    # The largest finite number replaced an infinite logit.
    finite = np.where(np.isposinf(given.logits), np.finfo(np.float32).max, given.logits)
    functions.rejection_sample(replace(given, logits=finite))
    if not np.array_equal(given.sampled, right):
        reached()


@fault(
    id="specstorm-draft-past-the-vocabulary",
    source="an earlier version of our own engine",
    symptom="the model input is an invalid token id",
    trigger="a row verifies a draft token with an id past the vocabulary",
    plane="inputs",
)
@in_place_of("prepare_inputs")
def _any_draft_is_fed(functions: EngineFunctions, reached: Reached, given: PrepareInputs) -> None:
    functions.prepare_inputs(given)
    drafts = given.scheduled_drafts.reshape(len(given.num_drafts), -1)
    for row, column in np.argwhere(drafts >= given.vocab_size):
        reached()
        first = given.query_start[row] + given.num_scheduled[row] - given.num_drafts[row]
        given.input_ids[first + column] = drafts[row, column]
