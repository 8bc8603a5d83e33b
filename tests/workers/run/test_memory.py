"""A run and its engine are freed with the last reference, without garbage collection."""

import gc
import weakref

import pytest

from scenarios.generation.base import random_trace
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run


@pytest.mark.parametrize("races", [True, False])
def test_engine_is_freed_without_garbage_collection(races: bool) -> None:
    run = Run(random_trace(1).explicit(), ModelValueCache(), Options(races=races))
    run.to_end()
    engine = weakref.ref(run.target)
    run.target.close()
    gc.disable()
    try:
        del run
        assert engine() is None
    finally:
        gc.enable()
