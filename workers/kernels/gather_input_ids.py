"""Put the tokens together that this step feeds to the model."""

import numpy as np

from workers.kernels.arithmetic import arange
from workers.kernels.signature import NO_DRAFT, In, Out


def gather_input_ids(
    host_ids: In,
    next_tokens: In,
    draft_tokens: In,
    prev_position: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    input_ids: Out,
    scheduled_drafts: Out,
    num_speculative_tokens: int,
) -> None:
    """Overlay the host's token ids with the last sampled token and the drafts of each row's previous row.

    Shapes: host_ids, input_ids [num_tokens]; next_tokens [rows_max] and draft_tokens [rows_max * K] by previous row;
    prev_position, query_start, num_scheduled, num_drafts [num_rows]; scheduled_drafts [num_rows * K].
    scheduled_drafts keeps NO_DRAFT where no draft was proposed; input_ids are clamped to valid ids for the model.
    """
    k = num_speculative_tokens
    num_rows = len(prev_position)
    np.maximum(host_ids, 0, out=input_ids)
    drafts = scheduled_drafts.reshape(num_rows, k)
    drafts[:] = NO_DRAFT
    (rows,) = (prev_position >= 0).nonzero()
    if not len(rows):
        return
    previous = prev_position[rows]
    first = (query_start + num_scheduled - num_drafts)[rows]
    input_ids[first - 1] = next_tokens[previous]
    if k:
        wanted = arange(k) < num_drafts[rows][:, None]
        proposed = np.where(wanted, draft_tokens.reshape(-1, k)[previous], NO_DRAFT)
        drafts[rows] = proposed
        input_ids[(first[:, None] + arange(k))[wanted]] = np.maximum(proposed[wanted], 0)
