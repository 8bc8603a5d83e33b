"""Layouts of traces with transfers: each has the pools and the prompts that its requests are to meet in."""

from collections import Counter
from functools import cache
from typing import get_args

import pytest

from scenarios.events import Abort, Preempt, PromptDraw, ResetPrefixCache, Submit
from scenarios.random_trace import random_trace
from scenarios.spec import Offloading, Transfer
from scenarios.trace import Trace
from scenarios.transfer_layouts import Layout, arranged, first_of_their_names, goes_on, is_calm, layout_of
from scenarios.transfers import with_transfers
from tests.scenarios.drawn import drawn
from workers.targets.registry import kind_of
from workers.targets.vllm.names import VLLM_V1


@cache
def laid_out() -> list[tuple[Layout, Trace]]:
    """Return the drawn traces with a store or offloading, each with its layout."""
    traces = [trace for trace in drawn(VLLM_V1) if trace.spec.transfer or trace.spec.offloading]
    return [(layout_of(trace), trace) for trace in traces]


def of(layout: Layout) -> list[Trace]:
    return [trace for each, trace in laid_out() if each == layout]


def test_some_traces_have_each_layout() -> None:
    counts = Counter(layout for layout, _ in laid_out())
    assert min(counts[layout] for layout in get_args(Layout) if layout != "behind one") > 4


def test_requests_in_turn_have_room_for_the_longest_of_them_and_nothing_else_happens() -> None:
    traces = of("in turn")
    assert len(traces) > 4
    assert all(longest(trace) == trace.spec.num_blocks == trace.spec.max_blocks_per_request for trace in traces)
    assert not any(isinstance(event, Abort | Preempt) for trace in traces for event in trace.events)
    assert not any(trace.spec.prefix_cache for trace in traces)


def test_branches_part_behind_whole_blocks_that_are_loaded_again_once_the_prefix_cache_has_forgotten_them() -> None:
    traces = of("branches")
    assert all(trace.spec.drafter == "eagle" and trace.spec.num_speculative_tokens for trace in traces)
    for trace in filter(Trace.submits, traces):
        first, *others = trace.submits()
        prompts = [each.prompt for each in others]
        assert all(isinstance(prompt, PromptDraw) and not prompt.common % trace.spec.block_size for prompt in prompts)
        assert all(0 < prompt.common < first.prompt_length for prompt in prompts if isinstance(prompt, PromptDraw))
        cleared = {event.tick for event in trace.events if isinstance(event, ResetPrefixCache)}
        assert cleared == {each.tick for each in (first, *others)}


def longest(trace: Trace) -> int:
    """Return the most blocks that a request of a trace fills, whose last token is computed by nobody."""
    ends = [trace.spec.length_limit(submit.prompt_length, submit.max_tokens) - 1 for submit in trace.submits()]
    return -(-max(ends) // trace.spec.block_size)


def test_the_first_of_the_undisturbed_is_preempted_as_its_last_chunk_is_stored() -> None:
    traces = of("undisturbed")
    assert len(traces) > 4
    assert all(isinstance(event, Submit | Preempt) for trace in traces for event in trace.events)
    assert {len(trace.events) - len(trace.submits()) for trace in traces} == {1}
    assert {preempted_behind(trace) for trace in traces} == {1, 2, 3}
    others = [submit.prompt for trace in traces for submit in trace.submits()[2:]]
    assert all(isinstance(prompt, PromptDraw) and prompt.common == prompt.tokens for prompt in others)


def preempted_behind(trace: Trace) -> int:
    """Return ticks between the last token of the third chunk of a trace's first request and its preemption."""
    first, size = trace.submits()[0], trace.spec.block_size
    (event,) = [event for event in trace.events if isinstance(event, Preempt) and event.request == first.request]
    return event.tick - 1 - (3 * size - first.prompt_length)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_layout_is_calm_or_keeps_all_events(layout: Layout) -> None:
    assert is_calm(layout) == (layout in ("undisturbed", "in turn", "branches"))
    assert [goes_on(layout, index) for index in range(3)] == [layout in ("undisturbed", "beside one")] * 2 + [False]


def test_of_each_name_the_first_request_is_kept_in_order() -> None:
    events = [
        Submit(tick=tick, request=name, prompt=PromptDraw(tokens=tick + 1), max_tokens=1)
        for tick, name in enumerate("abab")
    ]
    trace = random_trace(0).model_copy(update={"events": (*events, Abort(tick=1, request="a"))})
    assert [submit.tick for submit in first_of_their_names(trace)] == [0, 1]


def test_a_store_beside_which_requests_are_in_turn_evicts_nothing() -> None:
    trace = random_trace(0)
    store, chunks = {"transfer": Transfer(store_blocks=2)}, {"offloading": Offloading(chunks=2)}
    stored, offloaded = (
        arranged(trace.model_copy(update={"spec": trace.spec.model_copy(update=keys)}), "in turn").spec
        for keys in (store, chunks)
    )
    assert stored.transfer is not None
    assert stored.transfer.store_blocks == 64
    assert offloaded.offloading is not None
    assert offloaded.offloading.chunks == 64


def test_an_engine_without_connectors_has_no_layouts() -> None:
    trace = random_trace(0)
    assert with_transfers(trace, kind_of("specstorm").capabilities) == trace
