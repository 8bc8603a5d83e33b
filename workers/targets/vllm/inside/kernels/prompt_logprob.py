"""NumPy definition of the kernel in `vllm.v1.worker.gpu.sample.prompt_logprob`."""

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.sample.prompt_logprob"


def prompt_logprobs_token_ids(programs: tuple[int, ...], given: Given) -> None:
    """Write, for each token of a step, the token id that follows it in its request."""
    for row in range(programs[0]):
        state, start = given.idx_mapping_ptr[row], given.query_start_loc_ptr[row]
        count = given.query_start_loc_ptr[row + 1] - start
        first = state * given.all_token_ids_stride + given.num_computed_tokens_ptr[state] + 1
        given.prompt_logprobs_token_ids_ptr.span(start, count)[:] = given.all_token_ids_ptr.span(first, count)


DEFINITIONS = {"_prompt_logprobs_token_ids_kernel": Definition(prompt_logprobs_token_ids, "f837ec29a7594d18")}
