"""Flat and random traces: any integers decode to a valid trace, the same in every process."""

import os
import subprocess
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.codec import dumps
from scenarios.events import PromptDraw, Submit
from scenarios.flat_traces import FlatEvent, SpecNumbers, interpret
from scenarios.generation.strategies import random_trace, traces
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from tests.scenarios.generated_traces import random_traces

ROOT = Path(__file__).resolve().parents[3]
NUMBER = st.integers(0, 1 << 20)
NUMBERS = st.tuples(*[NUMBER] * len(SpecNumbers._fields))
# Keys of the specification that the base generator does not use; situations of some engines set them.
_OTHERS = {
    "drafter_quality",
    "recurrent_layers",
    "window",
    "window_heads",
    "match_tokens",
    "decodes_first",
    "transfer",
    "offloading",
    "handoff",
    "graphs",
    "reasoning_end",
    "logits_processor",
    "plan_stream",
    "relay_lengths",
    "mixed_chunks",
    "tensor_ranks",
    "pipeline_ranks",
    "data_ranks",
    "tree_width",
}
KEYS = set(EngineSpec.model_fields) - _OTHERS
FLATS = st.lists(st.tuples(*[NUMBER] * len(FlatEvent._fields)), max_size=20)


def digest(num_traces: int) -> str:
    text = "".join(dumps(random_trace(seed)) for seed in range(num_traces))
    return blake2b(text.encode()).hexdigest()


@settings(max_examples=200)
@given(NUMBERS, FLATS)
def test_interpret_of_any_numbers_is_a_valid_trace(numbers: tuple[int, ...], flats: list[tuple[int, ...]]) -> None:
    assert problems(interpret(numbers, flats)) == []


@settings(max_examples=100)
@given(NUMBERS, FLATS, st.sets(st.integers(0, 19)))
def test_deleted_flat_events_do_not_change_the_others(
    numbers: tuple[int, ...], flats: list[tuple[int, ...]], deleted: set[int]
) -> None:
    kept = [flat for index, flat in enumerate(flats) if index not in deleted]
    fewer = interpret(numbers, kept)
    assert problems(fewer) == []
    alone = [event for flat in kept for event in interpret(numbers, [flat]).events]
    assert all(event in alone for event in fewer.events)


@settings(max_examples=100)
@given(traces())
def test_generated_trace_is_valid_without_any_one_event(trace: Trace) -> None:
    assert problems(trace) == []
    for index in range(len(trace.events)):
        events = trace.events[:index] + trace.events[index + 1 :]
        assert problems(trace.model_copy(update={"events": events})) == []


def test_generated_traces_vary_every_encoded_key() -> None:
    found: list[Trace] = []

    @settings(max_examples=300)
    @given(traces())
    def collect(trace: Trace) -> None:
        found.append(trace)

    collect()
    # If a strategy is missing, all numbers after it shift, and the last number stays 0.
    for key in KEYS:
        assert len({getattr(trace.spec, key) for trace in found}) > 1, key
    # Sessions and data-parallel ranks are situations of some engines, added after the base generator.
    for key in set(Submit.model_fields) - {"do", "session", "data_rank"}:
        assert len({str(getattr(event, key)) for trace in found for event in trace.submits()}) > 1, key


def test_random_trace_is_valid_with_one_to_seven_requests() -> None:
    counts: Counter[int] = Counter()
    for trace in random_traces():
        assert problems(trace) == []
        counts[len({event.request for event in trace.submits()})] += 1
    assert set(counts) == set(range(1, 8))
    assert sum(count for requests, count in counts.items() if requests >= 3) >= 400


def test_random_traces_vary_every_switch_and_prompt_edge() -> None:
    found = random_traces()
    for name in KEYS:
        assert len({getattr(trace.spec, name) for trace in found}) > 1, name
    assert {trace.schedule.policy for trace in found} == {"eager", "lazy", "lane_order", "random"}
    edges: Counter[str] = Counter()
    for trace in found:
        k, block = trace.spec.num_speculative_tokens, trace.spec.block_size
        for event in trace.events:
            if isinstance(event, Submit):
                assert isinstance(event.prompt, PromptDraw)
                names = {1: "1", k: "K", k + 1: "K + 1", block - 1: "block - 1", block: "block", block + 1: "block + 1"}
                edges[names.get(event.prompt.tokens, "other")] += 1
    assert set(edges) == {"1", "K", "K + 1", "block - 1", "block", "block + 1", "other"}
    assert min(edges.values()) >= 100


def test_random_trace_is_the_same_for_any_hash_seed() -> None:
    code = "from tests.scenarios.generation.test_strategies import digest; print(digest(100))"
    here = digest(100)
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        assert done.stdout.strip() == here
