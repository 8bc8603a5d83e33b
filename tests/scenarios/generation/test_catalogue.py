"""Situations of each engine: names, weights, generated traces, `--focus` and exclusion.

Verifies: names, areas and weights; limits of the engine, from KV cache and prefill sizes to its drafters; focus.
"""

import re
from collections import Counter

import pytest

from scenarios.capabilities import Capabilities, lacking
from scenarios.events import CONTROL_EVENTS
from scenarios.generation.base import labelled_trace
from scenarios.generation.catalogue import for_engine, generated_for, situations_of, unknown_focus, weights_of
from scenarios.generation.weights import AREAS, DEFAULT, WEIGHTS, Weight, Weights
from scenarios.sampling import PARAMS, Feature
from scenarios.trace import Trace, problems
from tests.scenarios.generated_traces import engine_traces, generated, having, random_traces
from workers.targets.registry import known_engines, target_kind
from workers.targets.sglang.installation import SGLANG
from workers.targets.specstorm import Specstorm
from workers.targets.target import SPECSTORM, RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1

ENGINES = {name: target_kind(name).capabilities for name in known_engines()}
# Situations that need a rare specification and may be missing in these 400 traces.
RARE = {"branches_in_a_store", "drafter_of_few_positions", "hybrid_model", "last_match_taken"}


def test_weights_name_exactly_the_situations_of_all_engines() -> None:
    on_a_cpu = target_kind(VLLM_V1).capabilities_under(RunConfig(engine=VLLM_V1, device="cpu"))
    known = {name for engine in (*ENGINES.values(), on_a_cpu) for name in situations_of(engine)}
    assert known == WEIGHTS.keys()
    assert all(0 < weight <= 1 for weight in WEIGHTS.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_situation_has_standard_name_area_and_one_line(engine: str) -> None:
    known = situations_of(ENGINES[engine])
    for name, each in known.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert each.area in AREAS
        assert each.finds
        assert "\n" not in each.finds
        assert each.part_of in ("", *known)
        assert {each.along_with, *each.unless} <= {"", *WEIGHTS}
    sizes = [WEIGHTS[name] for name, each in known.items() if each.stage in ("size", "last")]
    assert sum(sizes, Weight(0)) <= 1


@pytest.mark.parametrize("engine", ENGINES)
def test_every_situation_of_an_engine_is_generated_in_valid_traces(engine: str) -> None:
    counts: Counter[str] = Counter()
    for trace, situations in generated(engine):
        counts.update(situations)
        assert is_valid(trace)
        assert engine == SPECSTORM or lacking(trace, ENGINES[engine]) is None
    known = situations_of(ENGINES[engine])
    assert counts.keys() <= known.keys()
    assert known.keys() - counts.keys() <= RARE
    assert generated_for(labelled_trace(7), ENGINES[engine]) == generated(engine)[7]


def is_valid(trace: Trace) -> bool:
    """Return whether a trace's values are valid in a file, and the engine can run it."""
    return Trace.model_validate(trace.model_dump()) == trace and not problems(trace)


def test_traces_of_an_engine_with_small_blocks_and_few_features_are_valid() -> None:
    engine = Capabilities(events=("abort",), hooks=("before_schedule",), spec={"depth": (1, 2), "max_num_seqs": ()})
    found = [generated_for(labelled_trace(seed), engine) for seed in range(200)]
    assert all(is_valid(each.trace) for each in found)
    assert any("outgrown_pool" in each.situations for each in found)


def test_every_added_sampling_parameter_is_in_some_trace() -> None:
    submits = [each for trace in engine_traces(VLLM_V1) for each in trace.submits()]
    for name, each in PARAMS.items():
        if each.added is not Feature().added:
            assert len({getattr(submit.params, name) for submit in submits}) > 1, name


def test_engine_with_scripted_drafts_keeps_its_random_traces() -> None:
    assert [for_engine(trace, Specstorm.capabilities) for trace in random_traces()] == list(random_traces())


def test_control_plane_events_follow_events_of_the_trace() -> None:
    engine = Capabilities(events=CONTROL_EVENTS, features=("accept",))
    found = [for_engine(trace, engine).events for trace in random_traces()[:200]]
    added = [after[len(trace.events) :] for trace, after in zip(random_traces(), found, strict=False)]
    assert all(after[: len(trace.events)] == trace.events for trace, after in zip(random_traces(), found, strict=False))
    assert 25 < sum(map(bool, added)) < 100
    assert {event.do for events in added for event in events} == set(CONTROL_EVENTS)


@pytest.mark.parametrize(
    ("engine", "name"), [(SPECSTORM, "request_id_reuse"), (VLLM, "kv_store"), (VLLM, "long_prompt")]
)
def test_situation_left_out_changes_only_traces_with_it(engine: str, name: str) -> None:
    weights = Weights(without=frozenset((name,)))
    for seed in range(100):
        before = generated(engine)[seed]
        after = generated_for(labelled_trace(seed, weights), ENGINES[engine], weights)
        assert name not in after.situations
        assert after == before or name in before.situations


def test_size_left_out_is_in_no_trace() -> None:
    weights = Weights(without=frozenset(("outgrown_pool", "preempt_as_last_chunk_is_stored")))
    for seed in range(100):
        assert not weights.without & {*generated_for(labelled_trace(seed, weights), ENGINES[VLLM], weights).situations}


@pytest.mark.parametrize("focus", ["windows_with_draft_model", "sliding_window"])
def test_focus_raises_situation_or_area_with_its_whole(focus: str) -> None:
    weights = weights_of((focus,), (), ENGINES[VLLM])
    assert {"windows_with_draft_model", "sliding_windows"} <= weights.focus
    assert weights["sliding_windows"] == Weight(4, 7)
    assert weights["handoff"] == DEFAULT["handoff"]
    found = [generated_for(labelled_trace(seed, weights), ENGINES[VLLM], weights) for seed in range(100)]
    count = sum("windows_with_draft_model" in situations for _, situations in found)
    assert 2 * count > len(having(VLLM, "windows_with_draft_model"))
    assert all(problems(trace) == [] and lacking(trace, ENGINES[VLLM]) is None for trace, _ in found)


def test_focus_raises_weights_up_to_bound_and_lowers_none() -> None:
    every = Weights(focus=frozenset(WEIGHTS))
    assert all(WEIGHTS[name] <= every[name] <= max(WEIGHTS[name], Weight(3, 4)) for name in WEIGHTS)


def test_unknown_focus_is_refused_with_allowed_names() -> None:
    engine = ENGINES[SGLANG]
    assert unknown_focus(("short_pool", "scheduling"), engine) == ""
    message = unknown_focus(("scheduling", "sliding_windows"), engine)
    assert message.startswith("'sliding_windows'; allowed are areas scheduling, ")
    assert "short_pool" in message
    assert "connectors" not in message


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_keys_of_sglang_are_in_no_trace_of_other_engines(engine: str) -> None:
    for key in ("plan_stream", "relay_lengths", "mixed_chunks", "tree_width"):
        assert len({getattr(trace.spec, key) for trace in engine_traces(engine)}) == 1
