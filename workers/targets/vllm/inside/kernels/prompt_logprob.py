"""NumPy definition of the kernel in `vllm.v1.worker.gpu.sample.prompt_logprob`."""

from workers.simulated_torch.kernel_definitions import Definition, Given

MODULE = "vllm.v1.worker.gpu.sample.prompt_logprob"


def prompt_logprobs_token_ids(programs: tuple[int, ...], args: Given) -> None:
    """Write, for each token of a step, the token id that follows it in its request."""
    for row in range(programs[0]):
        state, start = args.idx_mapping_ptr[row], args.query_start_loc_ptr[row]
        count = args.query_start_loc_ptr[row + 1] - start
        first = state * args.all_token_ids_stride + args.num_computed_tokens_ptr[state] + 1
        args.prompt_logprobs_token_ids_ptr.span(start, count)[:] = args.all_token_ids_ptr.span(first, count)


DEFINITIONS = {"_prompt_logprobs_token_ids_kernel": Definition(prompt_logprobs_token_ids, "f837ec29a7594d18")}
