"""Command `bisect`: invalid input, and its report on releases with fake verdicts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.cli import bisect_command
from cluster.cli import main as cli
from cluster.reports.documents import BisectDocument
from scenarios.trace import Trace
from workers.record.evidence import Site
from workers.record.verdict import NO_STATS, Agreed, Crashed, Judgement, Verdict
from workers.targets.target import DeviceError, RunConfig
from workers.targets.vllm.target import VllmV1

TRACE = """spec: {layers: attention, sampling: standard, block_size: 32}
events: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}]
"""
AGREED = Agreed(stats=NO_STATS)
CRASHED = Crashed(stats=NO_STATS, error="IndexError: 3", where=Site(function="step", file="core.py", line=7))
OTHER = Crashed(stats=NO_STATS, error="TypeError: no", where=Site(function="load", file="core.py", line=9))


class Releases:
    """Fake releases of an engine: verdicts by release, and a judge that returns them."""

    def __init__(self, verdicts: dict[str, Verdict | str]) -> None:
        self._verdicts = verdicts

    @contextmanager
    def release(self, version: str, folder: Path, config: RunConfig) -> Iterator[RunConfig]:
        verdict = self._verdicts[version]
        if isinstance(verdict, str):
            raise DeviceError(verdict)
        yield config.model_copy(update={"engine_home": str(folder / version)})

    def judge(self, trace: Trace, sweep: bool, config: RunConfig) -> Judgement:
        verdict = self._verdicts[Path(config.engine_home).name]
        assert not isinstance(verdict, str), "it is installed"
        return Judgement(verdict=verdict, trace=trace.explicit(), schedules=1)


def bisect(verdicts: dict[str, Verdict | str], monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    releases, file = Releases(verdicts), folder / "trace.yaml"
    file.write_text(TRACE)
    monkeypatch.setattr(VllmV1, "release", releases.release)
    monkeypatch.setattr(bisect_command, "load_judge", lambda name: releases)
    return cli.run(["bisect", str(file), "--versions", ",".join(verdicts), "--environments", str(folder), *options])


def test_the_first_release_that_is_bad_is_named_with_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts: dict[str, Verdict | str] = {
        "0.8": "no wheel",
        "0.9": AGREED,
        "0.10": OTHER,
        "0.11": CRASHED,
        "0.12": CRASHED,
    }
    assert bisect(verdicts, monkeypatch, tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "0.12         bad      crash step IndexError: N",
        "0.8          skipped  no wheel",
        "0.9          good     agreed",
        "0.10         skipped  another finding: crash load TypeError: no",
        "0.11         bad      crash step IndexError: N",
        "",
        "first bad: 0.11; last good: 0.9; 0.10 between them inconclusive",
    ]


def test_a_bug_that_is_gone_is_reported_with_the_first_release_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bisect({"1.0": CRASHED, "1.1": AGREED, "1.2": AGREED}, monkeypatch, tmp_path, "--json") == 1
    document = BisectDocument.model_validate(json.loads(capsys.readouterr().out))
    assert (document.last_bad, document.first_good, document.first_bad, document.between) == ("1.0", "1.1", None, ())
    assert [entry.status for entry in document.releases] == ["bad", "good", "good"]


@pytest.mark.parametrize(
    ("verdict", "code", "conclusion"),
    [
        (AGREED, 0, "good in every release with a result"),
        (CRASHED, 1, "bad in every release with a result, from 1.0 on"),
        ("no wheel", 3, "no release has a result"),
    ],
)
def test_releases_with_equal_status_have_no_change(
    verdict: Verdict | str,
    code: int,
    conclusion: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bisect({"1.0": verdict, "1.1": verdict}, monkeypatch, tmp_path) == code
    assert capsys.readouterr().out.splitlines()[-1] == conclusion


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "specstorm"], "--engine is specstorm; it has no releases: vllm-v1 and sglang have"),
        (
            ["--versions", "0.2,latest"],
            "--versions: 'latest' is not a version; give versions such as 0.27.1, separated by commas",
        ),
        (["--versions", "0.10,0.9"], "--versions: 0.10,0.9; give the oldest version first, each once"),
    ],
)
def test_what_cannot_be_bisected_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(TRACE)
    assert cli.run(["bisect", str(file), *options]) == 2
    assert capsys.readouterr().err == f"specstorm: {message}\n"


def test_the_engine_is_the_one_that_the_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(f"run_on: {{engine: vllm}}\n{TRACE}")
    assert cli.run(["bisect", str(file)]) == 2
    assert capsys.readouterr().err == "specstorm: --engine is vllm; it has no releases: vllm-v1 and sglang have\n"
