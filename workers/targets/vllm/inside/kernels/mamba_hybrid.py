"""Definitions of the kernels of `...model_states.mamba_hybrid`: accepted-token counts."""

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.model_states.mamba_hybrid"


def scatter_num_accepted(programs: tuple[int, ...], given: Given) -> None:
    """Write each request's number of accepted tokens of a step, at least 1."""
    for row in range(programs[0]):
        state = given.idx_mapping_ptr[row]
        if state >= 0:
            given.num_accepted_ptr[state] = max(given.num_sampled_ptr[row], 1)


def fill_num_accepted(programs: tuple[int, ...], given: Given) -> None:
    """Write the same number of accepted tokens for each request."""
    for row in range(programs[0]):
        state = given.idx_mapping_ptr[row]
        if state >= 0:
            given.num_accepted_ptr[state] = given.num_sampled


DEFINITIONS = {
    "_scatter_num_accepted_kernel": Definition(scatter_num_accepted, "12ce9bff737609c5"),
    "_fill_num_accepted_kernel": Definition(fill_num_accepted, "ace0bb181ec220b9"),
}
