"""NumPy definition of the kernel in `...sample.logit_bias`: allowed tokens, biases, stops."""

from workers.simulated_torch.kernel_definitions import Array, Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest

MODULE = "vllm.v1.worker.gpu.sample.logit_bias"


def apply_logit_bias(programs: tuple[int, ...], args: Given) -> None:
    """Apply allowed tokens and biases; mask stop tokens before `min_tokens` is reached."""
    width = args.BLOCK_SIZE
    for row in range(programs[0]):
        state, line = args.expanded_idx_mapping_ptr[row], row * args.logits_stride
        if (count := min(args.num_allowed_token_ids_ptr[state], width)) > 0:
            ids = line + args.allowed_token_ids_ptr.span(state * args.allowed_token_ids_stride, count)
            kept = args.logits_ptr.at(ids)
            args.logits_ptr.span(line, args.vocab_size)[:] = LOWEST
            args.logits_ptr.put(ids, kept)
        if (count := min(args.num_logit_bias_ptr[state], width)) > 0:
            ids = line + args.bias_token_ids_ptr.span(state * args.bias_token_ids_stride, count)
            bias = args.bias_ptr.span(state * args.bias_stride, count)
            args.logits_ptr.put(ids, args.logits_ptr.at(ids) + bias)
        count = min(args.num_stop_token_ids_ptr[state], width)
        if args.pos_ptr[row] + 1 < args.min_lens_ptr[state] and count > 0:
            _mask_stops(state, line, args.stop_token_ids_ptr.span(state * args.stop_token_ids_stride, count), args)


def _mask_stops(state: int, line: int, stops: Array, args: Given) -> None:
    """Mask a row's stop tokens; undo it if no other token is left and the request wants that."""
    ids = line + stops
    restores = args.CHECK_ALL_MASKED_ROWS and args.restore_when_all_masked_ptr[state]
    before = args.logits_ptr.at(ids) if restores else None
    args.logits_ptr.put(ids, LOWEST)
    if before is None:
        return
    logits = args.logits_ptr.span(line, args.vocab_size)
    if all(highest(logits[at : at + _WIDTH], _WIDTH)[0] == LOWEST for at in range(0, len(logits), _WIDTH)):
        is_finite = (before > LOWEST) & (before < -LOWEST)
        args.logits_ptr.put(ids[is_finite], before[is_finite])


# Wider than any logits row, so that one block covers it; only the order of zeros could differ.
_WIDTH = 8192
DEFINITIONS = {"_bias_kernel": Definition(apply_logit_bias, "b254860b5cd13113")}
