"""Where the labelled generator is biased towards exact boundaries: lengths of prompts, and how far they are alike."""

from scenarios.draw import Digits


def prompt_edges(num_speculative_tokens: int, block_size: int) -> tuple[int, ...]:
    """Return the lengths of prompts beside which an index may be off by one."""
    k, block = num_speculative_tokens, block_size
    return (1, k, k + 1, block - 1, block, block + 1)


def begun_alike(seed: int, who: int, length: int, block_size: int) -> tuple[int, int]:
    """Return the length of a prompt, longer by some blocks, and with how many tokens it begins as others do.

    That is all of it or some blocks.
    """
    digits = Digits(seed, "common", who)
    length += digits.below(4) * block_size
    some = digits.below(2 + length // block_size) * block_size + digits.below(2)
    return length, length if digits.below(2) else some
