"""NumPy definitions of SGLang's sampling kernels: random hashes, and grammar masks."""

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

_WORD = 0xFFFFFFFF


def hash_positions(programs: tuple[int, ...], args: Given) -> None:
    """Write, for each row and column, the 32-bit MurmurHash3 of seed, position and column."""
    columns = args.col_indices_ptr.span(0, args.num_cols).astype(np.uint64) & _WORD
    for row in range(programs[0]):
        seed, hashed = args.seed_ptr[row], np.zeros(args.num_cols, np.uint64)
        for word in (seed & _WORD, seed >> 32 & _WORD, args.positions_ptr[row] & _WORD, columns):
            hashed = _mixed(hashed, np.asarray(word, np.uint64))
        args.output_ptr.span(row * args.num_cols, args.num_cols)[:] = _final(hashed ^ 16)


def _mixed(hashed: Array, word: Array) -> Array:
    """Mix a 32-bit word into hashes (body of `Murmur3_x86_32`)."""
    word = _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    mixed: Array = _rotated(hashed ^ word, 13) * 5 + 0xE6546B64 & _WORD
    return mixed


def _rotated(word: Array, count: int) -> Array:
    rotated: Array = (word << count | word >> 32 - count) & _WORD
    return rotated


def _final(hashed: Array) -> Array:
    """Apply the final mix of MurmurHash3 (`fmix32`) to hashes."""
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _WORD
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _WORD
    hashed ^= hashed >> 16
    return hashed


def mask_logits(programs: tuple[int, ...], args: Given) -> None:
    """Set each logit whose bit in the row's grammar bitmask is 0 to -inf."""
    num_words = -(-args.vocab_size // 32)
    for number in range(args.num_rows):
        row = number if args.indices_ptr is None else args.indices_ptr[number]
        words = args.bitmask_ptr.span(row * args.bitmask_strides, num_words)
        is_allowed = words[:, None] >> np.arange(32, dtype=np.int32) & 1
        logits = args.logits_ptr.span(row * args.logits_strides, args.vocab_size)
        logits[is_allowed.ravel()[: args.vocab_size] == 0] = -np.inf


DEFINITIONS = {
    "sglang.kernels.ops.sampling.murmur_hash.murmur_hash32_kernel": Definition(hash_positions, "c21dcf630d379a04"),
    "sglang.kernels.ops.grammar.bitmask_ops.apply_token_bitmask_inplace_kernel": Definition(
        mask_logits, "30092dac846c041a"
    ),
}
