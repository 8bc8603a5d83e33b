"""Count the array data that NumPy allocates in one decode step, by source line.

Run as a program: NumPy's allocator is replaced by one that counts (NEP 49), in a process of its own that ends without
giving the counted arrays back. Prints one JSON object: file:line of `workers`, and how often.
"""

import ctypes
import json
import os
import sys
from collections import Counter
from typing import Any

import numpy as np

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm

WARM_UP = 20
SET_HANDLER = 304  # the place of PyDataMem_SetHandler in NumPy's table of functions
CAPSULE = b"mem_handler"
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
MALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE)
CALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE, SIZE)
REALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, POINTER, SIZE)
FREE = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE)

LIBC = ctypes.CDLL(None)
for function, takes in (
    ("malloc", [SIZE]),
    ("calloc", [SIZE, SIZE]),
    ("realloc", [POINTER, SIZE]),
    ("free", [POINTER]),
):
    getattr(LIBC, function).argtypes = takes
    getattr(LIBC, function).restype = None if function == "free" else POINTER


class Allocator(ctypes.Structure):
    _fields_ = (("ctx", POINTER), ("malloc", MALLOC), ("calloc", CALLOC), ("realloc", REALLOC), ("free", FREE))


class Handler(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", Allocator))


class Counting:
    """An allocator that records the lines that allocate array memory while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.seen: Counter[str] = Counter()
        callbacks = (MALLOC(self._malloc), CALLOC(self._calloc), REALLOC(self._realloc), FREE(self._free))
        self._handler = Handler(b"counting", 1, Allocator(None, *callbacks))

    def install(self) -> None:
        """Make NumPy allocate the data of arrays here from now on."""
        get_pointer, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        get_pointer.restype, get_pointer.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
        new.restype, new.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
        umath: Any = np._core._multiarray_umath  # type: ignore[attr-defined]
        table = ctypes.cast(get_pointer(umath._ARRAY_API, None), ctypes.POINTER(POINTER))
        set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[SET_HANDLER])
        set_handler(new(ctypes.addressof(self._handler), CAPSULE, None))

    def _note(self) -> None:
        if not self.on:
            return
        frame = sys._getframe(2)
        while "/workers/" not in frame.f_code.co_filename and frame.f_back is not None:
            frame = frame.f_back
        self.seen[f"{frame.f_code.co_filename.rpartition('/workers/')[2]}:{frame.f_lineno}"] += 1

    def _malloc(self, context: int, size: int) -> Any:
        self._note()
        return LIBC.malloc(size)

    def _calloc(self, context: int, count: int, size: int) -> Any:
        self._note()
        return LIBC.calloc(count, size)

    def _realloc(self, context: int, memory: int, size: int) -> Any:
        self._note()
        return LIBC.realloc(memory, size)

    def _free(self, context: int, memory: int, size: int) -> None:
        LIBC.free(memory)


def backup_through_an_array(num_tokens_no_spec: int, optimistic_seq_len: int) -> int:
    """Return the result of `backup_index`, computed with an array."""
    return int(np.array([num_tokens_no_spec])[0]) - 1


def main() -> None:
    """Count a decode step of four requests; with an argument, an engine makes an array per row."""
    spec = EngineSpec(depth=2, accepted_counts="host")
    events = tuple(Submit(tick=0, request=f"r{index}", prompt=(1, 2, 3), max_tokens=100) for index in range(4))
    functions = EngineFunctions(backup_index=backup_through_an_array) if sys.argv[1:] else EngineFunctions()
    run = Run(Trace(spec=spec, events=events).explicit(), ModelValueCache(), Options(), Specstorm(functions))
    counting = Counting()
    counting.install()
    for _ in range(WARM_UP):
        run.feed.step()
    counting.on = True
    run.feed.step()
    counting.on = False
    print(json.dumps(counting.seen))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
