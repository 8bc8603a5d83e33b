"""NumPy definitions of the penalty and token-count kernels in `...gpu.sample.penalties`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.v1.worker.gpu.sample.penalties"
_BITS = 32


def apply_penalties(programs: tuple[int, ...], given: Given) -> None:
    """Apply penalties to each logits row; draft tokens before the row count as output tokens."""
    size, tokens = given.vocab_size, np.arange(given.vocab_size, dtype=np.int32)
    for row in range(programs[0]):
        state = given.expanded_idx_mapping_ptr[row]
        repetition, frequency, presence = (
            np.float32(each[state])
            for each in (given.repetition_penalty_ptr, given.frequency_penalty_ptr, given.presence_penalty_ptr)
        )
        if repetition == 1 and frequency == 0 and presence == 0:
            continue
        line = given.logits_ptr.span(row * given.logits_stride, size)
        logits = line.astype(np.float32)
        counts = given.output_bin_counts_ptr.span(state * given.output_bin_counts_stride, size)
        pos = given.expanded_local_pos_ptr[row]
        for draft in given.token_ids_ptr.span(row - pos + 1, pos).tolist():
            counts = counts + (tokens == draft)
        is_seen = counts > 0
        if repetition != 1:
            words = given.prompt_bin_mask_ptr.span(state * given.prompt_bin_mask_stride, -(-size // _BITS))
            scale = np.where(_bits(words, size) | is_seen, repetition, np.float32(1))
            logits = logits * np.where(logits > 0, np.float32(1) / scale, scale)
        logits = logits - frequency * counts.astype(np.float32)
        line[:] = logits - presence * is_seen.astype(np.float32)


def _bits(words: Array, count: int) -> Array:
    """Return the bits of words as booleans, lowest bit first."""
    found: Array = np.unpackbits(words.astype("<i4", copy=False).view(np.uint8), count=count, bitorder="little")
    return found.view(bool)


def bincount(programs: tuple[int, ...], given: Given) -> None:
    """Mark each request's prompt tokens in a bitmask, and count its output tokens so far."""
    num_rows, num_blocks = programs[:2]
    width = given.BLOCK_SIZE
    for row in range(num_rows):
        state = given.expanded_idx_mapping_ptr[row]
        length, first = given.prefill_len_ptr[state], state * given.all_token_ids_stride
        for block in range(num_blocks):
            begin, end = block * width, (block + 1) * width
            if begin >= length:
                break
            prompt = given.prompt_len_ptr[state]
            for token in given.all_token_ids_ptr.span(first + begin, min(end, prompt) - begin).tolist():
                word, bit = divmod(token, _BITS)
                at = state * given.prompt_bin_mask_stride + word
                given.prompt_bin_mask_ptr[at] |= _signed(1 << bit)
            if end >= prompt:
                begin = max(begin, prompt)
                for token in given.all_token_ids_ptr.span(first + begin, min(end, length) - begin).tolist():
                    given.output_bin_counts_ptr[state * given.output_bin_counts_stride + token] += 1


def _signed(word: int) -> int:
    """Return the signed 32-bit integer with the same bits."""
    return word - (1 << _BITS) if word >> (_BITS - 1) else word


DEFINITIONS = {
    "_penalties_kernel": Definition(apply_penalties, "75c58f3c926df85a"),
    "_bincount_kernel": Definition(bincount, "91e9bdbb16721750"),
}
