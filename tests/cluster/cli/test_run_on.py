"""What a finding was found on stands in its file: it is replayed and shrunk there without any option."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.storage.artefact import write_artefact
from scenarios import codec
from scenarios.capabilities import within
from scenarios.scenario_file import RunOn
from scenarios.strategies import random_trace
from tests.cluster.cli.test_commands import SCENARIO
from tests.workers.targets.black_box import BlackBoxKind, Mistake
from workers.record.verdict import Diverged, Judgement
from workers.run.worker import Worker
from workers.targets import registry
from workers.targets.devices import faults_on
from workers.targets.target import DEVICES, RunConfig

OTHER = "other"
# It is made of NumPy code of an op.
IN_AN_OP = "vllm-43434-draft-order"


@dataclass(frozen=True, slots=True)
class OtherKind(BlackBoxKind):
    """An engine whose requests see each other's tokens."""

    mistake: Mistake = "neighbour"

    @property
    def name(self) -> str:
        return OTHER


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KINDS, OTHER, (__name__, "OtherKind"))


def finding(config: RunConfig) -> Judgement:
    """Return a finding on the other engine."""
    traces = (within(random_trace(seed), OtherKind().capabilities) for seed in range(12))
    judgements = (Worker().judge(trace, False, config) for trace in traces)
    return next(each for each in judgements if isinstance(each.verdict, Diverged))


def on(folder: Path, **keys: str) -> Path:
    """Write a scenario with a fault that exists on one device, and say what it was run on."""
    trace = codec.loads(SCENARIO.format(seed=1), "x").model_copy(update={"faults": (IN_AN_OP,)})
    path = folder / "a.yaml"
    path.write_text(codec.dumps(trace, keys))
    return path


def test_a_file_names_all_that_a_run_is_configured_by() -> None:
    assert set(RunOn.model_fields) == set(RunConfig.model_fields) - {"engine_digest"}
    named = RunConfig(engine="vllm", device="cpu", engine_home="/home", engine_path="/tree", engine_digest="00ff")
    named = named.model_copy(update={"kernels": "interpreted"})
    assert RunOn.model_validate(named.changed()).model_dump() == named.model_dump(exclude={"engine_digest"})


def test_a_finding_on_another_engine_is_replayed_and_shrunk_there_unless_an_engine_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(engine=OTHER)
    path = write_artefact(tmp_path, finding(config), "a.yaml", config)
    assert codec.run_on(path) == {"engine": OTHER}
    assert cli.run(["replay", str(path)]) == 1
    assert "1 scenario: 1 diverged" in capsys.readouterr().out
    assert cli.run(["replay", str(path), "--engine", "specstorm"]) == 0
    assert "1 scenario: 1 agreed" in capsys.readouterr().out
    assert cli.run(["shrink", str(path), "--out", str(tmp_path / "small"), "--limit", "20"]) == 1
    (small,) = (tmp_path / "small").glob("*.yaml")
    assert codec.run_on(small) == {"engine": OTHER}
    assert len(codec.load(small).events) <= len(codec.load(path).events)


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_file_is_run_on_the_device_that_it_names_unless_one_is_typed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [IN_AN_OP in faults_on(RunConfig(device=device)) for device in DEVICES] == [True, False, False]
    path = on(tmp_path, device="triton-cpu")
    refused = (
        f"specstorm: {path}: fault {IN_AN_OP} exists on --device sim only: it is made of NumPy code of a device op"
    )
    assert cli.run([command, str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [refused]
    # Whoever types an engine has typed all of it.
    for typed in (("--device", "sim"), ("--engine", "specstorm")):
        assert cli.run([command, str(path), *typed]) in (0, 1)
    assert cli.run([command, str(on(tmp_path)), "--device", "triton-cpu"]) == 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"device": "nowhere"}, "run_on.device: Input should be "),
        ({"engine": "nobody"}, "--engine is nobody; known are "),
        ({"kernels": "interpreted"}, "--kernels is interpreted; engine specstorm has no definitions of kernels"),
        ({"engine_path": "/no/such/tree"}, "--engine-path is /no/such/tree; engine specstorm is this program itself"),
    ],
)
def test_a_file_that_names_what_there_is_not_is_refused_in_one_line(
    keys: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["replay", str(on(tmp_path, **keys))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
