"""Every pair of features runs and agrees, or is refused by the table of refusals."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest

from scenarios.codec import dumps
from scenarios.events import AnyEvent, Schedule, Submit
from scenarios.features import REFUSED, SWITCHED_OFF, refusals, switched_off
from scenarios.probes import PROBES
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec, Value
from scenarios.trace import Trace, problems
from tests.workers.run.feature_list import FEATURES, SUBMITS, alternatives, composed, specification
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Stats
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.specstorm import Specstorm

VALUE_CACHE = ModelValueCache()
RUNS: dict[str, Stats] = {}
LAZY = Schedule(policy="lazy")


def agreed(trace: Trace) -> Stats:
    """Return the statistics of a trace that must agree.

    Each trace runs once, every other one under lazy, too.
    """
    text = dumps(trace)
    if text not in RUNS:
        eager = check(trace, VALUE_CACHE)
        assert isinstance(eager, Agreed), eager
        if len(RUNS) % 2 == 0:
            lazy = check(trace.model_copy(update={"schedule": LAZY}), VALUE_CACHE, Options(races=False))
            assert isinstance(lazy, Agreed), lazy
            assert lazy.stats.digest == eager.stats.digest
        RUNS[text] = eager.stats
    return RUNS[text]


@cache
def outcome(first: int, second: int) -> Stats | None:
    """Return the statistics of a pair of features, or None if the table refuses it.

    It is refused for what the two features ask for, not for the sizes of the trace or for what they need beside them;
    a switch that is off has no effect.
    """
    pair = [FEATURES[index] for index in sorted((first, second))]
    trace, asked = composed(*pair), specification(*pair)
    if found := problems(trace):
        rules = refusals(trace.spec, ())
        assert [problem.message for problem in found] == [rule.message(trace.spec) for rule in rules]
        assert all(rule.applies(asked) for rule in rules), [rule.key for rule in rules]
        return None
    stats = agreed(trace)
    for rule in switched_off(trace.spec, ()):
        off = trace.spec.model_copy(update={rule.key: EngineSpec.model_fields[rule.key].default})
        assert stats == agreed(trace.model_copy(update={"spec": off}))
        assert rule.key in PROBES
        assert rule.key not in stats.probes
    return stats


def partners(index: int) -> list[int]:
    """Return the features that can be combined with this one."""
    own = FEATURES[index]
    return [other for other, feature in enumerate(FEATURES) if other != index and not alternatives(feature, own)]


def pairs() -> list[Trace]:
    """Return the trace of every pair, refused or not."""
    indexes = range(len(FEATURES))
    return [
        composed(FEATURES[index], FEATURES[other]) for index in indexes for other in partners(index) if index < other
    ]


@pytest.mark.parametrize("index", range(len(FEATURES)), ids=lambda index: FEATURES[index].name)
def test_feature_alone_and_in_pairs_agrees_or_is_refused(index: int) -> None:
    feature = FEATURES[index]
    alone = composed(feature)
    if problems(alone):
        assert {outcome(index, other) for other in partners(index)} == {None}
        return
    assert set(feature.shows) <= set(agreed(alone).probes)
    wrong, hits = [], []
    for other in partners(index):
        try:
            stats = outcome(index, other)
        except AssertionError as error:
            wrong.append(f"{FEATURES[other].name}: {error}")
            continue
        hits += [set(feature.shows) <= set(stats.probes)] if stats else []
    assert not wrong, "\n".join(wrong)
    assert len(hits) >= 40
    assert sum(hits) > 0.6 * len(hits)


def test_every_refusal_rule_applies_to_some_pair() -> None:
    specs = [trace.spec for trace in pairs()]
    refusing = {index for spec in specs for index, rule in enumerate(REFUSED) if rule.applies(spec)}
    assert refusing == set(range(len(REFUSED)))
    switching = {index for spec in specs for index, rule in enumerate(SWITCHED_OFF) if rule.applies(spec)}
    assert switching == set(range(len(SWITCHED_OFF)))


def test_pair_refused_as_wrong_goes_wrong_if_allowed() -> None:
    tried = 0
    for trace in pairs():
        rules = refusals(trace.spec, ())
        if rules and {rule.key for rule in rules} <= {"prefix_cache", "drafter"}:
            tried += 1
            assert isinstance(check(trace, VALUE_CACHE), Diverged), [rule.message(trace.spec) for rule in rules]
    assert tried >= 10


def values_of_keys(model: type[Value]) -> Mapping[str, set[Any]]:
    """Return the keys of a model with few possible values, and these values."""
    found: dict[str, set[Any]] = {}
    for key, info in model.model_fields.items():
        if info.annotation is bool:
            found[key] = {False, True}
        elif get_origin(info.annotation) is Literal:
            found[key] = set(get_args(info.annotation))
    return found


def given(where: str) -> dict[str, list[Any]]:
    """Return all values that the features give to each key of `where`, e.g. of `spec`."""
    found: dict[str, list[Any]] = {}
    for feature in FEATURES:
        for (place, key), value in feature.values().items():
            if place == where:
                found.setdefault(key, []).append(value)
    return found


def test_features_cover_every_key_of_specification() -> None:
    found = given("spec")
    # Keys of other engines, which ours does not have.
    assert set(found) == set(EngineSpec.model_fields) - {
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
    for key in found.keys() & values_of_keys(EngineSpec).keys():
        values = values_of_keys(EngineSpec)[key]
        allowed = Specstorm.capabilities.allowed(key)
        values = values if allowed is None else values & set(allowed)
        assert values <= {*found[key], EngineSpec.model_fields[key].default}, key


def test_features_cover_every_key_of_request() -> None:
    assert set(given("params")) == set(SamplingParams.model_fields) & set(Specstorm.capabilities.features)
    # Every request has a name and parameters; one feature uses a name again. Sessions and ranks are of other engines.
    assert set(given("submit")) == set(Submit.model_fields) - {"do", "request", "params", "session", "data_rank"}
    again = [event for feature in FEATURES for event in feature.events if isinstance(event, Submit)]
    assert {event.request for event in again} <= {event.request for event in SUBMITS}
    assert again


def test_features_cover_every_kind_of_event() -> None:
    kinds = [
        kind
        for kind in get_args(get_args(AnyEvent)[0])
        if kind is Submit or kind.model_fields["do"].default in Specstorm.capabilities.events
    ]
    assert len(kinds) >= 9
    events = [event for feature in FEATURES for event in feature.events]
    assert {type(event) for event in events} == set(kinds)
    for kind in kinds:
        for key, values in values_of_keys(kind).items():
            if key not in ("do", "at"):
                assert {getattr(event, key) for event in events if isinstance(event, kind)} == values, (kind, key)
    places = {event.at for event in events} | set(given("submit")["at"])
    assert places == values_of_keys(Submit)["at"]


def test_feature_names_are_unique_and_probes_exist() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    assert {probe for feature in FEATURES for probe in feature.shows} <= set(PROBES)
    assert not any(alternatives(feature, feature) for feature in FEATURES)
