"""Layouts of traces with transfers: each has the pools and the prompts that its requests are to meet in."""

from functools import cache
from typing import get_args

import pytest

from scenarios.edges import drawn_for
from scenarios.events import Abort, Preempt, PromptDraw, Submit
from scenarios.random_trace import random_trace
from scenarios.spec import Offloading, Transfer
from scenarios.trace import Trace
from scenarios.transfer_layouts import Layout, arranged, first_of_their_names, goes_on, is_calm, layout_of
from scenarios.transfers import with_transfers
from workers.targets.registry import kind_of
from workers.targets.target import VLLM_V1


@cache
def laid_out() -> list[tuple[Layout, Trace]]:
    """Return the traces with a store or offloading of some seeds, each with its layout."""
    traces = [drawn_for(random_trace(seed), kind_of(VLLM_V1).capabilities) for seed in range(400)]
    return [(layout_of(trace), trace) for trace in traces if trace.spec.transfer or trace.spec.offloading]


def of(layout: Layout) -> list[Trace]:
    return [trace for each, trace in laid_out() if each == layout]


def test_some_traces_have_each_layout() -> None:
    for layout in get_args(Layout):
        assert len(of(layout)) > 4 or layout == "behind one"


def test_requests_in_turn_have_room_for_the_longest_of_them_and_nothing_else_happens() -> None:
    for trace in of("in turn"):
        spec, submits = trace.spec, trace.submits()
        ends = [spec.length_limit(submit.prompt_length, submit.max_tokens) - 1 for submit in submits]
        assert spec.num_blocks == -(-max(ends) // spec.block_size) == spec.max_blocks_per_request
        assert len({submit.request for submit in submits}) == len(submits)
        assert not any(isinstance(event, Abort | Preempt) for event in trace.events)
        assert not spec.prefix_cache


def test_the_first_of_the_undisturbed_is_preempted_as_its_last_chunk_is_stored() -> None:
    for trace in of("undisturbed"):
        assert trace.spec.offloading is not None
        first, *others = trace.submits()
        size, chunks = trace.spec.block_size, trace.spec.offloading.chunks
        assert (first.prompt_length // size, (first.prompt_length + first.max_tokens) // size) == (2, chunks)
        (event,) = [event for event in trace.events if not isinstance(event, Submit)]
        assert isinstance(event, Preempt)
        stored = event.tick - 1 - (chunks * size - first.prompt_length)
        assert event.request == first.request
        assert 0 < stored <= trace.spec.offloading.store_ticks
        for submit in others[1:]:
            assert isinstance(submit.prompt, PromptDraw)
            assert submit.prompt.common == submit.prompt.tokens


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_layout_is_calm_or_keeps_all_events(layout: Layout) -> None:
    assert is_calm(layout) == (layout in ("undisturbed", "in turn"))
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
    for key in ({"transfer": Transfer(store_blocks=2)}, {"offloading": Offloading(chunks=2)}):
        spec = arranged(trace.model_copy(update={"spec": trace.spec.model_copy(update=key)}), "in turn").spec
        assert (spec.transfer.store_blocks if spec.transfer else 64) == 64
        assert (spec.offloading.chunks if spec.offloading else 64) == 64


def test_an_engine_without_connectors_has_no_layouts() -> None:
    trace = random_trace(0)
    assert with_transfers(trace, kind_of("specstorm").capabilities) == trace
