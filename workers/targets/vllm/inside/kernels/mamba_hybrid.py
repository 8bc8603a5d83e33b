"""NumPy definitions of the accepted-token-count kernels in `...model_states.mamba_hybrid`."""

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.model_states.mamba_hybrid"


def scatter_num_accepted(programs: tuple[int, ...], args: Given) -> None:
    """Write each request's accepted-token count: the tokens it sampled, at least 1."""
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        if state >= 0:
            args.num_accepted_ptr[state] = max(args.num_sampled_ptr[row], 1)


def fill_num_accepted(programs: tuple[int, ...], args: Given) -> None:
    """Write one accepted-token count, `num_sampled`, for all requests of the batch."""
    for row in range(programs[0]):
        state = args.idx_mapping_ptr[row]
        if state >= 0:
            args.num_accepted_ptr[state] = args.num_sampled


DEFINITIONS = {
    "_scatter_num_accepted_kernel": Definition(scatter_num_accepted, "12ce9bff737609c5"),
    "_fill_num_accepted_kernel": Definition(fill_num_accepted, "ace0bb181ec220b9"),
}
