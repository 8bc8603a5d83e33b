"""Common prefix of a batch: the leading blocks that all its rows share, as far as the host knows."""

from collections.abc import Sequence

from scenarios.features import is_switched_off
from scenarios.spec import EngineSpec
from workers.engine.input_batch import Row


def shared_prefix(rows: Sequence[Row], block_size: int) -> int:
    """Return how many leading blocks are the same for all rows and full, as far as the host's counts are true."""
    count = min(row.num_computed for row in rows) // block_size
    first = rows[0].blocks
    for row in rows:
        count = min(count, len(row.blocks))
        count = next((column for column in range(count) if row.blocks[column] != first[column]), count)
    return count


def common_blocks(rows: Sequence[Row], spec: EngineSpec) -> int:
    """Return the leading blocks of a batch that attention sums once for all rows; 0 for none."""
    if not spec.cascade or is_switched_off(spec, "cascade"):
        return 0
    return shared_prefix(rows, spec.block_size)
