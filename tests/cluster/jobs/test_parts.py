"""Parts of jobs that need no cluster: exit codes, logs, archives, what a cluster lacks, what is refused unsent."""

import base64
import io
import json
import subprocess
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cli import main as cli
from cluster.cli.submit_command import _brought_home
from cluster.dispatch.job import program
from cluster.dispatch.job_server import (
    ADDRESS_DEFAULT,
    OWN_CODES,
    JobServer,
    JobState,
    LinePrinter,
    ServerError,
    Status,
)
from cluster.dispatch.ray_job import FOLDER_VARIABLE, job_id, keep_campaigns
from cluster.dispatch.runtime_environment import Installed, read_probe, requirements_of
from cluster.reports.job_log import (
    BYTES_MAX,
    FILES_MAX,
    WithoutArtefacts,
    from_log,
    home_of,
    log_artefacts,
    replay_lines,
)
from cluster.storage import archive
from cluster.storage.archive import is_of_this_machine, note_origin, pack_command, unpack
from tests.cluster.jobs.head import ROOT

NO_AGENT = "Request failed with status code 500: No available agent to submit job, please try again later"
JOB = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"metadata": {"job_submission_id": "night-7", "program": "bin/ss"}})}
SCENARIO = str(ROOT / "scenarios/smoke/abort_in_flight.yaml")


def state(status: Status, code: int | None = None, message: str = "") -> JobState:
    return JobState(status, code, message, {})


@pytest.mark.parametrize("code", OWN_CODES)
def test_a_driver_s_own_exit_code_is_that_of_the_command_that_waited_for_it(code: int) -> None:
    assert state("FAILED" if code else "SUCCEEDED", code).own_code(None) == (code, "")


@pytest.mark.parametrize(
    ("ended", "code", "words"),
    [
        (state("FAILED", -9), 3, "killed by signal 9"),
        (state("FAILED", 127), 3, "exit code 127"),
        (
            state("FAILED", None, "Traceback (most recent call last):\n  x\nRuntimeError: no pip"),
            3,
            "RuntimeError: no pip",
        ),
        (state("STOPPED"), 143, "stopped"),
    ],
)
def test_whatever_else_ends_a_job_is_no_finding_and_says_so(ended: JobState, code: int, words: str) -> None:
    found, remark = ended.own_code(None)
    assert found == code
    assert words in remark


def test_a_job_stopped_from_here_has_the_code_of_the_signal() -> None:
    assert state("STOPPED").own_code(2)[0] == 130


@given(st.text("ab\n", max_size=30), st.lists(st.integers(0, 30), max_size=6), st.integers(0, 30))
def test_a_log_that_is_streamed_in_pieces_and_read_as_a_whole_is_printed_once(
    log: str, cuts: list[int], streamed: int
) -> None:
    lines: list[str] = []
    printer = LinePrinter(lines.append)
    seen = log[:streamed]
    edges = [0, *sorted(min(cut, len(seen)) for cut in cuts), len(seen)]
    for begin, end in pairwise(edges):
        printer.feed(seen[begin:end])
    printer.catch_up(log)
    printer.close()
    assert "\n".join(lines) == log.removesuffix("\n")


def artefacts(folder: Path, number: int, size: int = 0) -> None:
    (folder / "artefacts").mkdir(parents=True)
    for index in range(number):
        text = f"# diverged\n# replay: specstorm replay kv-{index:08x}.yaml\nevents: []\n{'#' * size}\n"
        (folder / "artefacts" / f"kv-{index:08x}.yaml").write_text(text)


def test_artefacts_are_read_back_from_a_log_byte_for_byte_and_replay_where_they_lie(tmp_path: Path) -> None:
    artefacts(tmp_path / "night", 2)
    stream = io.StringIO("noise\n")
    stream.read()
    log_artefacts(tmp_path / "night", stream, JOB)
    found = from_log(stream.getvalue())
    home = Path("campaigns", "night", "artefacts")
    assert found == {home / f.name: f.read_text() for f in (tmp_path / "night" / "artefacts").iterdir()}
    assert replay_lines(found)[0] == f"specstorm replay {home}/kv-00000000.yaml"
    shown: list[str] = []
    show = WithoutArtefacts(shown.append)
    for line in stream.getvalue().splitlines():
        show(line)
    assert shown == ["noise"]
    assert "----- bin/ss attach night-7 brings the campaign home" in stream.getvalue()


@pytest.mark.parametrize(("number", "size"), [(FILES_MAX + 3, 0), (3, BYTES_MAX // 2)])
def test_a_log_stays_small_and_names_what_it_leaves_out(tmp_path: Path, number: int, size: int) -> None:
    artefacts(tmp_path, number, size)
    stream = io.StringIO()
    log_artefacts(tmp_path, stream, JOB)
    kept = from_log(stream.getvalue())
    assert 0 < len(kept) < number
    assert f"----- {number - len(kept)} more in " in stream.getvalue()
    assert len(stream.getvalue()) < BYTES_MAX + 4096


def test_outside_of_a_job_no_log_has_artefacts(tmp_path: Path) -> None:
    artefacts(tmp_path, 1)
    stream = io.StringIO()
    log_artefacts(tmp_path, stream, {})
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("campaign", "home"),
    [("campaigns/a", "campaigns/a"), ("/results/night", "campaigns/night"), ("../../etc", "campaigns/etc")],
)
def test_a_campaign_is_fetched_into_campaigns_whatever_its_job_calls_it(campaign: str, home: str) -> None:
    assert home_of(campaign) == Path(home)


def packed(
    *members: tuple[str, bytes], mark: str = "specstorm-archive-whole", end: str = "specstorm-archive-end"
) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return f"Running entrypoint\n{mark}\n{base64.encodebytes(buffer.getvalue()).decode()}{end}\n"


def test_unpacking_replaces_the_campaign_s_own_files_and_leaves_others(tmp_path: Path) -> None:
    home = tmp_path / "campaigns" / "a"
    first = packed(("./campaign.sqlite", b"1"), ("./running/x.yaml", b"x"), ("./campaign.sqlite-wal", b"w"))
    assert unpack(first, home) is not None
    (home / "notes.txt").write_text("mine")
    found = unpack(packed(("./campaign.sqlite", b"2"), ("./artefacts/kv-1.yaml", b"a")), home)
    assert found is not None
    assert (found.artefacts, found.is_whole) == (1, True)
    files = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert files == {"campaign.sqlite": "2", "artefacts/kv-1.yaml": "a", "notes.txt": "mine"}
    assert [path.name for path in home.parent.iterdir()] == ["a"]


def test_lines_that_ray_writes_into_a_log_are_none_of_the_archive(tmp_path: Path) -> None:
    log = packed(("./campaign.sqlite", bytes(range(200))))
    log = log.replace("\nH4s", "\n2026-11-22 15:26:10 INFO job_manager.py -- Runtime env is set up.\nH4s")
    assert "INFO" in log
    assert unpack(log, tmp_path / "a") is not None
    assert (tmp_path / "a" / "campaign.sqlite").read_bytes() == bytes(range(200))


@pytest.mark.parametrize(
    "log",
    [
        "",
        packed(("a", b"a"), end="cut off"),
        packed(("a", b"a")).replace("H4s", "????"),
        packed(("../../outside", b"a")),
        packed(("a", b"a" * 99)).replace("specstorm-archive-end", "AAAA\nspecstorm-archive-end")[:60],
    ],
    ids=["nothing", "without an end", "no archive", "outside", "cut off"],
)
def test_nothing_is_unpacked_from_a_damaged_or_hostile_archive(tmp_path: Path, log: str) -> None:
    assert unpack(log, tmp_path / "campaigns" / "a") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kilobytes_max", [archive.WHOLE_KILOBYTES_MAX, 0])
def test_a_packed_campaign_is_unpacked_and_a_large_one_without_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kilobytes_max: int
) -> None:
    monkeypatch.setattr(archive, "WHOLE_KILOBYTES_MAX", kilobytes_max)
    artefacts(tmp_path / "there" / "a night", 2)
    for name in ("campaign.sqlite", "campaign.lock", "report.json"):
        (tmp_path / "there" / "a night" / name).write_text(name)
    environment = {"PATH": "/usr/bin:/bin", FOLDER_VARIABLE: str(tmp_path / "there")}
    command = ["/bin/sh", "-c", pack_command("campaigns/a night")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = unpack(done.stdout, tmp_path / "home")
    assert found is not None
    assert (found.artefacts, found.is_whole) == (2, kilobytes_max > 0)
    names = {path.name for path in (tmp_path / "home").iterdir()}
    assert names == {"artefacts", "report.json", *(["campaign.sqlite"] if kilobytes_max else [])}


def test_a_campaign_on_shared_storage_is_left_there(tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").touch()
    ended = JobState("SUCCEEDED", 0, "", {"campaign": str(tmp_path)})
    # No server is asked for what is here already.
    said = _brought_home(cast(JobServer, None), "night", ended)
    assert said == f"the campaign is in {tmp_path}, also on this machine"


def test_a_campaign_of_this_machine_is_distinguished_from_a_fetched_one(tmp_path: Path) -> None:
    assert not is_of_this_machine(tmp_path)
    (tmp_path / "campaign.sqlite").touch()
    assert is_of_this_machine(tmp_path)
    note_origin(tmp_path, "job", "http://there:8265", "campaigns/a")
    assert not is_of_this_machine(tmp_path)


def test_no_name_of_a_campaign_gets_out_of_the_shell_s_quotes() -> None:
    assert "cd '/a b;rm' && " in pack_command("/a b;rm")
    assert "/'$(id)' && " in pack_command("campaigns/$(id)")


def test_in_a_job_campaigns_lie_where_they_outlive_it(tmp_path: Path) -> None:
    here, stays = tmp_path / "job", tmp_path / "stays"
    here.mkdir()
    keep_campaigns({FOLDER_VARIABLE: str(stays)}, here)
    assert not (here / "campaigns").exists(), "this is no job"
    for _ in range(2):
        keep_campaigns({**JOB, FOLDER_VARIABLE: str(stays)}, here)
    (here / "campaigns" / "a").mkdir()
    assert (stays / "a").is_dir()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metadata": 3}', '{"metadata": {"job_submission_id": ""}}'])
def test_what_ray_tells_no_driver_is_no_job(text: str) -> None:
    assert job_id({"RAY_JOB_CONFIG_JSON_ENV_VAR": text}) is None


def test_a_job_names_commands_as_its_reader_types_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*next(iter(JOB.items())))
    assert program() == "bin/ss"


def test_missing_packages_are_installed_and_what_cannot_be_installed_is_refused() -> None:
    wanted = requirements_of(ROOT, ["gpu"])
    printed = {"python": "3.11.7", "packages": {"ray": "2.60.0", "NumPy": "1.0", "PyYAML": "6.0.3"}}
    installed = read_probe(f"noise\nspecstorm-packages {json.dumps(printed)}\n")
    assert installed is not None
    lacking = wanted.lacking(installed)
    assert any(each.startswith("numpy") for each in lacking)
    assert any(each.startswith("torch") for each in lacking)
    assert not any(each.startswith(("pyyaml", "ray")) for each in lacking)
    assert wanted.misfits(installed) == []
    assert len(wanted.misfits(Installed("3.9.1", {"ray": "1.0"}))) == 2
    assert read_probe("nothing of the kind") is None


REFUSED = [
    (["replay", SCENARIO], "'replay' is no job"),
    (["run", SCENARIO, "--ray", "local"], "--ray is local"),
    (["run", SCENARIO, "--out", "here"], "--out is here; a job takes a folder below campaigns/"),
    (["run", "scenarios/smoke/nothing.yaml"], "no such file or folder"),
    (["run", "/etc/hostname"], "is outside of"),
    (["run", SCENARIO, "--seed", "x"], "Invalid value for '--seed'"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED, ids=lambda value: " ".join(value)[-30:])
def test_what_cannot_be_a_job_is_refused_before_anything_is_asked(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["submit", "--address", "http://127.0.0.1:9", *command]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1, err
    assert "no Ray job server" not in err


def test_a_file_that_git_ignores_is_refused_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "out"
    file = folder / "ignored.yaml"
    folder.mkdir(exist_ok=True)
    try:
        file.write_text(Path(SCENARIO).read_text())
        assert cli.run(["submit", "--address", "http://127.0.0.1:9", "run", str(file)]) == 2
    finally:
        file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    assert "is ignored by git and not sent with a job" in capsys.readouterr().err


def test_a_log_without_artefacts_is_refused_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("nothing\n")
    assert cli.run(["extract", str(tmp_path / "log")]) == 2
    assert "holds no artefact" in capsys.readouterr().err


class BusyClient:
    """A client of a job server that takes a job at the attempt numbered `taken_at`, from 1 on."""

    def __init__(self, taken_at: int) -> None:
        self.taken_at, self.attempts = taken_at, 0

    def submit_job(self, **job: object) -> None:
        self.attempts += 1
        if self.attempts < self.taken_at:
            raise RuntimeError(NO_AGENT)


def server_of(client: BusyClient, monkeypatch: pytest.MonkeyPatch) -> JobServer:
    server = JobServer.__new__(JobServer)
    server.address, server._client = ADDRESS_DEFAULT, client
    monkeypatch.setattr(JobServer, "check_new", lambda *_: None)
    now = iter(range(10**6))
    monkeypatch.setattr("cluster.dispatch.job_server.time.sleep", lambda seconds: None)
    monkeypatch.setattr("cluster.dispatch.job_server.time.monotonic", lambda: float(next(now)))
    return server


def test_a_head_that_has_just_started_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BusyClient(taken_at=5)
    server_of(client, monkeypatch).submit("night-7", "true", {})
    assert client.attempts == 5


def test_a_head_that_never_takes_a_job_is_given_up_with_what_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BusyClient(taken_at=10**6)
    with pytest.raises(ServerError, match=r"No available agent.*--dashboard-agent-listen-port"):
        server_of(client, monkeypatch).submit("night-7", "true", {})
    assert 20 < client.attempts < 40
