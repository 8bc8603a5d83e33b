"""NumPy definitions of the kernels in `vllm.v1.worker.gpu.spec_decode.rejection_sampler`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"


def flatten_sampled(programs: tuple[int, ...], args: Given) -> None:
    """Write the sampled tokens of all rows to one flat tensor."""
    for row in range(programs[0]):
        count = args.num_sampled_ptr[row]
        sampled = args.sampled_ptr.span(row * args.sampled_stride, count)
        args.flat_sampled_ptr.span(args.cu_num_logits_ptr[row], count)[:] = sampled


def gather_draft_sampled(programs: tuple[int, ...], args: Given) -> None:
    """Write each logits row's input token and position; draft placeholders become -1.

    A placeholder is a draft token of a row whose prefill was not complete.
    """
    count = min(args.num_logits, programs[0] * args.BLOCK_SIZE)
    tokens = args.logits_indices_ptr.span(0, count)
    ids, positions = args.input_ids_ptr.at(tokens), args.positions_ptr.at(tokens)
    local = args.expanded_local_pos_ptr.span(0, count)
    prefill = args.prefill_len_ptr.at(args.expanded_idx_mapping_ptr.span(0, count))
    is_placeholder = (local > 0) & (positions - local < prefill)
    args.draft_sampled_ptr.span(0, count)[:] = np.where(is_placeholder, -1, ids)
    args.pos_ptr.span(0, count)[:] = positions


DEFINITIONS = {
    "_flatten_sampled_kernel": Definition(flatten_sampled, "90549c3e01bb8060"),
    "_gather_draft_sampled_kernel": Definition(gather_draft_sampled, "f6f7fbc03255ed77"),
}
