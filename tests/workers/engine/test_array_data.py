"""The host part of a decode step allocates no array data; Python lists are not counted."""

import json
import subprocess
import sys

# The simulated device, what looks at its memory, and nothing else.
DEVICE = ("kernels/", "engine/captures.py", "observation.py")


def allocations(*arguments: str) -> dict[str, int]:
    """Return how often each source line made NumPy allocate array data in a step after warm-up."""
    command = [sys.executable, "-m", "tests.workers.engine.array_data", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_decode_step_makes_arrays_in_ops_and_captures_only() -> None:
    found = allocations()
    assert sum(found.values()) > 50
    assert {line for line in found if not line.startswith(DEVICE)} == set()


def test_array_made_by_the_host_is_detected() -> None:
    found = allocations("with arrays")
    host = {line: count for line, count in found.items() if not line.startswith(DEVICE)}
    assert list(host.values()) == [4]
