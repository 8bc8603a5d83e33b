"""NumPy definitions of the penalty and token-count kernels in `...gpu.sample.penalties`."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.v1.worker.gpu.sample.penalties"
_BITS = 32


def apply_penalties(programs: tuple[int, ...], args: Given) -> None:
    """Apply penalties to each logits row; earlier draft tokens of the row count as output."""
    size, tokens = args.vocab_size, np.arange(args.vocab_size, dtype=np.int32)
    for row in range(programs[0]):
        state = args.expanded_idx_mapping_ptr[row]
        repetition, frequency, presence = (
            np.float32(each[state])
            for each in (args.repetition_penalty_ptr, args.frequency_penalty_ptr, args.presence_penalty_ptr)
        )
        if repetition == 1 and frequency == 0 and presence == 0:
            continue
        line = args.logits_ptr.span(row * args.logits_stride, size)
        logits = line.astype(np.float32)
        counts = args.output_bin_counts_ptr.span(state * args.output_bin_counts_stride, size)
        pos = args.expanded_local_pos_ptr[row]
        for draft in args.token_ids_ptr.span(row - pos + 1, pos).tolist():
            counts = counts + (tokens == draft)
        is_seen = counts > 0
        if repetition != 1:
            words = args.prompt_bin_mask_ptr.span(state * args.prompt_bin_mask_stride, -(-size // _BITS))
            scale = np.where(_bits(words, size) | is_seen, repetition, np.float32(1))
            logits = logits * np.where(logits > 0, np.float32(1) / scale, scale)
        logits = logits - frequency * counts.astype(np.float32)
        line[:] = logits - presence * is_seen.astype(np.float32)


def _bits(words: Array, count: int) -> Array:
    """Return the bits of integers as booleans, lowest bit first."""
    found: Array = np.unpackbits(words.astype("<i4", copy=False).view(np.uint8), count=count, bitorder="little")
    return found.view(bool)


def bincount(programs: tuple[int, ...], args: Given) -> None:
    """Set the prompt-token bitmask of each request, and count its output tokens."""
    num_rows, num_blocks = programs[:2]
    width = args.BLOCK_SIZE
    for row in range(num_rows):
        state = args.expanded_idx_mapping_ptr[row]
        length, first = args.prefill_len_ptr[state], state * args.all_token_ids_stride
        for block in range(num_blocks):
            begin, end = block * width, (block + 1) * width
            if begin >= length:
                break
            prompt = args.prompt_len_ptr[state]
            for token in args.all_token_ids_ptr.span(first + begin, min(end, prompt) - begin).tolist():
                word, bit = divmod(token, _BITS)
                at = state * args.prompt_bin_mask_stride + word
                args.prompt_bin_mask_ptr[at] |= _signed(1 << bit)
            if end >= prompt:
                begin = max(begin, prompt)
                for token in args.all_token_ids_ptr.span(first + begin, min(end, length) - begin).tolist():
                    args.output_bin_counts_ptr[state * args.output_bin_counts_stride + token] += 1


def _signed(word: int) -> int:
    """Return the signed 32-bit integer with these bits."""
    return word - (1 << _BITS) if word >> (_BITS - 1) else word


DEFINITIONS = {
    "_penalties_kernel": Definition(apply_penalties, "75c58f3c926df85a"),
    "_bincount_kernel": Definition(bincount, "91e9bdbb16721750"),
}
