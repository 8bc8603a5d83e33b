"""Process of a worker: set up once, before it judges its first trace."""

import gc
from functools import cache

# Runs make much and leave little: a collection looks at what lives, at every 700th object unless told otherwise.
_OBJECTS_BETWEEN_COLLECTIONS = 10_000


@cache
def prepare_process() -> None:
    """Keep the garbage collector from what is imported by now: it lives as long as the process. Done once in each."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
