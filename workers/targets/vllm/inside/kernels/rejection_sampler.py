"""NumPy definitions of the kernels in `vllm.v1.worker.gpu.spec_decode.rejection_sampler`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"


def flatten_sampled(programs: tuple[int, ...], given: Given) -> None:
    """Write the sampled tokens of all rows to one flat tensor."""
    for row in range(programs[0]):
        count = given.num_sampled_ptr[row]
        sampled = given.sampled_ptr.span(row * given.sampled_stride, count)
        given.flat_sampled_ptr.span(given.cu_num_logits_ptr[row], count)[:] = sampled


def gather_draft_sampled(programs: tuple[int, ...], given: Given) -> None:
    """Write each logits row's input token and position; draft placeholders become token -1.

    A placeholder is a draft token of a row whose prefill was not complete.
    """
    count = min(given.num_logits, programs[0] * given.BLOCK_SIZE)
    tokens = given.logits_indices_ptr.span(0, count)
    ids, positions = given.input_ids_ptr.at(tokens), given.positions_ptr.at(tokens)
    local = given.expanded_local_pos_ptr.span(0, count)
    prefill = given.prefill_len_ptr.at(given.expanded_idx_mapping_ptr.span(0, count))
    is_placeholder = (local > 0) & (positions - local < prefill)
    given.draft_sampled_ptr.span(0, count)[:] = np.where(is_placeholder, -1, ids)
    given.pos_ptr.span(0, count)[:] = positions


DEFINITIONS = {
    "_flatten_sampled_kernel": Definition(flatten_sampled, "90549c3e01bb8060"),
    "_gather_draft_sampled_kernel": Definition(gather_draft_sampled, "f6f7fbc03255ed77"),
}
