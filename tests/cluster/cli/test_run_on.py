"""Run configuration in an artefact: replay and shrink use it without options."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.cli import main as cli
from cluster.cli.inputs import InputError, config_for, config_of, other_sources
from cluster.storage.artefact import write_artefact
from cluster.storage.hunts import HuntPlan
from scenarios import codec
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.scenario_file import RunOn
from tests.cluster.cli.test_commands import SCENARIO
from tests.workers.targets.black_box import BlackBoxKind, Mistake
from workers.record.verdict import Diverged, Judgement
from workers.run.worker import Worker
from workers.targets import registry
from workers.targets.devices import faults_on
from workers.targets.target import DEVICES, PATHS, RunConfig

OTHER = "other"
# It is made of NumPy code of an op.
IN_AN_OP = "vllm-43434-draft-order"


@dataclass(frozen=True, slots=True)
class OtherKind(BlackBoxKind):
    """Kind of an engine in which requests see the tokens of other requests."""

    mistake: Mistake = "neighbour"

    @property
    def name(self) -> str:
        return OTHER


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KINDS, OTHER, (__name__, "OtherKind"))


def finding(config: RunConfig) -> Judgement:
    """Return a finding on the other engine."""
    traces = (fitted_to(random_trace(seed), OtherKind().capabilities) for seed in range(12))
    judgements = (Worker().judge(trace, False, config) for trace in traces)
    return next(each for each in judgements if isinstance(each.verdict, Diverged))


def on(folder: Path, **keys: str) -> Path:
    """Write a scenario with a fault of one device, and with this run configuration."""
    trace = codec.loads(SCENARIO.format(seed=1), "x").model_copy(update={"faults": (IN_AN_OP,)})
    path = folder / "a.yaml"
    path.write_text(codec.dumps(trace, RunOn.model_validate(keys)))
    return path


def test_run_on_records_all_of_a_configuration_but_its_paths() -> None:
    names = {"version": "engine_version", "sources": "engine_digest"}
    assert {names.get(name, name) for name in RunOn.model_fields} == set(RunConfig.model_fields) - set(PATHS)
    assert all(name.startswith("engine_") for name in PATHS)
    values = {"device": "cpu", "engine_version": "0.32.0", "engine_digest": "00ff", "kernels": "interpreted"}
    config = RunConfig.model_validate({"engine": "vllm", "engine_home": "/home", "engine_path": "/tree", **values})
    assert RunConfig.of(config.run_on()) == config.model_copy(update=dict.fromkeys(PATHS, ""))


def test_a_finding_on_another_engine_is_replayed_and_shrunk_there_unless_an_engine_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(engine=OTHER)
    path = write_artefact(tmp_path, finding(config), "a.yaml", config)
    assert codec.run_on(path) == RunOn(engine=OTHER)
    assert cli.run(["replay", str(path)]) == 1
    assert "1 scenario: 1 diverged" in capsys.readouterr().out
    assert cli.run(["replay", str(path), "--engine", "specstorm"]) == 0
    assert "1 scenario: 1 agreed" in capsys.readouterr().out
    assert cli.run(["shrink", str(path), "--out", str(tmp_path / "small"), "--limit", "20"]) == 1
    (small,) = (tmp_path / "small").glob("*.yaml")
    assert codec.run_on(small) == RunOn(engine=OTHER)
    assert len(codec.load(small).events) <= len(codec.load(path).events)


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_file_is_run_on_the_device_that_it_names_unless_one_is_typed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [IN_AN_OP in faults_on(RunConfig(device=device)) for device in DEVICES] == [True, False, False]
    path = on(tmp_path, device="triton-cpu")
    refused = (
        f"specstorm: {path}: fault {IN_AN_OP} exists on --device sim only: it replaces the NumPy code of a device op"
    )
    assert cli.run([command, str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [refused]
    # A typed engine replaces the complete configuration.
    for typed in (("--device", "sim"), ("--engine", "specstorm")):
        assert cli.run([command, str(path), *typed]) in (0, 1)
    assert cli.run([command, str(on(tmp_path)), "--device", "triton-cpu"]) == 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"device": "nowhere"}, "run_on.device: Input should be "),
        ({"engine": "nobody"}, "--engine is nobody; known are "),
        ({"kernels": "interpreted"}, "--kernels is interpreted; engine specstorm has no kernel definitions"),
        ({"release": "0.32.0"}, "--release is 0.32.0; engine specstorm on sim has one release only"),
        ({"engine": "vllm", "release": "0.31.0"}, "--release is 0.31.0; engine vllm on sim has 0.3"),
    ],
)
def test_file_with_unknown_engine_or_device_is_refused(
    keys: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["replay", str(on(tmp_path, **keys))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("command", ["replay", "shrink", "bisect", "export", "run", "validate"])
@pytest.mark.parametrize("key", ["engine_home", "engine_path"])
def test_file_that_names_a_program_is_refused_and_starts_nothing(
    command: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, started = tmp_path / "home", tmp_path / "started"
    (home / "bin").mkdir(parents=True)
    (home / "vllm").mkdir()
    (home / "installed").touch()
    (home / "vllm" / "__init__.py").write_text(f"open({str(started)!r}, 'w')\n")
    (home / "bin" / "python").write_text(f"#!/bin/sh\ntouch {started}\n")
    (home / "bin" / "python").chmod(0o755)
    file = tmp_path / "a.yaml"
    file.write_text(f"run_on: {{engine: vllm, {key}: {home}}}\n{SCENARIO.format(seed=1)}")
    assert cli.run([command, str(file)]) == 2
    said = "".join(capsys.readouterr())
    assert f'{file}:1: unknown key "{key}" in run_on; ' in said
    assert "allowed are device, engine, fixes, kernels, release, sources, version" in said
    assert not started.exists()


LAID_OVER = RunOn(engine="vllm", version="0.32.0", sources="0a1b")


@pytest.mark.parametrize(
    ("found", "here", "said"),
    [
        (RunOn(engine="vllm"), RunOn(engine="vllm", version="0.32.0"), ""),
        (RunOn(version="1+aa"), RunOn(version="1+aa"), ""),
        (RunOn(version="1+aa"), RunOn(version="1+bb"), "was found on specstorm 1+aa; this run has specstorm 1+bb"),
        (LAID_OVER, LAID_OVER, ""),
        (
            LAID_OVER,
            RunOn(engine="vllm", version="0.32.0"),
            "was found on vllm 0.32.0 with overlaid sources 0a1b; this run has vllm 0.32.0"
            "; use --engine-path to select a source tree",
        ),
        (
            RunOn(engine="vllm", version="0.31.0"),
            LAID_OVER,
            "was found on vllm 0.31.0; this run has vllm 0.32.0 with overlaid sources 0a1b",
        ),
        (
            RunOn(engine="sglang", sources="0a1b"),
            RunOn(engine="sglang", sources="0a1c"),
            "was found on sglang without a version with overlaid sources 0a1b"
            "; this run has sglang without a version with overlaid sources 0a1c",
        ),
    ],
)
def test_other_sources_names_both_if_they_differ(found: RunOn, here: RunOn, said: str) -> None:
    assert other_sources(found, here) == said


def test_other_sources_names_the_release_if_it_can_be_selected() -> None:
    found, here = (RunOn(engine="vllm", version=version) for version in ("0.32.0", "0.33.0"))
    said = "was found on vllm 0.32.0; this run has vllm 0.33.0; use --release 0.32.0 to select that release"
    assert other_sources(found, here, ("0.33.0", "0.32.0")) == said


def test_release_of_a_file_is_run_unless_an_engine_or_home_is_typed(tmp_path: Path) -> None:
    file, app = on(tmp_path, engine="vllm", release="0.32.0"), typer.Typer()
    seen: list[RunConfig] = []

    @app.command()
    def command(context: typer.Context, engine: str = "specstorm", release: str = "", engine_home: str = "") -> None:
        seen.append(config_for(file, RunConfig(engine=engine, release=release, engine_home=engine_home), context))

    for typed in ([], ["--release", "0.33.0"], ["--engine-home", str(tmp_path)], ["--engine", "vllm"]):
        assert CliRunner().invoke(app, typed, catch_exceptions=False).exit_code == 0
    assert [each.release for each in seen] == ["0.32.0", "0.33.0", "", ""]
    assert seen[0].flags() == ["--engine", "vllm", "--release", "0.32.0"]


def test_release_and_home_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--release and --engine-home both select an installation"):
        config_of(RunConfig(engine="vllm", release="0.32.0", engine_home=str(tmp_path)))


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_replay_on_other_sources_says_so_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judgement = finding(RunConfig(engine=OTHER))
    config = RunConfig(engine=OTHER, engine_version="1.0", engine_path="/tree", engine_digest="00ff")
    path = write_artefact(tmp_path, judgement, "a.yaml", config)
    assert "/tree" not in path.read_text()
    assert cli.run([command, str(path), *(["--limit", "1"] if command == "shrink" else [])]) == 1
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"specstorm: {path}: was found on other 1.0 with overlaid sources 00ff; this run has ")
    same = write_artefact(tmp_path, judgement, "a.yaml", RunConfig(engine=OTHER))
    assert cli.run(["replay", str(same)]) == 1
    assert capsys.readouterr().err == ""


def test_stored_plan_of_a_hunt_has_no_paths() -> None:
    config = RunConfig(engine="vllm", engine_home="/home", engine_path="/tree", engine_digest="00ff")
    stored = HuntSettings(config=config).plan().model_dump_json()
    assert "/home" not in stored
    assert "/tree" not in stored
    with pytest.raises(ValidationError):
        HuntPlan.model_validate_json(stored.replace('"kernels":', '"engine_home": "/home", "kernels":'))
    with pytest.raises(ValidationError):
        HuntPlan.model_validate_json(stored.replace('"device":""', '"device":"none"'))
