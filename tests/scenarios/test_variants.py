"""Variants of known traces: always valid, the same everywhere, and of both their parents."""

from collections import Counter
from pathlib import Path

from scenarios import codec
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from scenarios.variants import variant

ROOT = Path(__file__).resolve().parents[2]


def parents() -> list[Trace]:
    """Return explicit traces of all kinds that an engine runs without faults."""
    files = codec.find_scenarios([ROOT / "scenarios" / "regressions", ROOT / "scenarios" / "smoke"])
    traces = [codec.load(file).explicit().model_copy(update={"faults": ()}) for file in files]
    return [trace for trace in traces if not problems(trace)]


def test_a_variant_of_any_trace_is_valid_and_reads_back_from_yaml_as_it_was() -> None:
    drawn = list(parents())
    assert drawn
    for index, parent in enumerate(drawn):
        for seed in range(2 * index, 2 * index + 2):
            found = variant(parent, random_trace(seed), seed).explicit()
            assert problems(found) == []
            assert found.submits()
            assert (found.faults, found.expect) == ((), {})
        assert codec.loads(codec.dumps(found), "variant") == found


def test_a_variant_takes_from_both_traces_and_its_seed_alone_decides_what() -> None:
    parent = max(parents(), key=lambda trace: len(trace.events))
    other = random_trace(7)
    drawn = [variant(parent, other, seed) for seed in range(120)]
    assert drawn == [variant(parent, other, seed) for seed in range(120)]
    assert len({codec.dumps(trace) for trace in drawn}) > 90
    seen: Counter[str] = Counter()
    for trace in drawn:
        seen["an event of the parent"] += any(event in parent.events for event in trace.events)
        seen["an event of the other"] += any(event in other.events for event in trace.events)
        seen["a request of nobody here"] += any(event.request.startswith("x.") for event in trace.submits())
        seen["the parent's specification"] += trace.spec == parent.spec
        seen["a key of the other"] += any(
            getattr(trace.spec, key) == getattr(other.spec, key) != getattr(parent.spec, key)
            for key in EngineSpec.model_fields
        )
    assert min(seen.values()) >= 12
    assert len(seen) == 5


def test_a_trace_that_would_lose_all_its_requests_stays_as_it_was() -> None:
    parent = next(trace for trace in parents() if len(trace.events) == 1)
    alone = parent.model_copy(update={"expect": {"admit": 1}})
    kept = [variant(alone, parent.model_copy(update={"events": ()}), seed) for seed in range(60)]
    assert all(trace.submits() for trace in kept)
    assert any(trace == parent for trace in kept)
