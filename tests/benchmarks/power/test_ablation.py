"""Searches for a bug without one situation, or with a focus; a trace property is the bug."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.power import ablation
from benchmarks.power.ablation import (
    FAULT_AREAS,
    PROBE,
    Outcome,
    Search,
    Study,
    ablation_table,
    family_of,
    focus_table,
    measured,
    outcome_of,
    reversals_of,
)
from scenarios.generation.catalogue import unknown_focus
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.targets.registry import target_kind
from workers.targets.sglang.installation import SGLANG
from workers.targets.target import SPECSTORM
from workers.targets.vllm.names import VLLM

SITUATIONS = ("reorders", "stalls", "pool_of_one_request")


def study_of(traces: int = 60, hits: int = 8, focus: tuple[str, ...] = ()) -> Study:
    return Study(SPECSTORM, "bug", 0, traces, hits, SITUATIONS, focus)


def has_reorder(trace: Trace) -> bool:
    return any(event.do == "reorder" for event in trace.events)


def has_priorities(trace: Trace) -> bool:
    return trace.spec.policy == "priority"


def no_time() -> float:
    return 0.0


def test_ablation_lists_only_the_situation_that_the_bug_needs() -> None:
    outcome = measured(study_of(), has_reorder, no_time)
    assert outcome.search is not None
    assert len(outcome.search.hits) == 8
    assert outcome.search.traces == outcome.search.hits[-1] + 1
    assert dict(outcome.fewer) == {"reorders": 0}


def test_ablation_runs_no_trace_again_that_the_situation_left_unchanged() -> None:
    ran: list[Trace] = []

    def finds(trace: Trace) -> bool:
        ran.append(trace)
        return True

    outcome = measured(study_of(), finds, no_time)
    assert len(ran) <= 8 + len(SITUATIONS) * 4
    assert dict(outcome.fewer) == {}


def test_ablation_of_a_bug_that_no_trace_finds_lists_nothing() -> None:
    outcome = measured(study_of(traces=12), lambda trace: False, no_time)
    assert (outcome.search, dict(outcome.fewer)) == (Search(traces=12, hits=(), seconds=0), {})


def test_focus_needs_fewer_traces_for_a_bug_of_its_area() -> None:
    outcome = measured(study_of(traces=240, focus=("scheduling",)), has_priorities, no_time)
    assert outcome.search is not None
    assert outcome.focused is not None
    assert outcome.focused.traces < outcome.search.traces


def test_ablation_table_has_lost_and_rarer_bugs_with_their_hits() -> None:
    searches = {"a": Search(traces=9, hits=tuple(range(8)), seconds=1), "b": Search(traces=60, hits=(1, 5), seconds=2)}
    fewer = {"a": {"reorders": 3, "stalls": 0}, "b": {"reorders": 0}}
    outcomes = [
        Outcome(study=study_of()._replace(bug=bug), search=search, fewer=fewer[bug]) for bug, search in searches.items()
    ]
    assert list(ablation_table(SITUATIONS, outcomes)) == [
        "reorders             lost: b (2 to 0); rarer: a (8 to 3)",
        "stalls               lost: a (8 to 0)",
        "pool_of_one_request  nothing",
    ]


def test_focus_table_compares_bugs_that_were_found_both_ways() -> None:
    study = study_of(focus=("kv_cache",))
    plain, missed = Search(traces=20, hits=(9, 19), seconds=30), Search(traces=60, hits=(), seconds=90)
    outcomes = [
        Outcome(study=study, search=plain, focused=Search(traces=5, hits=(4,), seconds=9)),
        Outcome(study=study._replace(bug="missed"), search=missed, focused=plain),
        Outcome(study=study._replace(bug="refused"), refused="it does not start"),
    ]
    assert list(focus_table(outcomes)) == [
        "bug (kv_cache): 2 in 20 traces and 30 s, 10.0 traces and 15 s each; "
        "with focus 1 in 5 traces and 9 s, 5.0 traces and 9 s each",
        "missed (kv_cache): 0 in 60 traces and 90 s; with focus 2 in 20 traces and 30 s, 10.0 traces and 15 s each",
        "median of 1 found both ways: 10.0 traces, 15 s",
        "the same with focus: 5.0 traces, 9 s",
    ]


def test_stored_outcomes_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Outcome(study=study_of(), search=Search(traces=1, hits=(0,), seconds=1))
    file = tmp_path / "outcomes.jsonl"
    file.write_text(stored.model_dump_json() + "\n")
    monkeypatch.setattr(ablation, "outcome_of", lambda study: pytest.fail("it is stored"))
    assert list(ablation.run([study_of()], 1, file)) == [stored]


def test_study_whose_engine_did_not_start_is_measured_again(tmp_path: Path) -> None:
    study = study_of(traces=2, hits=1)._replace(bug=f"{PROBE}admit", situations=())
    file = tmp_path / "outcomes.jsonl"
    file.write_text(Outcome(study=study, refused="no answer").model_dump_json() + "\n")
    (outcome,) = ablation.run([study], 1, file)
    assert (outcome.refused, outcome.search is not None) == ("", True)
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize("option", ["--situation", "--bug"])
def test_ablation_refuses_an_unknown_name(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ablation.main([option, "nothing"]) == 2
    assert capsys.readouterr().err == "ablation: nothing is neither a situation nor a bug of engine specstorm\n"


def test_reversals_belong_to_the_engine_whose_code_they_edit() -> None:
    for engine, prefix in ((VLLM, "vllm-"), (SGLANG, "sglang-")):
        found = [each.id for each in reversals_of(engine)]
        assert found
        assert all(name.startswith(prefix) for name in found)


def test_probe_is_measured_like_a_bug() -> None:
    study = study_of(hits=4)._replace(bug=f"{PROBE}reorder")
    outcome = outcome_of(study)
    assert outcome.search is not None
    assert len(outcome.search.hits) == 4
    assert dict(outcome.fewer) == {"reorders": 0}


def test_values_that_one_situation_generates_are_lost_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--values", "--traces", "60", "--hits", "2", "--workers", "1", "--situation", "reorders"]
    assert ablation.main([*asked, "--bug", "value event reorder", "--bug", "value event preempt"]) == 0
    assert capsys.readouterr().out == "reorders  lost: value event reorder (2 to 0)\n"


def test_families_of_faults_have_one_area_except_recurrent_states() -> None:
    families = {family_of(fault) for fault in FAULTS} - {"aligned", "recurrent"}
    assert sorted(name for names in FAULT_AREAS.values() for name in names) == sorted(families)
    assert unknown_focus(FAULT_AREAS, target_kind(SPECSTORM).capabilities) == ""


def test_study_of_a_reversal_has_the_focus_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Study] = []

    def run(studies: Sequence[Study], workers: int, file: Path | None) -> Iterator[Outcome]:
        started.extend(studies)
        return iter(())

    monkeypatch.setattr(ablation, "run", run)
    assert ablation.main(["--engine", VLLM, "--focus", "--bug", "vllm-40756-count-of-none"]) == 0
    (study,) = started
    assert (study.focus, study.situations) == (("recurrent_state",), ())
