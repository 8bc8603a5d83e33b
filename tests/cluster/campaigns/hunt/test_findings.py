"""Findings of a hunt are shrunk and written once; duplicates are marked."""

from pathlib import Path

from cluster.campaigns.hunt.findings import Findings
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.triage import Triage
from cluster.dispatch.job import program
from cluster.reports.hunt_report import hunt_lines
from cluster.storage.hunts import FindingState
from scenarios.generation.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import Memory, buggy, canary_or, diverged, hit, hunt_of, run_through, trace
from workers.record.verdict import Diverged, Judgement
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Shrinking


def test_bug_is_shrunk_and_written_once_in_a_resumed_hunt() -> None:
    ledger = Memory()
    for _ in range(3):
        hunt = hunt_of(10 * TRACES_PER_SHARD, ledger)
        run_through(hunt, canary_or(buggy))
        assert hunt.findings.by_bug["counts x"].count == 6
    assert [len(each.trace.events) for each in ledger.artefacts] == [1]
    assert ledger.restored == ledger.artefacts * 2, "each resumed hunt checks that the artefact exists"


def test_finding_that_shrinks_to_an_earlier_one_gets_no_artefact() -> None:
    ledger = Memory()
    hunt = hunt_of(3 * TRACES_PER_SHARD, ledger)
    run_through(hunt, canary_or(buggy))
    assert [p.state.same_as for p in hunt.findings.by_bug.values()] == [None, "counts x"]
    assert len(ledger.artefacts) == 1


def test_untriaged_finding_is_stored_with_its_trace_when_time_is_over() -> None:
    ledger = Memory()
    findings = Findings(HuntSettings(canary=""), ledger)
    findings.add(hit("x"), 7)
    (kept,) = ledger.findings.values()
    state = FindingState.model_validate_json(kept)
    assert (state.bug, state.first, state.artefact) == ("counts x", 7, None)
    findings.keep_open()
    assert [each.trace for each in ledger.artefacts] == [hit("x").trace]
    (kept,) = ledger.findings.values()
    assert FindingState.model_validate_json(kept).artefact is not None
    # A resumed hunt still has to shrink it, and restores nothing.
    again = Findings(HuntSettings(canary=""), ledger)
    again.add(hit("x"), 7)
    assert again.num_open == 1
    assert ledger.restored == []


def test_signatures_of_hits_name_bugs() -> None:
    assert hit("x").signature == Signature(plane="counts", variable="x")


def confirmed(plane: str, *faults: str, spent: int = 40, size: int = 1) -> FindingState:
    """Return a confirmed finding in a plane, with some faults in its smallest trace."""
    difference = diverged(f"{plane} value").difference.model_copy(update={"plane": plane})
    verdict = Diverged(stats=diverged("x").stats, difference=difference)
    small = trace(size).model_copy(update={"faults": faults})
    shrinking = Shrinking.of(small, verdict).model_copy(update={"spent": spent})
    judgement = Judgement(verdict=verdict, trace=small, schedules=1)
    return FindingState(
        bug=shrinking.target.bug,
        first=0,
        size=3,
        trace=small,
        verdict=verdict,
        stage="confirmed",
        shrinking=shrinking,
        judgement=judgement,
    )


def closed(*states: FindingState) -> Findings:
    """Return the closed findings of a hunt with these findings."""
    findings = Findings(HuntSettings(canary=""), Memory())
    for state in states:
        findings.by_bug[state.bug] = Triage(state)
    findings.close()
    return findings


def test_planted_fault_in_three_planes_is_one_finding() -> None:
    findings = closed(confirmed("counts", "f"), confirmed("tokens", "f", size=2), confirmed("kv", "f"))
    assert len(findings) == 1
    (first,) = findings.distinct()
    assert [each.state.bug for each in findings.duplicates_of(first)] == ["tokens tokens value", "kv kv value"]
    assert all(each.state.artefact is not None for each in findings)


def test_two_faults_and_a_finding_that_needs_both_are_distinct() -> None:
    assert len(closed(confirmed("counts", "f"), confirmed("tokens", "g"))) == 2
    assert len(closed(confirmed("counts", "f"), confirmed("tokens", "f", "g"))) == 2
    findings = closed(confirmed("counts", "f"), confirmed("tokens", "g"), confirmed("kv", "g"), confirmed("state", "f"))
    assert [len(findings.duplicates_of(each)) for each in findings.distinct()] == [1, 1]


def test_findings_without_a_known_cause_stay_distinct() -> None:
    limit = confirmed("counts", "f").shrinking
    assert limit is not None
    assert len(closed(confirmed("counts", "f"), confirmed("tokens", "f", spent=limit.limit))) == 2
    assert len(closed(confirmed("counts"), confirmed("tokens"))) == 2
    assert len(closed(confirmed("counts", "f"), confirmed("tokens"))) == 2


def test_duplicate_with_same_cause_is_listed_and_not_counted() -> None:
    hunt = hunt_of(TRACES_PER_SHARD, Memory())
    for state in (confirmed("counts", "f"), confirmed("tokens", "f")):
        hunt.findings.by_bug[state.bug] = Triage(state)
    hunt.findings.close()
    lines = [line.strip() for line in hunt_lines(hunt, Path("campaigns/hunt-0001"))]
    assert lines[-1] == "1 finding"
    (face,) = [line for line in lines if line.startswith("also shows as tokens tokens value")]
    assert face.endswith("its smallest trace needs f too: campaigns/hunt-0001/artefacts/fake-00000002.yaml")


def test_a_hunt_prints_a_replay_line_that_can_be_typed_where_it_was_started() -> None:
    hunt, folder = hunt_of(TRACES_PER_SHARD, Memory()), Path("campaigns/hunt-0001")
    state = confirmed("counts", "f")
    hunt.findings.by_bug[state.bug] = Triage(state)
    hunt.findings.close()
    (line,) = [line.strip() for line in hunt_lines(hunt, folder) if "replay:" in line]
    assert line == f"replay: {program()} replay {folder}/artefacts/fake-00000001.yaml"
