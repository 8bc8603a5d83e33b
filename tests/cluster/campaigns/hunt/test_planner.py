"""Complete hunts, in this process and on Ray: stopped, killed, resumed; and `shrink`."""

import json
import signal
import sqlite3
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from benchmarks.robustness.kills import Kills, compare
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_BAD_INPUT, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.planner import Counts
from cluster.cli import main as cli
from cluster.dispatch.job import load_judge
from cluster.dispatch.pool import InProcessPool, RayCluster, RayPool, WorkerPool
from cluster.dispatch.session import Stop
from cluster.reports.hunt_report import HuntDocument, HuntLine, hunt_document, hunt_lines
from cluster.storage.store import Store
from scenarios import codec
from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.cluster.cli.test_commands import SECONDS_MAX, start, wait_for
from tests.cluster.documents import document_of
from tests.cluster.fake_judge import BLIND_JUDGE
from workers.faults.registry import FAULTS
from workers.record.verdict import Agreed, Diverged

BACKUP, COUNTS = "vllm-38556-backup-token", "vllm-38556-accepted-counts"
TRACES = 20
# Its findings are shrunk quickly.
SEED = 6
SMALL = Trace(
    spec=EngineSpec(max_num_batched_tokens=8),
    events=(
        Submit(tick=0, request="a", prompt=tuple(range(20)), max_tokens=4, accept="01"),
        Submit(tick=9, request="b", prompt=(1, 2, 3), max_tokens=9, accept="10"),
    ),
    faults=("vllm-26231-chunks-count",),
)


class StopAfter:
    """Requests a stop after some number of shards."""

    def __init__(self, stop: Stop, traces: int) -> None:
        self._stop = stop
        self._traces = traces

    def update(self, counts: Counts) -> None:
        """Request the stop once enough shards are judged."""
        if counts.done >= self._traces:
            self._stop.signum = 2


def report_of_hunt(
    folder: Path, pool: WorkerPool, num_traces: int, until: int = 10**9, fault: str = COUNTS
) -> HuntDocument:
    """Hunt with a fault on and return the report."""
    stop = Stop()
    with Store(folder) as store:
        planner = HuntPlanner(HuntSettings(seed=SEED, faults=(fault,)), store, num_traces)
        drive(planner, pool, stop, StopAfter(stop, until), store)
        return hunt_document(planner.hunt, planner.exit_code())


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HuntDocument]:
    """Folder and report of a hunt that ran in this process without interruption."""
    folder = tmp_path_factory.mktemp("calm")
    return folder, report_of_hunt(folder, InProcessPool(), TRACES)


def test_hunt_writes_a_bug_once_on_any_pool_and_after_stops(
    tmp_path: Path, ray_cluster: RayCluster, calm: tuple[Path, HuntDocument]
) -> None:
    folder, here = calm
    for until in (1, 99):
        with RayPool(ray_cluster, 2, 120.0) as pool:
            there = report_of_hunt(tmp_path, pool, TRACES, until)
        assert until < TRACES or there == here
    assert here.exit_code == EXIT_FOUND
    (finding,) = here.findings
    assert finding.count >= 5
    assert finding.events <= 5
    assert finding.holds <= 3
    for place in (folder, tmp_path):
        (artefact,) = (place / "artefacts").iterdir()
        trace = codec.load(artefact)
        judge = load_judge("workers.run.worker:Worker")
        verdict = judge.judge(trace, False).verdict
        assert isinstance(verdict, Diverged)
        assert verdict.difference.plane in ("counts", "races")
        assert isinstance(judge.judge(trace.model_copy(update={"faults": ()}), False).verdict, Agreed)
        assert list((place / "running").iterdir()) == []


def test_a_hunt_says_which_findings_are_new_and_known_ones_do_not_count(
    tmp_path: Path, calm: tuple[Path, HuntDocument], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, here = calm
    (finding,) = here.findings
    hunt = ("hunt", "--traces", TRACES, "--seed", SEED, "--fault", COUNTS, "--ray", "off", "--out", folder)
    again = (*hunt, "--known", tmp_path)
    assert run(*again) == EXIT_FOUND
    assert f"findings over nights: 1 new, 0 seen before, 0 known\n  NEW    {finding.bug}\n" in capsys.readouterr().out
    known = f"bug: {finding.bug}\nupstream: https://example.org/17\nstatus: expected\n"
    (tmp_path / "counts.known.yaml").write_text(known)
    assert run(*again) == EXIT_AGREED
    assert f"  known  {finding.bug}: expected, https://example.org/17\n" in capsys.readouterr().out
    assert run(*again, "--json") == EXIT_AGREED
    assert document_of("hunt", capsys.readouterr().out)["known"] == [finding.bug]
    assert [path.name for path in tmp_path.iterdir()] == ["counts.known.yaml"]
    assert run(*hunt, "--known", tmp_path / "nowhere") == EXIT_BAD_INPUT


def test_hunt_reports_one_cause_in_three_planes_as_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hunt = ("hunt", "--traces", 20, "--seed", 2, "--fault", "sglang-26941-dangling-slot", "--out", tmp_path)
    assert run(*hunt, "--ray", "off", "--json") == EXIT_FOUND
    found = document_of("hunt", capsys.readouterr().out)["findings"]
    faces = {each["bug"]: each["face_of"] for each in found}
    cause = "blocks free_state_slots"
    slot = "books log scheduled: request R: state slot N is given to it"
    assert faces == {cause: None, "lanes h2d before host": cause, slot: cause}
    assert run(*hunt, "--ray", "off") == EXIT_FOUND
    told = capsys.readouterr().out
    assert told.count("FINDING ") == 1
    assert told.count("also shows as ") == 2


def test_killed_workers_leave_their_traces_and_change_nothing(ray_cluster: RayCluster, tmp_path: Path) -> None:
    kills = Kills(3)
    assert compare(ray_cluster, tmp_path, kills, 24, seed=1, faults=(BACKUP,)) == []
    # How many of them are met while they judge, or are at work on a finding, depends on the load; one is.
    assert kills.kept + kills.others >= 1


def is_shrinking(folder: Path) -> bool:
    """Return whether a running hunt has been shrinking a finding for a while."""
    database = sqlite3.connect(f"file:{folder / 'campaign.sqlite'}?mode=ro", uri=True)
    try:
        states = [json.loads(state) for (state,) in database.execute("SELECT state FROM findings")]
    finally:
        database.close()
    return any(state["stage"] == "shrink" and state["shrinking"]["spent"] >= 40 for state in states)


def test_hunt_killed_while_judging_and_shrinking_resumes_exactly(
    tmp_path: Path, calm: tuple[Path, HuntDocument]
) -> None:
    undisturbed, report = calm
    folder = tmp_path / "killed"
    arguments = (
        "hunt",
        "--traces",
        str(TRACES),
        "--seed",
        str(SEED),
        "--fault",
        COUNTS,
        "--ray",
        "off",
        "--out",
        str(folder),
    )
    judge = load_judge("workers.run.worker:Worker")
    moments: tuple[Callable[[], bool], ...] = (
        lambda: any((folder / "running").glob("*.yaml")),
        lambda: is_shrinking(folder),
    )
    for is_time in moments:
        process = start(tmp_path, *arguments)
        wait_for(is_time, process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=SECONDS_MAX)
        left = list((folder / "running").glob("*.yaml"))
        assert len(left) <= 1
        assert all(
            judge.judge(codec.load(file), False).verdict.kind in ("agreed", "diverged", "vacuous") for file in left
        )
    assert report_of_hunt(folder, InProcessPool(), TRACES) == report
    written = [
        {file.name: file.read_bytes() for file in (one / "artefacts").iterdir()} for one in (undisturbed, folder)
    ]
    assert len(written[0]) == 1
    assert written[0] == written[1]
    assert list((folder / "running").iterdir()) == []


def run(*arguments: object) -> int:
    """Run a command in this process; return its exit code."""
    return cli.run([*map(str, arguments)])


def test_clean_hunt_reports_amounts_and_missed_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hunt", "--traces", 12, "--ray", "off", "--out", tmp_path) == EXIT_AGREED
    printed = capsys.readouterr().out
    assert "12 traces (median " in printed
    assert f"canary {BACKUP}: found at trace " in printed
    assert "determinism: 1 shards were judged twice" in printed
    assert "probes hit: " in printed
    assert "no findings" in printed
    assert run("hunt", "--traces", 12, "--ray", "off", "--out", tmp_path, "--json") == EXIT_AGREED
    told = document_of("hunt", capsys.readouterr().out)
    assert (told["traces"], told["exit_code"], told["findings"]) == (12, 0, [])
    assert told["steps_median"] <= 60


def test_a_hunt_that_does_not_find_its_canary_is_blind_and_judges_nothing(tmp_path: Path) -> None:
    stop = Stop()
    with Store(tmp_path) as store:
        planner = HuntPlanner(HuntSettings(), store, 12)
        drive(planner, InProcessPool(BLIND_JUDGE), stop, StopAfter(stop, 99), store)
        assert planner.exit_code() == EXIT_NOT_JUDGED
        lines = list(hunt_lines(planner.hunt, tmp_path))
    assert any(line.startswith(f"BLIND: the canary {BACKUP} was not found in 8 shards") for line in lines)
    assert any("never hit: admit, " in line for line in lines)


def test_progress_says_rate_findings_and_time_left() -> None:
    stream, now = StringIO(), [0.0]
    line = HuntLine(stream, 60.0, None, lambda: now[0])
    for seconds in (1.0, 12.0, 15.0, 70.0):
        now[0] = seconds
        line.update(Counts(int(10 * seconds) - 10, None, 0))
    assert stream.getvalue().splitlines() == [
        "110 traces, 9.2/s, 0 findings, about 48 s left",
        "690 traces, 9.9/s, 0 findings, finishing",
    ]


def test_wrong_input_is_refused_in_one_line_by_hunt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("hunt", "--minutes", 1, "--traces", 1),
        ("hunt", "--fault", "vllm-1"),
        ("hunt", "--canary", "vllm-1"),
        ("hunt", "--profile", "wild"),
        ("hunt", "--ray", "off", "--workers", 2),
        ("nightly", "--regressions", tmp_path),
        ("shrink", tmp_path / "absent.yaml"),
    ):
        assert run(*arguments) == EXIT_BAD_INPUT
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_resumed_campaign_refuses_another_plan(tmp_path: Path) -> None:
    hunt = ("hunt", "--minutes", 0, "--ray", "off", "--out", tmp_path)
    run(*hunt)
    assert run(*hunt, "--seed", 2) == EXIT_BAD_INPUT


def test_shrink_writes_a_smaller_trace_that_fails_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.yaml"
    file.write_text(codec.dumps(SMALL))
    assert run("shrink", file) == EXIT_FOUND
    assert "2 events, shrunk to 1 in " in capsys.readouterr().out
    (artefact,) = tmp_path.glob("counts-*.yaml")
    assert len(codec.load(artefact).events) == 1
    assert run("replay", artefact) == EXIT_FOUND
    assert run("replay", artefact, "--no-faults") == EXIT_AGREED


def test_shrink_reports_a_trace_without_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fine.yaml"
    file.write_text(codec.dumps(SMALL.model_copy(update={"faults": ()})))
    assert run("shrink", file) == EXIT_AGREED
    assert "nothing to shrink" in capsys.readouterr().out
    assert run("shrink", file, "--json") == EXIT_AGREED
    told = document_of("shrink", capsys.readouterr().out)
    assert (told["events_before"], told["events"], told["checks"], told["complete"]) == (2, 2, 0, True)
    assert list(tmp_path.iterdir()) == [file]


def test_a_night_replays_the_regressions_first_and_writes_one_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known"
    known.mkdir()
    (known / "counts.yaml").write_text(codec.dumps(SMALL))
    place = ("--regressions", known, "--out", tmp_path / "night")
    # One fault is measured, the first by name.
    told_to = ("--notify", f"tee {tmp_path / 'notified.json'}")
    night = ("nightly", "--hours", 0, *place, *told_to, "--ray", "off", "--seed", 0, "--nights", 1000)
    assert run(*night) == EXIT_NOT_JUDGED
    assert (
        "regressions: 1 of 1 judged, the faults of 1 of 1 found, the clean engine agreed on 1 of 1"
        in capsys.readouterr().out
    )
    told = document_of("nightly", (tmp_path / "night" / "report.json").read_text())
    assert json.loads((tmp_path / "notified.json").read_text()) == told
    assert told["regressions"][0]["found_in"] == "counts"
    assert {name: part["done"] for name, part in told["parts"].items()} == {"regressions": 1, "hunt": 0, "faults": 3}
    (measured,) = told["faults"]["faults"]
    assert measured["fault"] == min(FAULTS)
    assert measured["detected"] == measured["trials"] == 3
    assert "regressions: 1 of 1 judged, " in (tmp_path / "night" / "report.txt").read_text()
    assert "<h1" in (tmp_path / "night" / "report.html").read_text()
    assert list((tmp_path / "night" / "artefacts").iterdir()) == []
