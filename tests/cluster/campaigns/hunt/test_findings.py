"""A bug is shrunk and written once, and one that comes out as another is told so."""

from scenarios.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import Memory, buggy, canary_or, hit, hunt_of, run_through
from workers.shrink.fingerprint import Signature


def test_a_bug_is_shrunk_and_written_once_however_often_it_is_met_and_however_often_the_hunt_is_resumed() -> None:
    ledger = Memory()
    for _ in range(3):
        hunt = hunt_of(10 * TRACES_PER_SHARD, ledger)
        run_through(hunt, canary_or(buggy))
        assert hunt.findings.by_bug["counts x"].count == 6
    assert [len(each.trace.events) for each in ledger.artefacts] == [1]
    assert ledger.restored == ledger.artefacts * 2, "each hunt that goes on looks whether it is there"


def test_a_finding_that_comes_out_as_an_earlier_one_when_shrunk_is_told_so_and_gets_no_artefact() -> None:
    ledger = Memory()
    hunt = hunt_of(3 * TRACES_PER_SHARD, ledger)
    run_through(hunt, canary_or(buggy))
    assert [p.state.same_as for p in hunt.findings.by_bug.values()] == [None, "counts x"]
    assert len(ledger.artefacts) == 1


def test_signatures_of_hits_name_bugs() -> None:
    assert hit("x").signature == Signature(plane="counts", variable="x")
