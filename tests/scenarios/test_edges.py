"""Traces drawn for an engine with blocks of its own reach the edges there; those of any other stay as they are."""

from dataclasses import replace

import pytest

from benchmarks.conformance.edges import EDGES, shares
from benchmarks.conformance.edges import drawn as hunted
from scenarios.capabilities import CONTINUES, lacking
from scenarios.edges import drawn_for
from scenarios.events import Abort, Preempt, PromptDraw, SetK, Stall, Submit
from scenarios.extensions import extended
from scenarios.random_trace import random_trace
from scenarios.trace import Trace, problems
from tests.scenarios.drawn import drawn, random_traces
from workers.targets.registry import kind_of
from workers.targets.specstorm import Specstorm
from workers.targets.vllm.names import VLLM, VLLM_V1

# The least share of 300 traces, about two thirds of that of 2,000 (docs/strategies.md).
LEAST = {
    "a threshold of chunks from 1 to 1 + K": 0.06,
    "a model of 32 m + 1 + K tokens, a prompt up to its end": 0.045,
    "a prompt of a block, or one token more or less": 0.38,
    "a pool too small for two requests": 0.32,
    "priorities in such a pool": 0.12,
    "an event that preempts": 0.33,
    "a reset of running requests": 0.12,
    "a stall": 0.17,
    "a request that goes on from another": 0.12,
    "logprobs of named tokens": 0.03,
    "rows that decode moved before the others": 0.2,
    "seeded requests without drafts": 0.12,
}


def test_traces_of_an_engine_with_its_own_blocks_reach_every_edge() -> None:
    found = shares(list(hunted(VLLM_V1, 300, seed=25)))
    assert found.keys() == EDGES.keys() == LEAST.keys()
    assert {name: share for name, share in found.items() if share < LEAST[name]} == {}


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_traces_with_edges_are_valid_and_ask_for_nothing_that_their_engine_lacks(engine: str) -> None:
    capabilities = kind_of(engine).capabilities
    for trace in drawn(engine):
        assert problems(trace) == []
        assert lacking(trace, capabilities) is None
    assert [drawn_for(random_trace(seed), capabilities) for seed in range(40)] == list(drawn(engine)[:40])


def test_drafts_beside_states_that_are_kept_reach_over_ends_of_blocks_where_their_number_falls() -> None:
    falling = wide = having = 0
    for trace in drawn(VLLM):
        spec, k = trace.spec, trace.spec.num_speculative_tokens
        if spec.layers == "hybrid" and spec.prefix_cache and k:
            having += 1
            wide += spec.max_num_batched_tokens >= 2 * spec.block_size
            is_close = any(0 < -each.prompt_length % spec.block_size <= 2 + 2 * k for each in trace.submits())
            falling += is_close and any(isinstance(each, SetK | Stall) for each in trace.events)
    assert having > 10
    assert falling > having // 2
    assert wide > having // 4


def test_prompts_of_drafters_that_depend_on_the_next_token_part_behind_whole_blocks() -> None:
    parting = 0
    for trace in drawn(VLLM_V1):
        if trace.spec.drafter == "eagle" and trace.spec.prefix_cache:
            drawn_prompts = [each.prompt for each in trace.submits() if isinstance(each.prompt, PromptDraw)]
            parting += sum(p.common % 32 == 0 < p.common < p.tokens for p in drawn_prompts) > 1
    assert parting > 2


def test_grammars_wait_for_a_token_among_drafts_in_prompts_and_outputs_where_it_may_come() -> None:
    waiting = 0
    for trace in drawn(VLLM):
        if trace.spec.reasoning_end is not None and trace.spec.num_speculative_tokens > 1:
            own = [each for each in trace.submits() if each.params.grammar and each.max_tokens >= 32 and not each.stop]
            is_free = any(each.prompt_length <= 8 and not each.params.temperature for each in own)
            waiting += is_free and (trace.spec.drafter, trace.spec.drafter_quality) == ("draft_model", "good")
    assert waiting > 4


def test_texts_end_by_any_of_many_words_of_a_token_beside_a_drafter_that_is_good() -> None:
    many = 0
    for trace in drawn(VLLM):
        is_good = (trace.spec.drafter, trace.spec.drafter_quality) == ("draft_model", "good")
        words = [each.params.stop_words for each in trace.submits() if not each.params.temperature and not each.stop]
        many += is_good and any(len(each) > 5 and all(len(word) == 1 for word in each) for each in words)
    assert many > 4


def test_traces_of_an_engine_that_scripts_drafts_have_no_edges() -> None:
    for seed in range(1000):
        trace = random_traces()[seed]
        assert drawn_for(trace, Specstorm.capabilities) == trace


def test_an_engine_that_lacks_what_an_edge_needs_is_drawn_none_of_it() -> None:
    ours = kind_of(VLLM_V1).capabilities
    features = tuple(feature for feature in ours.features if feature != CONTINUES)
    less = replace(ours, features=features, spec={**ours.spec, "decodes_first": (False,), "policy": ("fcfs",)})
    for seed in range(60):
        trace = drawn_for(random_traces()[seed], less)
        assert (trace.spec.decodes_first, trace.spec.policy) == (False, "fcfs")
        assert all(isinstance(event.prompt, PromptDraw) for event in trace.submits())


def test_an_event_at_a_place_that_an_engine_lacks_happens_at_the_next_one() -> None:
    submit = Submit(tick=0, request="a", prompt=PromptDraw(tokens=3), max_tokens=4)
    events = (
        submit,
        Abort(tick=3, at="after_launch", request="a"),
        Preempt(tick=2, at="before_process", request="a", mode="drop"),
    )
    ours = kind_of(VLLM_V1).capabilities
    found = extended(Trace(events=events), ours)
    alone = replace(ours, features=(), spec={**ours.spec, "offloading": (None,)})
    _, abort, preempt = drawn_for(found, alone).events[:3]
    assert abort == Abort(tick=3, at="before_process", request="a")
    assert preempt == Preempt(tick=3, request="a")
