"""Draws of SGLang's own: drawn for SGLang alone, valid, and in as many traces as are needed."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest

from scenarios.capabilities import lacking
from scenarios.events import Pause, PromptDraw, Submit
from scenarios.random_trace import random_trace
from scenarios.sampling import Grammar
from scenarios.shards import Shard
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from workers.run.shard import shard_traces
from workers.targets.registry import kind_of
from workers.targets.sglang.draws import short_pool, taken_back, with_repeated_grammars
from workers.targets.sglang.installation import SGLANG
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1


@cache
def some_drawn() -> Sequence[Trace]:
    """Return 300 traces of a hunt of SGLang, overlapped ones."""
    shards = [Shard(profile="mixed", seed=5, number=number) for number in range(25)]
    every = [trace for shard in shards for trace in shard_traces(shard, RunConfig(engine=SGLANG))]
    return [trace for trace in every if trace.spec.depth > 1]


def first(bound: int, what: str, index: int) -> int:
    """Draw the lowest number always."""
    return 0


def with_grammars(trace: Trace) -> list[Grammar]:
    """Return the grammars of a trace's requests."""
    return [each.params.grammar for each in trace.submits() if each.params.grammar]


def is_taken_back(trace: Trace) -> bool:
    """Tell whether somebody comes who goes first when the only row's request has its last token in flight."""
    spec, submits = trace.spec, sorted(trace.submits(), key=lambda each: each.tick)
    is_about = any(a.priority > b.priority and b.tick == a.tick + a.max_tokens for a, b in pairwise(submits))
    return spec.policy == "priority" and spec.max_num_seqs == 1 and is_about


def is_repeated(trace: Trace) -> bool:
    """Tell whether requests of one prompt and one grammar are drafted by a corpus."""
    grammars = with_grammars(trace)
    is_of_one = len(grammars) > 2 and len(set(grammars)) == 1
    return trace.spec.drafter == "ngram_corpus" and is_of_one


def is_paused_behind_a_prompt(trace: Trace) -> bool:
    """Tell whether requests are sent back when one came with the step before."""
    begun = {each.tick for each in trace.submits()}
    pauses = [each for each in trace.events if isinstance(each, Pause)]
    return any(each.mode == "keep" and each.clear_cache and each.tick - 1 in begun for each in pauses)


def test_a_few_traces_in_a_hundred_of_sglang_are_of_each_kind() -> None:
    traces = some_drawn()
    shares = [sum(map(kind, traces)) / 300 for kind in (is_taken_back, is_repeated, is_paused_behind_a_prompt)]
    assert min(shares) >= 0.015
    assert max(shares) <= 0.1
    taken = [trace for trace in traces if is_taken_back(trace)]
    assert {trace.spec.num_speculative_tokens > 0 for trace in taken} == {False, True}
    assert {bool(with_grammars(trace)) for trace in taken if trace.spec.num_speculative_tokens} == {False, True}


def test_whatever_is_drawn_both_kinds_are_valid_within_what_sglang_can_do() -> None:
    capabilities = kind_of(SGLANG).capabilities
    for trace in some_drawn():
        assert problems(trace) == []
        assert lacking(trace, capabilities) is None
    for seed in range(60):
        trace = random_trace(seed)
        for drawn in (taken_back, with_repeated_grammars):
            spec, events = drawn(trace.spec.model_copy(update={"layers": "attention"}), trace.events, first)
            assert problems(trace.model_copy(update={"spec": spec, "events": tuple(events)})) == []


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_traces_of_other_engines_have_none_of_its_keys(engine: str) -> None:
    traces = shard_traces(Shard(profile="labelled", seed=5, number=0), RunConfig(engine=engine))
    assert traces
    for key in ("plan_stream", "relay_lengths", "mixed_chunks", "tree_width"):
        assert {getattr(trace.spec, key) for trace in traces} == {EngineSpec.model_fields[key].default}


def test_a_short_pool_holds_the_longest_request_and_not_two_and_all_become_the_longest() -> None:
    for seed in range(60):
        trace = random_trace(seed)
        spec, events = short_pool(trace.spec, trace.events, first)
        submits = [each for each in events if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw)]
        assert all(each.prompt_length + each.max_tokens == spec.max_model_len for each in submits)
        kept = 3 * spec.block_size + 2 * (1 + spec.num_speculative_tokens)
        assert 0 <= spec.num_blocks * spec.block_size - spec.max_model_len - kept < spec.block_size
        assert spec.max_num_seqs >= 2


def test_models_end_with_a_wide_page_in_several_traces_of_a_hundred() -> None:
    wide = [trace for trace in some_drawn() if trace.spec.block_size == 16]
    assert 0.04 < len(wide) / 300 < 0.2
    assert all(trace.spec.max_model_len % 16 == 0 for trace in wide)
    near = [any(trace.spec.max_model_len - each.prompt_length <= 12 for each in trace.submits()) for trace in wide]
    assert sum(near) > len(wide) // 2


def test_the_end_of_a_repeated_grammar_is_a_draft_where_all_drafts_are_right() -> None:
    alone = Submit(tick=3, request="a", prompt=PromptDraw(tokens=40), max_tokens=1)
    for k in range(9):
        spec, events = with_repeated_grammars(EngineSpec(num_speculative_tokens=k), [alone], first)
        submits = [each for each in events if isinstance(each, Submit)]
        assert len(submits) == 3
        assert len({each.prompt for each in submits}) == 1
        num_tokens = len(submits[0].params.grammar) - 1
        assert submits[0].max_tokens > num_tokens
        # The first token is that of the prompt's step.
        run = 1 + spec.num_speculative_tokens
        assert (num_tokens - 1) % run != 0
