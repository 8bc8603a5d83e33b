"""Sizes of the blocks and tiles into which a vocabulary is divided."""

TILE_SIZE = 128
BLOCK_SIZE_MIN = 4096
BLOCKS_MAX = 32


def block_size_of(vocab_size: int, tile_size: int = TILE_SIZE, block_size_min: int = BLOCK_SIZE_MIN) -> int:
    """Return the block size (a power of two) that divides a vocabulary into a few large blocks.

    A small vocabulary is one block of the smallest possible size: a power of two of tiles.
    """
    block_size = tile_size
    while block_size < min(vocab_size, block_size_min):
        block_size *= 2
    while block_size * BLOCKS_MAX < vocab_size:
        block_size *= 2
    return block_size
