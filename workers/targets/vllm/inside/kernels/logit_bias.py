"""NumPy definition of the kernel in `...sample.logit_bias`: allowed tokens, biases, stops."""

from workers.simulated_torch.kernel_definitions import Array, Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest

MODULE = "vllm.v1.worker.gpu.sample.logit_bias"


def apply_logit_bias(programs: tuple[int, ...], given: Given) -> None:
    """Mask all but allowed tokens, add biases, and mask stop tokens before `min_tokens`."""
    width = given.BLOCK_SIZE
    for row in range(programs[0]):
        state, line = given.expanded_idx_mapping_ptr[row], row * given.logits_stride
        if (count := min(given.num_allowed_token_ids_ptr[state], width)) > 0:
            ids = line + given.allowed_token_ids_ptr.span(state * given.allowed_token_ids_stride, count)
            kept = given.logits_ptr.at(ids)
            given.logits_ptr.span(line, given.vocab_size)[:] = LOWEST
            given.logits_ptr.put(ids, kept)
        if (count := min(given.num_logit_bias_ptr[state], width)) > 0:
            ids = line + given.bias_token_ids_ptr.span(state * given.bias_token_ids_stride, count)
            bias = given.bias_ptr.span(state * given.bias_stride, count)
            given.logits_ptr.put(ids, given.logits_ptr.at(ids) + bias)
        count = min(given.num_stop_token_ids_ptr[state], width)
        if given.pos_ptr[row] + 1 < given.min_lens_ptr[state] and count > 0:
            _mask_stops(state, line, given.stop_token_ids_ptr.span(state * given.stop_token_ids_stride, count), given)


def _mask_stops(state: int, line: int, stops: Array, given: Given) -> None:
    """Mask a row's stop tokens; restore them if no token is left and the request asks for it."""
    ids = line + stops
    restores = given.CHECK_ALL_MASKED_ROWS and given.restore_when_all_masked_ptr[state]
    before = given.logits_ptr.at(ids) if restores else None
    given.logits_ptr.put(ids, LOWEST)
    if before is None:
        return
    logits = given.logits_ptr.span(line, given.vocab_size)
    if all(highest(logits[at : at + _WIDTH], _WIDTH)[0] == LOWEST for at in range(0, len(logits), _WIDTH)):
        is_finite = (before > LOWEST) & (before < -LOWEST)
        given.logits_ptr.put(ids[is_finite], before[is_finite])


# Wider than any logits row, so that one block covers it; only the order of zeros could differ.
_WIDTH = 8192
DEFINITIONS = {"_bias_kernel": Definition(apply_logit_bias, "b254860b5cd13113")}
