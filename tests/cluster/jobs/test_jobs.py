"""Jobs on a real cluster: exit codes, fetched findings, used ids, stop and resume."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs.head import ROOT, Head, ended, running_head
from tests.cluster.processes import descendants, listening

SCENARIO = "scenarios/smoke/condense_with_counts_on_the_host.yaml"
FAULT = "vllm-38556-accepted-counts"
ARTEFACT = "artefacts/counts-c81c2c0f.yaml"
STARTED_SECONDS = 600.0


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """One head with a job server for all tests here."""
    with running_head() as head:
        yield head


def asked(head: Head, path: str) -> Any:
    """Return the job server's answer to a request that has the token."""
    token = (head.home / ".ray" / "auth_token").read_text()
    request = urllib.request.Request(head.address + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def found(head: Head, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Run a job with a finding, and job `plain` by `ray job submit`; return folder and result."""
    here = tmp_path_factory.mktemp("found")
    command = ("run", str(ROOT / SCENARIO), "--fault", FAULT)
    ours = head.start(here, "submit", "--id", "found", "--install", "no", *command)
    ray = [str(Path(sys.executable).with_name("ray")), "job", "submit", "--no-wait", "--submission-id", "plain"]
    entry = ["python", "-m", "cluster", "run", SCENARIO, "--fault", FAULT]
    variables = {**head.environment, "RAY_AUTH_MODE": "token"}
    # If two jobs have the same files, Ray may remove the folder of a new job when an old one ends.
    files = ["--working-dir", str(ROOT), "--runtime-env-json", '{"excludes": ["docs"]}']
    theirs = subprocess.run([*ray, *files, "--", *entry], env=variables, capture_output=True, text=True, check=False)
    assert theirs.returncode == 0, theirs.stderr
    return here, ended(ours)


def test_exit_code_is_the_drivers_and_its_campaign_is_fetched(
    head: Head, found: tuple[Path, "subprocess.CompletedProcess[str]"]
) -> None:
    here, done = found
    assert done.returncode == 1, done.stderr
    assert "the working tree alone" in done.stderr
    assert "brought home: campaigns/found (1 artefact)" in done.stderr
    assert "----- artefact" not in done.stdout, "a fetched artefact must not be printed as well"
    assert (here / "campaigns" / "found" / "campaign.sqlite").is_file()
    replay = re.search(r"replay: .* (replay campaigns/.*)", done.stdout)
    assert replay is not None, done.stdout
    again = head.run(here, *replay[1].split())
    assert again.returncode == 1, again.stderr
    assert "accepted_read is 1, expected 4" in again.stdout


def test_the_metadata_of_a_job_has_its_progress_and_its_command(
    head: Head, found: tuple[Path, "subprocess.CompletedProcess[str]"]
) -> None:
    metadata = asked(head, "/api/jobs/found")["metadata"]
    assert metadata["progress"] == "1 of 1 done, 1 finding"
    assert metadata["campaign"] == "campaigns/found"
    assert metadata["command"].startswith("run ")


def test_used_job_id_is_refused(head: Head, found: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    before = asked(head, "/api/jobs/found")
    done = head.run(found[0], "submit", "--id", "found", "--install", "no", "run", str(ROOT / SCENARIO))
    assert done.returncode == 2
    assert "job found exists already, failed; it is not run twice" in done.stderr
    assert asked(head, "/api/jobs/found") == before


def test_artefacts_are_recovered_from_a_job_log(
    head: Head, found: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    (tmp_path / "job.log").write_text(asked(head, "/api/jobs/found/logs")["logs"])
    done = head.run(tmp_path, "extract", "job.log")
    assert done.returncode == 0, done.stderr
    path = Path("campaigns", "found", ARTEFACT)
    assert (tmp_path / path).read_bytes() == (found[0] / path).read_bytes()
    assert f" replay {path}" in done.stdout


def test_job_of_ray_job_submit_is_attached_and_fetched(
    head: Head, found: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    attached = head.run(tmp_path, "attach", "plain")
    assert attached.returncode == 1, attached.stderr
    (campaign,) = (tmp_path / "campaigns").iterdir()
    assert (campaign / ARTEFACT).is_file()
    # The working folder of a job goes away; its campaign stays on the node.
    assert (head.home / "specstorm-campaigns" / campaign.name / ARTEFACT).is_file()


def test_a_job_that_dies_before_its_first_line_names_the_log_that_says_more(head: Head, tmp_path: Path) -> None:
    ray = [str(Path(sys.executable).with_name("ray")), "job", "submit", "--no-wait", "--submission-id", "silent"]
    variables = {**head.environment, "RAY_AUTH_MODE": "token"}
    subprocess.run([*ray, "--", "sh", "-c", "kill -9 $$"], env=variables, capture_output=True, check=True)
    attached = head.run(tmp_path, "attach", "silent")
    assert attached.returncode == 3, attached.stderr
    assert "exit code 137; specstorm never returns it; dashboard_agent.log in" in attached.stderr


def shards_of(folder: Path) -> list[str]:
    database = sqlite3.connect(f"file:{folder / 'campaign.sqlite'}?mode=ro", uri=True)
    try:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [job for (job,) in database.execute("SELECT job FROM shards ORDER BY job")]
    finally:
        database.close()


def test_a_night_with_its_defaults_begins_with_the_regressions_that_come_with_the_program(
    head: Head, tmp_path: Path
) -> None:
    process = head.start(tmp_path, "submit", "--id", "night", "--install", "no", "nightly")
    wait_for_progress(head, "night", process)
    process.send_signal(signal.SIGTERM)
    done = ended(process)
    assert done.returncode == 143, done.stderr
    assert "brought home: campaigns/night" in done.stderr
    with sqlite3.connect(f"file:{tmp_path / 'campaigns/night/regressions/campaign.sqlite'}?mode=ro", uri=True) as night:
        assert night.execute("SELECT count(*) FROM results").fetchone()[0] > 0
    night.close()


def wait_for_progress(head: Head, job: str, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + STARTED_SECONDS
    while not re.match(r"[1-9]", progress_of(head, job)):
        assert process.poll() is None, ended(process)
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_job_that_is_stopped_closes_its_campaign_and_submitted_again_it_goes_on(head: Head, tmp_path: Path) -> None:
    process = head.start(tmp_path, "submit", "--id", "stopped", "hunt", "--minutes", "10", "--out", "campaigns/tonight")
    wait_for_progress(head, "stopped", process)
    process.send_signal(signal.SIGTERM)
    done = ended(process)
    assert done.returncode == 143, done.stderr
    assert "Python 3" in done.stderr, "the packages of the cluster were looked at"
    assert re.search(r"the job was stopped; continue with: .* submit --address .* hunt", done.stderr)
    folder = tmp_path / "campaigns" / "tonight"
    assert sorted(path.name for path in folder.glob("campaign.sqlite*")) == ["campaign.sqlite"], done.stderr
    kept = shards_of(folder)
    assert kept
    command = ("hunt", "--traces", str(12 * (len(kept) + 1)), "--out", "campaigns/tonight")
    again = head.run(tmp_path, "submit", "--install", "no", *command)
    assert again.returncode == 0, again.stderr + again.stdout
    assert set(kept) < set(shards_of(folder))


def progress_of(head: Head, job: str) -> str:
    jobs = {each["submission_id"]: each for each in asked(head, "/api/jobs/")}
    return str(jobs[job]["metadata"].get("progress", "")) if job in jobs else ""


def test_an_absent_server_or_a_refused_token_is_one_line(head: Head, tmp_path: Path) -> None:
    command = ("run", str(ROOT / SCENARIO))
    (tmp_path / "token").write_text("0" * 64)
    wrong = head.start(tmp_path, "submit", *command, RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    nowhere = head.start(tmp_path, "submit", "--address", "http://127.0.0.1:9", *command)
    for process, expected in ((wrong, "its token is not the cluster's"), (nowhere, "no Ray job server answers at")):
        done = ended(process)
        assert done.returncode == 2
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "campaigns").exists()


def test_the_head_listens_on_loopback_only(head: Head) -> None:
    sockets = listening(descendants(head.pid) | {head.pid})
    assert len(sockets) >= 4, "a head without sockets was looked at"
    assert [name for name, loopback in sockets.items() if not loopback] == []
