"""Process of a worker: set up once, before it judges its first trace."""

import atexit
import gc
from functools import cache

# Runs make much and leave little: a collection looks at what lives, at every 700th object unless told otherwise.
_OBJECTS_BETWEEN_COLLECTIONS = 10_000


@cache
def prepare_process() -> None:
    """Exclude the objects that are imported by now from garbage collection until this process ends.

    Called again it does nothing. At the exit they are collected like any others: an extension that counts its objects,
    as Triton's does, reports those that are still frozen as leaked, in pages on stderr.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
