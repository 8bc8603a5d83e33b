"""Variants of traces: valid, determined by two traces and a seed, and a mix of both."""

from collections import Counter
from pathlib import Path

from scenarios import codec
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from scenarios.variants import variant

ROOT = Path(__file__).resolve().parents[2]


def parents() -> list[Trace]:
    """Return the explicit traces of the smoke and regression scenarios that are valid without faults."""
    files = codec.find_scenarios([ROOT / "scenarios" / "regressions", ROOT / "scenarios" / "smoke"])
    traces = [codec.load(file).explicit().model_copy(update={"faults": ()}) for file in files]
    return [trace for trace in traces if not problems(trace)]


def test_variant_is_valid_and_kept_in_yaml() -> None:
    traces = parents()
    assert traces
    for index, parent in enumerate(traces):
        for seed in range(2 * index, 2 * index + 2):
            found = variant(parent, random_trace(seed), seed).explicit()
            assert problems(found) == []
            assert found.submits()
            assert (found.faults, found.expect) == ((), {})
        assert codec.loads(codec.dumps(found), "variant") == found


def test_variant_mixes_both_traces_as_a_function_of_its_seed() -> None:
    parent = max(parents(), key=lambda trace: len(trace.events))
    other = random_trace(7)
    variants = [variant(parent, other, seed) for seed in range(120)]
    assert variants == [variant(parent, other, seed) for seed in range(120)]
    assert len({codec.dumps(trace) for trace in variants}) > 90
    seen: Counter[str] = Counter()
    for trace in variants:
        seen["an event of the parent"] += any(event in parent.events for event in trace.events)
        seen["an event of the other"] += any(event in other.events for event in trace.events)
        seen["a request of neither trace"] += any(event.request.startswith("x.") for event in trace.submits())
        seen["the parent's specification"] += trace.spec == parent.spec
        seen["a key of the other"] += any(
            getattr(trace.spec, key) == getattr(other.spec, key) != getattr(parent.spec, key)
            for key in EngineSpec.model_fields
        )
    assert min(seen.values()) >= 12
    assert len(seen) == 5


def test_variant_without_requests_is_the_parent() -> None:
    parent = next(trace for trace in parents() if len(trace.events) == 1)
    alone = parent.model_copy(update={"expect": {"admit": 1}})
    kept = [variant(alone, parent.model_copy(update={"events": ()}), seed) for seed in range(60)]
    assert all(trace.submits() for trace in kept)
    assert any(trace == parent for trace in kept)
