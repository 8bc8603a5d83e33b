"""Launches of Triton ops and their definitions on slices at odd offsets, with guards."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.workers.kernels.calls import Op, modes_of, run

Array = NDArray[Any]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Odd, so that no slice is aligned to more than its element.
OFFSET = 3
GUARD = 0x5A


class Guarded:
    """A tensor that is a slice of a larger one; the memory around it must not change."""

    def __init__(self, values: Array) -> None:
        self._length, size = len(values), values.itemsize
        memory = np.full((self._length + 2 * OFFSET) * size, GUARD, dtype=np.uint8).view(values.dtype)
        memory[OFFSET : OFFSET + self._length] = values
        # On the CPU the tensor is a view of the array, as it is in the interpreter's lane.
        self._memory = torch.from_numpy(memory).to(DEVICE)
        self.tensor = self._memory[OFFSET : OFFSET + self._length]

    def read(self) -> Array:
        """Return the contents of the slice, after checking its surroundings."""
        memory: Array = self._memory.cpu().numpy()
        around = np.concatenate([memory[:OFFSET], memory[OFFSET + self._length :]])
        assert (around.view(np.uint8) == GUARD).all(), "memory outside the declared range was written"
        return memory[OFFSET : OFFSET + self._length].copy()


def launch(twin: Op, **arguments: Any) -> dict[str, Array]:
    """Launch a Triton op on copies and return its outputs; its inputs must not change."""
    modes = modes_of(twin)
    assert arguments.keys() == modes.keys()
    made = {name: Guarded(value) for name, value in arguments.items() if modes[name] != "int"}
    run(twin, **{name: made[name].tensor if name in made else value for name, value in arguments.items()})
    after = {name: guarded.read() for name, guarded in made.items()}
    for name, value in after.items():
        if modes[name] == "in":
            np.testing.assert_array_equal(value, arguments[name], f"the input {name} was written")
    return {name: value for name, value in after.items() if modes[name] != "in"}


def define(definition: Op, **arguments: Any) -> dict[str, Array]:
    """Run the definition in NumPy on copies and return its outputs."""
    modes = modes_of(definition)
    made = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    run(definition, **made)
    return {name: made[name] for name, mode in modes.items() if mode in ("out", "inout")}


def assert_equal(twin: Op, definition: Op, **arguments: Any) -> dict[str, Array]:
    """Check that twin and definition write the same values everywhere, and return them."""
    found, expected = launch(twin, **arguments), define(definition, **arguments)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], f"{definition.__name__}: {name}")
    return found
