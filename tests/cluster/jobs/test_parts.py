"""Job functions without a cluster: exit codes, logs, archives, packages, invalid submissions."""

import io
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cli import main as cli
from cluster.cli.inputs import InputError
from cluster.cli.submit_command import brought_home
from cluster.dispatch.job import program
from cluster.dispatch.job_server import (
    ADDRESS_DEFAULT,
    AGENT_LOG,
    OWN_CODES,
    JobServer,
    JobState,
    LinePrinter,
    ServerError,
    Status,
)
from cluster.dispatch.ray_job import FOLDER_VARIABLE, job_id, job_metadata, keep_campaigns
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
from cluster.reports.terminal import show
from cluster.storage.archive import in_the_way, is_of_this_machine, note_origin, pack_command
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
def test_other_ends_of_a_job_are_not_judged(ended: JobState, code: int, words: str) -> None:
    found, remark = ended.own_code(None)
    assert found == code
    assert words in remark
    assert (AGENT_LOG in remark) == (ended.status == "FAILED")


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


TRACE = "run_on: {device: triton-cpu}\nevents: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}]\n"


def artefacts(folder: Path, number: int, size: int = 0) -> None:
    (folder / "artefacts").mkdir(parents=True)
    for index in range(number):
        text = f"# diverged\n# replay: specstorm replay kv-{index:08x}.yaml\n{TRACE}{'#' * size}\n"
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
def test_job_log_is_limited_and_lists_omitted_artefacts(tmp_path: Path, number: int, size: int) -> None:
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
    [
        ("campaigns/a", "campaigns/a"),
        ("campaigns/a/b", "campaigns/a/b"),
        ("/results/night", "campaigns/night"),
        ("../../etc", "campaigns/etc"),
        ("campaigns/../x", "campaigns/x"),
        ("/campaigns", "campaigns/campaigns"),
    ],
)
def test_campaign_is_fetched_below_campaigns(campaign: str, home: str) -> None:
    assert home_of(campaign) == Path(home)


NO_NAMES = (
    "/data/..",
    "/",
    "campaigns",
    "campaigns/",
    "campaigns/.",
    ".",
    "..",
    "",
    "campaigns/..",
    "campaigns/a/..",
)
HIDDEN = (".git", "/x/.git", "campaigns/.git", "campaigns/a/.git", "campaigns/.git/hooks", "../.GIT")


@pytest.mark.parametrize("campaign", [*NO_NAMES, *HIDDEN, "a\0b", "/a\x1b[2J", "a\udcff", "n" * 300, "/d" * 3000])
def test_a_campaign_without_a_name_is_not_brought_home(campaign: str) -> None:
    assert home_of(campaign) is None
    ended = JobState("SUCCEEDED", 0, "", {"campaign": campaign or "."})
    # Nothing is asked of a server.
    with pytest.raises(InputError, match="was not brought home") as caught:
        brought_home(cast(JobServer, None), "night", ended)
    assert str(caught.value).isprintable()
    assert from_log(f"----- artefact {campaign}/artefacts/kv-00000000.yaml\nx\n----- end of artefact\n") == {}


def test_campaign_in_a_jobs_working_folder_leaves_only_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = "----- artefact out/artefacts/kv-00000000.yaml\nx\udcff\n----- end of artefact\n"

    class Server:
        address = ADDRESS_DEFAULT

        def log(self, job: str) -> str:
            return log

    said = brought_home(cast(JobServer, Server()), "night", JobState("FAILED", 1, "", {"folder": "out"}))
    assert said == "the campaign could not be fetched; from the job's log: 1 artefacts in campaigns/out"
    assert (tmp_path / "campaigns" / "out" / "artefacts" / "kv-00000000.yaml").read_text() == "x?\n"


def test_unreadable_job_metadata_is_ignored() -> None:
    for hostile in ("[" * 100_000, "[]", "null", '{"metadata": 3}', "{"):
        assert job_metadata({"RAY_JOB_CONFIG_JSON_ENV_VAR": hostile}) == {}


def test_a_campaign_is_not_brought_into_another_one_or_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "campaigns" / "mine").mkdir(parents=True)
    (tmp_path / "campaigns" / "mine" / "campaign.sqlite").touch()
    (tmp_path / "campaigns" / "link").symlink_to(tmp_path)
    (tmp_path / "campaigns" / "its").mkdir()
    (tmp_path / "campaigns" / "its" / "artefacts").symlink_to(tmp_path)
    server = cast(JobServer, SimpleNamespace(address=ADDRESS_DEFAULT))
    refused = {
        "mine": "of this machine",
        "mine/artefacts": "of this machine",
        "link/a": "by a link",
        "its": "is a link",
    }
    for name, why in refused.items():
        with pytest.raises(InputError, match=f"its campaign was not brought home: campaigns/.*{why}"):
            brought_home(server, "x", JobState("FAILED", 1, "", {"campaign": f"campaigns/{name}"}))
        log = f"----- artefact campaigns/{name}/artefacts/kv-00000000.yaml\nx\n----- end of artefact\n"
        (tmp_path / "log").write_text(log)
        assert cli.run(["extract", "log"]) == 2
        assert why in capsys.readouterr().err
    assert in_the_way(Path("campaigns", "other")) is None


@pytest.mark.parametrize("text", ["events: 3\n", "# replay: specstorm replay x; rm -rf ~\n", "!!python/none x\n"])
def test_a_replay_line_is_never_taken_from_a_file(text: str) -> None:
    path = Path("campaigns", "a;b", "artefacts", "kv-00000000.yaml")
    assert replay_lines({path: text}) == []
    evil = f"# replay: specstorm replay kv-00000000.yaml; rm -rf ~\n{TRACE}"
    assert replay_lines({path: evil}) == [f"specstorm replay '{path}'"]


def test_a_line_of_a_job_is_shown_without_colours_and_hidden_characters(capsys: pytest.CaptureFixture[str]) -> None:
    WithoutArtefacts(show)("\x1b[36mred\x1b[0m\t\x1b]0;title\x07 \U000e0041")
    assert capsys.readouterr().out == "red     \\x1b]0;title\\x07 \\U000e0041\n"


def test_a_campaign_on_shared_storage_is_left_there(tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").touch()
    ended = JobState("SUCCEEDED", 0, "", {"campaign": str(tmp_path)})
    # No server is asked for what is here already.
    said = brought_home(cast(JobServer, None), "night", ended)
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


def test_campaigns_of_a_job_are_in_a_permanent_folder(tmp_path: Path) -> None:
    here, stays = tmp_path / "job", tmp_path / "stays"
    here.mkdir()
    keep_campaigns({FOLDER_VARIABLE: str(stays)}, here)
    assert not (here / "campaigns").exists(), "this is no job"
    for _ in range(2):
        keep_campaigns({**JOB, FOLDER_VARIABLE: str(stays)}, here)
    (here / "campaigns" / "a").mkdir()
    assert (stays / "a").is_dir()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metadata": 3}', '{"metadata": {"job_submission_id": ""}}'])
def test_environment_without_job_metadata_is_no_job(text: str) -> None:
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
    (["replay", SCENARIO], "'replay' cannot be submitted"),
    (["run", SCENARIO, "--ray", "local"], "--ray is local"),
    (["run", SCENARIO, "--out", "here"], "--out is here; a job takes a folder in campaigns/"),
    (["run", "scenarios/smoke/nothing.yaml"], "no such file or folder"),
    (["run", "/etc/hostname"], "is outside of"),
    (["run", SCENARIO, "--seed", "x"], "Invalid value for '--seed'"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED, ids=lambda value: " ".join(value)[-30:])
def test_invalid_submission_is_refused_before_contacting_a_server(
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
    assert "has no artefacts" in capsys.readouterr().err


class BusyClient:
    """Fake job-server client that refuses submissions before attempt `taken_at` (from 1)."""

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


def test_head_that_never_accepts_a_job_is_given_up_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    client = BusyClient(taken_at=10**6)
    with pytest.raises(ServerError, match=r"No available agent.*--dashboard-agent-listen-port"):
        server_of(client, monkeypatch).submit("night-7", "true", {})
    assert 20 < client.attempts < 40
