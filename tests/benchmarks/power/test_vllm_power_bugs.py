from typing import Any

import pytest

from benchmarks.power.vllm_power import bugs
from benchmarks.power.vllm_power.bugs import Bug, TableError, check, missing_features
from benchmarks.power.vllm_power.reversals import ENGINES, all_reversals
from scenarios.codec import load
from workers.targets.vllm.installation import ROOT

STALLED = "scenarios/vllm/padded_drafts.yaml"
GOOD = Bug(1, "class", "what", ("there",), ("vllm",), ("num_speculative_tokens", "stall"), ("crash",), (STALLED,))


@pytest.fixture
def some_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "means", lambda folder: {"there": True, "not there": False})


def test_bugs_have_number_class_text_and_described_features() -> None:
    every, means = bugs.bugs(), bugs.means()
    assert len(every) == len({bug.number for bug in every}) == 117
    assert all(bug.kind and bug.what for bug in every)
    assert {each for bug in every for each in bug.means} == set(means) == set(bugs.descriptions())
    assert all(bugs.descriptions().values())


@pytest.mark.parametrize("bug", bugs.bugs(), ids=lambda bug: str(bug.number))
def test_evidence_of_expressible_bug_exists(bug: Bug) -> None:
    check(bug)


def test_expressible_bugs_have_reversals_on_their_engines() -> None:
    expressed = [bug for bug in bugs.bugs() if not missing_features(bug)]
    assert expressed
    for bug in expressed:
        runners = {ENGINES[runner] for each in all_reversals() if each.number == bug.number for runner in each.runners}
        assert set(bug.engines) == runners, f"#{bug.number}: its reversals are of {runners}"


@pytest.mark.usefixtures("some_means")
def test_bug_lacks_missing_features() -> None:
    assert missing_features(GOOD._replace(means=("there", "not there"))) == ("not there",)
    check(GOOD)


@pytest.mark.usefixtures("some_means")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"means": ("not there",)}, "a feature is missing: engines, trace, planes and evidence must be empty"),
        ({"planes": ()}, "no feature is missing: engines, trace, planes and evidence are required"),
        ({"engines": ("vllm-v3",)}, "allowed engines: vllm, vllm-v1"),
        ({"planes": ("fog",)}, "allowed planes: races"),
        ({"trace": ("snooze",)}, "'snooze' is no key"),
        ({"trace": ("transfer.snooze",)}, "'transfer.snooze' is no key"),
        ({"evidence": ("scenarios/vllm/no.yaml",)}, "no.yaml: file not found"),
        ({"evidence": ("findings/README.md",)}, "accepts none of its scenarios"),
        ({"trace": ("preempt",)}, "lacks preempt"),
        ({"trace": ("drafter=eagle",)}, "lacks drafter=eagle"),
        ({"trace": ("transfer.loads=synchronous",)}, "lacks transfer.loads=synchronous"),
        ({"trace": ("num_logprobs",)}, "lacks num_logprobs"),
        ({"trace": ("continues",)}, "lacks continues"),
    ],
)
def test_missing_evidence_of_a_bug_is_reported(change: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError, match=rf"^bugs_2026.csv: #1: .*{why}"):
        check(GOOD._replace(**change))


@pytest.mark.usefixtures("some_means")
def test_refused_scenario_is_no_evidence_for_the_engine() -> None:
    reordering = "scenarios/vllm-v1/decodes_first.yaml"
    assert load(ROOT / reordering).spec.decodes_first
    bug = GOOD._replace(trace=("decodes_first",), evidence=(reordering,))
    check(bug._replace(engines=("vllm-v1",)))
    with pytest.raises(TableError, match=r"vllm accepts none of its scenarios: spec\.decodes_first"):
        check(bug)


def test_scenario_events_features_and_values() -> None:
    turns = load(ROOT / "scenarios/vllm/second_turns.yaml")
    drawn = load(ROOT / STALLED)
    assert all(bugs.has(turns, part) for part in ("continues", "layers=attention", "prefix_cache=true"))
    assert all(bugs.has(drawn, part) for part in ("temperature", "allowed_tokens", "drafter=ngram_gpu", "stall"))
    assert not any(bugs.has(drawn, part) for part in ("stop", "transfer", "preempt", "drafter=eagle", "min_p"))


def test_feature_without_valid_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "_rows", lambda name, folder: iter([{"means": "half", "state": "some", "what": "w"}]))
    with pytest.raises(TableError, match="half: 'some'; expected has or lacks"):
        bugs.means()
