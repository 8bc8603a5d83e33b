"""Merging campaigns is idempotent, commutative and associative, and loses nothing."""

import json
import resource
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.robustness.store_damage import run, scenarios_of
from cluster.cli import main as cli
from cluster.storage.campaign import Campaign
from cluster.storage.errors import CampaignError
from cluster.storage.merging import merge, take
from cluster.storage.schema import TABLES, Row
from cluster.storage.store import Store
from scenarios.generation.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import buggy, canary_or, hunt_of, report, run_through
from tests.cluster.fake_judge import FakeJudge, trace
from workers.record.verdict import Judgement, Lost


class Rows:
    """A campaign's tables in memory."""

    def __init__(self, rows: Iterable[tuple[str, Row]] = ()) -> None:
        self.tables: dict[str, dict[Row, Row]] = {}
        for table, row in rows:
            take(self, table, row)

    def get(self, table: str, key: Row) -> Row | None:
        return self.tables.get(table, {}).get(key)

    def put(self, table: str, row: Row) -> None:
        self.tables.setdefault(table, {})[row[: TABLES[table].num_keys]] = row

    def merged(self, other: "Rows") -> "Rows":
        return Rows(
            (table, row) for one in (self, other) for table, rows in one.tables.items() for row in rows.values()
        )


few = st.sampled_from
job, digest, attempt = few(("j1", "j2")), few(("d1", "d2", "d3")), st.integers(1, 3)
states = st.builds(
    lambda stage, size: json.dumps({"stage": stage, "size": size}), few(("closed", "shrink", "explain")), attempt
)
results = st.builds(
    lambda job, scenario, attempt, kind, digest: (
        ("results", (job, scenario, attempt, kind, digest, None, f"judgement {digest}"))
    ),
    job,
    few(("a.yaml", "b.yaml")),
    attempt,
    few(("agreed", "lost")),
    digest,
)
attempts = st.tuples(
    st.just("attempts"),
    st.builds(
        lambda job, attempt, run, end: (job, attempt, run, 0, *end),
        job,
        attempt,
        few(("r1", "r2")),
        few(((None, None), ("abandoned", None), ("agreed", None), ("lost", "its process died"))),
    ),
)
late = st.builds(
    lambda job, digest, attempt: ("late", (job, digest, attempt, f"judgement {digest}")), job, digest, attempt
)
shards = st.builds(lambda job, digest: ("shards", (job, "hunt", 0, digest, f"report {digest}")), few(("s1",)), digest)
findings = st.builds(lambda bug, state: ("findings", (bug, state)), few(("b1", "b2")), states)
hunts = st.tuples(st.just("hunts"), st.tuples(few(("p1", "p2"))))
campaigns = st.builds(Rows, st.lists(st.one_of(results, attempts, late, shards, findings, hunts), max_size=8))


@settings(max_examples=300)
@given(campaigns, campaigns, campaigns)
def test_a_merge_is_idempotent_commutative_and_associative(a: Rows, b: Rows, c: Rows) -> None:
    assert a.merged(a).tables == a.tables
    assert a.merged(b).tables == b.merged(a).tables
    assert a.merged(b).merged(c).tables == a.merged(b.merged(c)).tables
    for table in ("results", "shards"):
        at = TABLES[table].columns.index("digest")
        for one in (a, b):
            for row in one.tables.get(table, {}).values():
                both = a.merged(b)
                kept = {each[at] for key, each in both.tables[table].items() if key == row[:1]}
                kept |= {each[1] for key, each in both.tables.get("late", {}).items() if key[0] == row[0]}
                assert row[at] in kept or row[3] == "lost", "no answer is lost"


def contents(folder: Path) -> dict[str, object]:
    """Return all rows of a campaign, and its files by name, without SQLite's own files."""
    with Campaign(folder) as campaign:
        found: dict[str, object] = {table: list(campaign.select(table)) for table in TABLES}
        assert campaign.remarks == []
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return found | {name: path.read_bytes() for name, path in files.items() if "campaign." not in name}


def merged(folder: Path, name: str, *sources: Path) -> Path:
    """Merge campaigns into a new one."""
    merge(sources, folder / name)
    return folder / name


def test_sharded_campaigns_on_disk_merge_alike_in_any_order(tmp_path: Path) -> None:
    scenarios = scenarios_of(12)
    folders = [tmp_path / name for name in "abc"]
    for folder, part in zip(folders, (scenarios[:8], scenarios[6:], scenarios[3:4]), strict=True):
        run(folder, part)
        run(folder / "regressions", part[:1])
    lost = scenarios[7].job
    with Store(folders[2]) as store:
        store.begin(lost, 1, 0, "s7.yaml")
        store.record(lost, 1, Judgement(verdict=Lost(reason="x"), trace=lost.trace, schedules=0), "s7.yaml")
    a, b, c = folders
    left = merged(tmp_path, "left", merged(tmp_path, "ab", a, b), c)
    right = merged(tmp_path, "right", c, merged(tmp_path, "ba", b, a), a)
    assert contents(left) == contents(right)
    before = contents(left)
    shutil.copytree(left, tmp_path / "copy")
    merge([left, tmp_path / "copy", b], left)
    assert contents(left) == before
    with Campaign(left) as campaign:
        assert [result.job for result in campaign.results()] == sorted(each.job.key for each in scenarios)
        assert campaign.contradictions() == []
        assert len(campaign.runs()) == 4
    assert (left / "regressions" / "campaign.sqlite").is_file()
    assert list((left / "running").iterdir()) == [], "what was lost in one campaign was judged in another"
    assert len(run(left, scenarios)[1]) == 0


def test_campaigns_that_contradict_each_other_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = scenarios_of(2)[1].job
    for name, request in (("a", "agree"), ("b", "agree-2")):
        with Store(tmp_path / name) as store:
            store.record(job, 1, FakeJudge().judge(trace(request), True), "s.yaml")
    assert cli.run(["merge", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "m")]) == 3
    out = capsys.readouterr().out
    assert f"two attempts of job {job.key} came to different results" in out
    assert "1 results: 1 agreed" in out


def test_a_link_in_a_campaign_to_itself_is_none_of_its_campaigns(tmp_path: Path) -> None:
    run(tmp_path / "a", scenarios_of(2))
    run(tmp_path / "a" / "regressions", scenarios_of(3))
    (tmp_path / "a" / "self").symlink_to(".")
    merge([tmp_path / "a"], tmp_path / "out")
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("campaign.sqlite")) == ["out", "regressions"]


def test_foreign_folder_or_running_campaign_is_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", scenarios_of(1))
    assert cli.run(["merge", str(tmp_path / "a"), str(tmp_path), "--out", str(tmp_path / "m")]) == 2
    assert "is not a campaign: it has no campaign.sqlite" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
    with Store(tmp_path / "a"), pytest.raises(CampaignError, match="is being written; merge it when that has ended"):
        merge([tmp_path / "a"], tmp_path / "m")


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", scenarios_of(1))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "m", Path("/proc/m")):
        assert cli.run(["merge", str(tmp_path / "a"), "--out", str(out)]) == 2
        assert capsys.readouterr().err.startswith(f"specstorm: {out}: cannot be written: ")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the size of files, to simulate a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Parts: the lock, an artefact, the database, its log, the nested campaign.
@pytest.mark.parametrize("size", [0, 300, 4_096, 20_000, 60_000])
def test_a_merge_on_a_full_disk_is_bad_input_and_leaves_nothing_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    run(tmp_path / "a", scenarios_of(8))
    run(tmp_path / "a" / "regressions", scenarios_of(40))
    run(tmp_path / "old", scenarios_of(2))
    before = contents(tmp_path / "old")
    for out in ("new", "old"):
        with file_size_limit(size):
            code = cli.run(["merge", str(tmp_path / "a"), "--out", str(tmp_path / out)])
        said = capsys.readouterr().err
        assert (code, said.endswith("; give another --out\n")) == (2, True), said
        assert f"files may have at most {size} bytes here (ulimit -f)" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "old"]
    assert list((tmp_path / "old").rglob(".*")) == []
    assert contents(tmp_path / "old").keys() >= before.keys()
    assert cli.run(["merge", str(tmp_path / "a"), "--out", str(tmp_path / "old")]) == 1


def test_merged_findings_make_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", scenarios_of(1))
    run(tmp_path / "b", scenarios_of(4)[1:])
    assert cli.run(["merge", str(tmp_path / "b"), "--out", str(tmp_path / "m")]) == 0
    assert cli.run(["merge", str(tmp_path / "a"), "--out", str(tmp_path / "m")]) == 1
    assert "4 results: 3 agreed, 1 crashed" in capsys.readouterr().out


def test_findings_of_merged_hunts_are_counted_less_those_that_were_refuted_or_became_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hunt = hunt_of(3 * TRACES_PER_SHARD)
    run_through(hunt, canary_or(buggy))
    distinct, duplicate = (triage.state for triage in hunt.findings.by_bug.values())
    lost = Judgement(verdict=Lost(reason="x"), trace=distinct.trace, schedules=1)
    states = {"a": distinct, "b": duplicate, "c": distinct.model_copy(update={"judgement": lost})}
    assert duplicate.same_as == distinct.bug
    for name, state in states.items():
        shard = hunt.jobs.job("hunt", 0)
        with Store(tmp_path / name) as store:
            store.keep_shard(shard, 1, report(shard.shard))
            store.keep_finding(name, state.model_dump_json())
    sources = [str(tmp_path / name) for name in states]
    assert cli.run(["merge", *sources[1:], "--out", str(tmp_path / "none")]) == 0
    assert "12 traces of hunts, 0 findings" in capsys.readouterr().out
    assert cli.run(["merge", *sources, "--out", str(tmp_path / "one")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "12 traces of hunts, 1 finding"
    with Store(tmp_path / "a") as store:
        store.keep_finding("d", '{"colour": "red"}')
    assert cli.run(["merge", sources[0], "--out", str(tmp_path / "one")]) == 2
    assert "holds what this version cannot read: " in capsys.readouterr().err
