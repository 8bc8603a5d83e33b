"""Runs with sampled tokens: seeds, ambiguous decisions, and bugs in sampling inputs.

Verifies: no scenario file has a decision that float32 could take otherwise; where a run has one nothing is compared
from its step on and everything before; a mistake in what a row is drawn with is found and named.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.events import NanLogits, Submit
from scenarios.sampling import SamplingParams
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.engine.input_batch import Row
from workers.faults.fault import op_like
from workers.kernels.sentinels import NO_DRAFT
from workers.kernels.verify_drafts.definition import DRAFT_OUTSIDE_VOCABULARY, TARGET_UNDEFINED
from workers.oracle.logits_processing import rules_of
from workers.oracle.model_values import ModelValueCache, ModelValues, max_positions
from workers.record.evidence import Difference
from workers.record.verdict import Agreed, Diverged, Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.specstorm import Specstorm

SCENARIOS = Path(__file__).parents[3] / "scenarios"
DRAWN = load(SCENARIOS / "smoke" / "drawn_tokens.yaml").explicit().model_copy(update={"expect": {}})
PATHS = find_scenarios([SCENARIOS])
# Some need what only other engines have. A file is parsed only if it has the key, since every process collects.
WITH_CHANCE = [
    path
    for path in PATHS
    if "temperature" in path.read_text("utf-8")
    for trace in [load(path)]
    if any(event.params.temperature for event in trace.submits()) and lacking(trace, Specstorm.capabilities) is None
]


@pytest.mark.parametrize("path", WITH_CHANCE, ids=lambda path: str(path.stem))
def test_scenario_files_have_no_ambiguous_decision(path: Path) -> None:
    stats = check(load(path).explicit(), ModelValueCache(), Options(races=False)).stats  # type: ignore[union-attr]
    assert stats.probes["random_decision"] > 0
    assert "ambiguous_decision" not in stats.probes


def tape_of(event: Submit, trace: Trace, value_cache: ModelValueCache) -> ModelValues:
    assert isinstance(event.prompt, tuple)
    length = max_positions(len(event.prompt), event.max_tokens, trace.spec)
    return value_cache.model_values(event.prompt, trace.spec, length, rules_of(event))


def test_equal_seeds_sample_equal_tokens() -> None:
    first = next(event for event in DRAWN.submits() if event.params.temperature)
    params = [first.params.model_copy(update={"seed": seed}) for seed in (4, 4, 5)]
    same, again, other = (
        tape_of(first.model_copy(update={"params": each}), DRAWN, ModelValueCache()).tokens for each in params
    )
    assert same == again != other


def marked(position: int) -> ModelValueCache:
    """Return a value cache with an ambiguous token at one output position of a sampled request."""
    value_cache = ModelValueCache()
    event = next(event for event in DRAWN.submits() if event.params.temperature)
    assert isinstance(event.prompt, tuple)
    tape_of(event, DRAWN, value_cache).ambiguous.add(len(event.prompt) + position)
    return value_cache


def from_step(first: int) -> EngineFunctions:
    """Return engine functions that, from a launch on, change each row's first token."""
    clean, launches = EngineFunctions(), [0]

    def body(given: Any) -> None:
        clean.verify_drafts(given)
        launches[0] += 1
        if launches[0] > first:
            given.sampled[:: 1 + given.num_speculative_tokens] ^= 1

    return replace(clean, verify_drafts=op_like(clean.verify_drafts, body))


def test_comparison_stops_at_ambiguous_decision() -> None:
    clean = check(DRAWN, marked(20))
    assert isinstance(clean, Agreed)
    assert clean.stats.probes["ambiguous_decision"] == 1
    whole = check(DRAWN, ModelValueCache())
    assert isinstance(whole, Agreed)
    assert clean.stats.captures < whole.stats.captures
    assert clean.stats.steps == whole.stats.steps
    delayed = from_step(18)
    assert isinstance(check(DRAWN, marked(3), kind=Specstorm(delayed)), Agreed)
    assert isinstance(check(DRAWN, ModelValueCache(), kind=Specstorm(delayed)), Diverged)
    assert isinstance(check(DRAWN, marked(20), kind=Specstorm(from_step(3))), Diverged)


def params_of_the_row_before(rows: Sequence[Row]) -> list[SamplingParams]:
    params = EngineFunctions().row_params(rows)
    return [*params[-1:], *params[:-1]]


def prepared(change: Callable[[Any], None]) -> EngineFunctions:
    """Return engine functions with a bug after the op that prepares sampling inputs."""
    clean = EngineFunctions()

    def body(given: Any) -> None:
        clean.sampling_inputs(given)
        change(given)

    return replace(clean, sampling_inputs=op_like(clean.sampling_inputs, body))


def verified(change: Callable[[Any], None]) -> EngineFunctions:
    """Return engine functions with a bug after the op that verifies draft tokens."""
    clean = EngineFunctions()

    def body(given: Any) -> None:
        clean.verify_drafts(given)
        change(given)

    return replace(clean, verify_drafts=op_like(clean.verify_drafts, body))


def one_position_on(given: Any) -> None:
    given.positions[:] += 1


def one_temperature(given: Any) -> None:
    given.temperature[given.temperature > 0] = 1 << 20


def placeholders_told(given: Any) -> None:
    drafts = given.drafts.reshape(len(given.num_drafts), -1)
    is_scheduled = np.arange(drafts.shape[1]) < given.num_drafts[:, None]
    given.status[:] |= DRAFT_OUTSIDE_VOCABULARY * ((drafts == NO_DRAFT) & is_scheduled).any(axis=1)


def nothing_reported(given: Any) -> None:
    given.status[:] &= ~TARGET_UNDEFINED


MISTAKES = {
    "parameters of the row before": (replace(EngineFunctions(), row_params=params_of_the_row_before), "temperature"),
    "positions one on": (prepared(one_position_on), "noise_positions"),
    "one temperature for all": (prepared(one_temperature), "temperature"),
    "drafts that were never proposed are outside the vocabulary": (verified(placeholders_told), "sampler_status"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_sampling_input_of_row_is_found_at_its_variable(name: str) -> None:
    functions, variable = MISTAKES[name]
    assert found_by(check(DRAWN, ModelValueCache(), kind=Specstorm(functions))).variable == variable


def test_missing_sampler_status_is_found() -> None:
    events = (*DRAWN.events, NanLogits(tick=9, request="likely"))
    trace = DRAWN.model_copy(update={"events": events})
    assert isinstance(check(trace, ModelValueCache()), Agreed)
    found = found_by(check(trace, ModelValueCache(), kind=Specstorm(verified(nothing_reported))))
    assert (found.variable, found.request, found.expected, found.actual) == ("sampler_status", "likely", 2, 0)


def found_by(verdict: Verdict) -> Difference:
    assert isinstance(verdict, Diverged), verdict
    return verdict.difference


def test_noise_by_call_instead_of_position_is_found() -> None:
    clean, calls = EngineFunctions(), [0]

    def body(given: Any) -> None:
        calls[0] += 1
        clean.draw_noise(given.on({"positions": given.positions * 0 + calls[0]}))

    functions = replace(clean, draw_noise=op_like(clean.draw_noise, body))
    assert found_by(check(DRAWN, ModelValueCache(), kind=Specstorm(functions))).variable in (
        "accept_noise",
        "select_noise",
    )
