"""Print a digest of the oracle's expected values of a run, without importing an engine.

Run as a module it refuses every import of one, reads a trace and a log from standard input, and prints the digest.
"""

import json
import pickle
import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from typing import Any

from scenarios.trace import Trace
from workers.oracle.expected_captures import (
    SCRATCH,
    Expectation,
    expected_inputs,
    expected_release,
    expected_sampled,
    expected_state,
)
from workers.oracle.model_values import ModelValueCache
from workers.oracle.state_oracle import Oracle
from workers.record.log import Entry, Freed, Launched

REFUSED = ("workers.engine", "workers.kernels", "workers.lanes", "numpy.random", "ray", "torch")


class NoEngine(MetaPathFinder):
    """Import hook that refuses to import any part of an engine."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        """Raise for a module of an engine; return None for all others."""
        if any(name == refused or name.startswith(refused + ".") for refused in REFUSED):
            raise ImportError(f"{name} is refused here")


def expectations(trace: Trace, log: Sequence[Entry]) -> str:
    """Return a digest of all device values and scheduler counts that the oracle expects."""
    oracle = Oracle(trace, ModelValueCache())
    digest = blake2b()
    for entry in log:
        oracle.consume(entry)
        found: list[Any] = []
        if isinstance(entry, Launched) and entry.order:
            step = oracle.steps[entry.step]
            layouts = (expected(step, trace.spec) for expected in (expected_inputs, expected_sampled, expected_state))
            found += [_plain(layout) for layout in layouts]
        if isinstance(entry, Freed):
            found.append(_plain(expected_release(oracle.releases[-1], trace.spec)))
        found += [
            (truth.name, truth.committed, truth.sched_computed, truth.sched_placeholders, truth.finish_reason)
            for truth in oracle.requests
        ]
        digest.update(json.dumps(found).encode())
    return digest.hexdigest()


def _plain(expected: Expectation) -> dict[str, Any]:
    return {name: [None if value is SCRATCH else value for value in values] for name, values in expected.items()}


if __name__ == "__main__":
    loaded = [name for name in sys.modules if name.startswith(REFUSED[:3])]
    assert not loaded, f"the oracle imports {loaded}"
    sys.meta_path.insert(0, NoEngine())
    for text, pickled in pickle.load(sys.stdin.buffer):
        print(expectations(Trace.model_validate_json(text), pickle.loads(pickled)))
