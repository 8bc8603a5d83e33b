"""Prepare a worker process once, before it runs its first trace."""

import atexit
import gc
from functools import cache

# A run allocates many objects and keeps few. Python's default of 700 objects between collections costs too much time.
_OBJECTS_BETWEEN_COLLECTIONS = 10_000


@cache
def prepare_process() -> None:
    """Freeze all existing objects, so that garbage collections skip them.

    A second call does nothing. At exit they are collected again, because Triton's extension reports objects that are
    still frozen as leaks, in pages on stderr.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
