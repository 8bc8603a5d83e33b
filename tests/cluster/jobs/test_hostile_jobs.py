"""Jobs with hostile metadata or archives: each is refused in one line, and no file changes."""

import base64
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cluster.cli import main as cli
from cluster.cli.inputs import InputError
from cluster.cli.submit_command import brought_home
from cluster.dispatch.job_server import ADDRESS_DEFAULT, JobServer, JobState, LinePrinter, Status
from cluster.dispatch.session import Stop

CLAIMS = {
    "another job": ({"job": "other", "server": ADDRESS_DEFAULT}, "a", "holds the campaign of job other at http"),
    "another server": ({"job": "x", "server": "http://there:1"}, "a", "holds the campaign of job x at http://there:1"),
    "below another job": (
        {"job": "other", "server": ADDRESS_DEFAULT},
        "a/artefacts",
        "holds the campaign of job other",
    ),
    "below itself": ({"job": "x", "server": ADDRESS_DEFAULT}, "a/artefacts", "holds the campaign of job x"),
    "an invalid origin": ([], "a", "holds the campaign of job unknown"),
    "files of the user": (None, "a", "holds files of no job"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_job_that_claims_a_folder_of_others_overwrites_nothing(
    claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    origin, folder, why = CLAIMS[claim]
    (tmp_path / "campaigns" / "a" / "artefacts").mkdir(parents=True)
    (tmp_path / "campaigns" / "a" / "artefacts" / "kv-00000000.yaml").write_text("mine")
    if origin is not None:
        (tmp_path / "campaigns" / "a" / "job.json").write_text(json.dumps(origin))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    server = cast(JobServer, SimpleNamespace(address=ADDRESS_DEFAULT))
    with pytest.raises(InputError, match=f"its campaign was not brought home: campaigns/a.*{why}"):
        brought_home(server, "x", JobState("SUCCEEDED", 0, "", {"campaign": f"campaigns/{folder}"}))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


class EndedServer(JobServer):
    """Fake job server with one ended job, from which no campaign can be fetched."""

    def __init__(self, address: str, metadata: dict[str, str], status: Status = "STOPPED", packed: str = "") -> None:
        self.address, self._state, self._packed = address, JobState(status, 0, "", metadata), packed

    def follow(self, job: str, printer: LinePrinter, stop: Stop, stops_job: bool) -> JobState:
        return self._state

    def output_of(self, job: str, entrypoint: str, seconds: float) -> str:
        return self._packed

    def log(self, job: str) -> str:
        return ""


LINK = io.BytesIO()
with tarfile.open(fileobj=LINK, mode="w:gz") as archived:
    linked = tarfile.TarInfo("artefacts")
    linked.type = tarfile.SYMTYPE
    archived.addfile(linked)
PACKED = f"specstorm-archive-whole\n{base64.encodebytes(LINK.getvalue()).decode()}specstorm-archive-end\n"


@pytest.mark.parametrize(
    ("metadata", "packed", "why"),
    [
        ({"command": "run '", "campaign": "campaigns/a"}, "", 'its command is "run \'": No closing quotation'),
        ({"command": "run smoke"}, "", 'its command is "run smoke", and it names no campaign'),
        ({"campaign": "campaigns/.git"}, "", '"campaigns/.git" names no folder of a campaign'),
        ({"command": "run '" + "x" * 5_000_000, "campaign": "campaigns/a"}, "", "more than 32,768 characters"),
        ({"command": "run smoke", "campaign": "campaigns/a"}, PACKED, "member artefacts is of type b'2'"),
    ],
    ids=["quote", "no campaign", "hidden", "long", "link"],
)
def test_attach_to_a_hostile_job_is_refused_in_one_line(
    metadata: dict[str, str],
    packed: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cluster.cli.submit_command.JobServer", lambda at: EndedServer(at, metadata, packed=packed))
    assert cli.run(["attach", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("specstorm: job x: its c")
    assert why.replace(",", "") in line.replace(",", "")
    assert len(line) < 400
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_extract_overwrites_no_artefact_of_another_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "campaigns" / "a" / "artefacts" / "kv-00000000.yaml"
    mine.parent.mkdir(parents=True)
    for content, code in (("mine\n", 2), ("x\n", 0)):
        mine.write_text(content)
        Path("log").write_text("----- artefact campaigns/a/artefacts/kv-00000000.yaml\nx\n----- end of artefact\n")
        assert cli.run(["extract", "log"]) == code
        assert mine.read_text() == content
    assert "exists with another content" in capsys.readouterr().err
