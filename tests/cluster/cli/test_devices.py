"""Options `--engine` and `--device`: their effect on job keys, invalid values, GPU shares."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_BAD_INPUT
from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.nightly import Regressions, part_of_the_faults
from cluster.cli import main as cli
from cluster.dispatch.job import Job, TrialJob, job_key
from cluster.dispatch.origin import ROOT
from cluster.dispatch.pool import InProcessPool, gpu_share
from cluster.dispatch.session import Stop
from cluster.storage.errors import CampaignError
from cluster.storage.hunts import CANARY
from cluster.storage.store import Store
from scenarios.generation.shards import Shard
from tests.cluster.campaigns.hunt.fakes import Memory, buggy, canary_or, run_through
from tests.cluster.cli.conftest import Here
from tests.cluster.cli.test_commands import SCENARIO, SECONDS_MAX, specstorm
from tests.cluster.fake_judge import FAKE_JUDGE, trace
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.run.trials import run_trial
from workers.run.worker import Worker
from workers.targets.devices import devices_with, faults_on
from workers.targets.registry import known_engines
from workers.targets.target import DEVICES, RunConfig

IN_AN_OP, ON_THE_HOST = "vllm-43434-draft-order", "vllm-38556-backup-token"
CUDA, INTERPRETED = RunConfig(device="cuda"), RunConfig(device="triton-cpu")


def scenario(folder: Path) -> Path:
    path = folder / "one.yaml"
    path.write_text(SCENARIO.format(seed=1))
    return path


def test_a_job_on_another_device_is_another_job() -> None:
    keys = {Job.of(trace("agree"), sweep=True, config=RunConfig(device=device)).key for device in DEVICES}
    assert len(keys) == len(DEVICES)
    assert job_key(trace("agree"), True, "x") == job_key(trace("agree"), True, "x", RunConfig(device="sim"))


def test_every_actor_gets_an_equal_share_of_one_gpu() -> None:
    assert [gpu_share(slots, 1) for slots in (1, 2, 4)] == [1, 0.5, 0.25]
    assert [gpu_share(slots, 2) for slots in (1, 2, 3, 4)] == [1, 1, 0.5, 0.5]


@pytest.mark.parametrize("command", [("run", "--ray", "off"), ("replay",)])
def test_a_fault_that_does_not_exist_on_a_device_is_refused_and_none_is_ignored(
    command: tuple[str, ...], tmp_path: Path, here: Here
) -> None:
    path = scenario(tmp_path)
    path.write_text(f"faults: [{IN_AN_OP}]\n" + path.read_text())
    done = here(*command, "--device", "triton-cpu", str(path))
    assert done.returncode == 2
    assert f"one.yaml: fault {IN_AN_OP} exists on --device sim only" in done.stderr
    assert done.stdout == ""


def test_every_command_that_switches_faults_on_refuses_those_that_do_not_exist_on_its_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path)
    path.write_text(f"faults: [{IN_AN_OP}]\n" + path.read_text())
    for command in (
        ("hunt", "--fault", IN_AN_OP),
        ("hunt", "--canary", IN_AN_OP),
        ("nightly", "--canary", IN_AN_OP),
        ("faults", "measure", IN_AN_OP),
        ("shrink", str(path)),
    ):
        assert cli.run([*command, "--device", "cuda"]) == EXIT_BAD_INPUT
        assert f"fault {IN_AN_OP} exists on --device sim only" in capsys.readouterr().err


def test_every_command_with_a_device_refuses_an_engine_that_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(scenario(tmp_path))
    commands = (("run", path), ("replay", path), ("hunt",), ("nightly",), ("shrink", path), ("faults", "measure"))
    for command in commands:
        assert cli.run([*command, "--engine", "nobody"]) == EXIT_BAD_INPUT
        assert capsys.readouterr().err == f"specstorm: --engine is nobody; known are {', '.join(known_engines())}\n"


def test_the_canary_exists_on_every_device() -> None:
    assert devices_with(FAULTS[CANARY]) == DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_every_job_of_a_hunt_runs_on_the_device_of_its_plan(device: str, tmp_path: Path) -> None:
    plan = HuntSettings.model_validate({"config": {"device": device}})
    tasks = run_through(Hunt(plan, Memory(), tmp_path, 24), canary_or(buggy))
    assert {task.job.kind for task in tasks} == {"judge", "shard", "try"}
    assert {task.job.config.device for task in tasks} == {device}


def test_a_shard_or_a_trial_on_another_device_is_another_job() -> None:
    on_each = [
        Hunt(HuntSettings(config=RunConfig(device=device)), Memory(), Path("running"), 12).tasks(1, 1, True)
        for device in DEVICES
    ]
    assert len({task.job.key for tasks in on_each for task in tasks}) == sum(map(len, on_each))
    assert len({TrialJob.of(CANARY, 0, 9, False, RunConfig(device=device)).key for device in DEVICES}) == len(DEVICES)


def test_a_hunt_goes_on_only_on_the_device_it_was_begun_on(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        HuntPlanner(HuntSettings(), store, 12)
        with pytest.raises(CampaignError, match="give another --out"):
            HuntPlanner(HuntSettings(config=CUDA), store, 12)


def test_a_night_replays_and_measures_the_faults_that_exist_on_its_device_and_says_what_it_leaves_out(
    tmp_path: Path,
) -> None:
    traces = {
        fault: trace(f"diverge-{at}").model_copy(update={"faults": (fault,)})
        for at, fault in enumerate((IN_AN_OP, ON_THE_HOST))
    }
    with Store(tmp_path) as store:
        replayed = Regressions(traces, store, CUDA)
        drive(replayed.suite, InProcessPool(FAKE_JUDGE), Stop(), None, store)
    assert list(replayed.faulty) == [ON_THE_HOST]
    assert set(replayed.clean) == {IN_AN_OP, ON_THE_HOST}
    assert replayed.missed == []
    assert "  not looked for: the faults of 1 traces do not exist on this device" in list(replayed.lines())
    measured = [fault for night in range(7) for fault in part_of_the_faults(night, 7, CUDA)]
    assert sorted(measured) == faults_on(CUDA)
    assert set(faults_on(RunConfig())) - set(measured) == {
        fault for fault in FAULTS if devices_with(FAULTS[fault]) == ("sim",)
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles its kernels where there is a GPU")
def test_shard_and_trial_have_the_same_result_on_the_interpreter() -> None:
    # Its ninth trace is short.
    shard, worker = Shard(profile="labelled", seed=0, number=1, first=8, traces=1), Worker()
    on_sim, interpreted = (worker.hunt(shard, lambda trace: None, config) for config in (RunConfig(), INTERPRETED))
    assert on_sim == interpreted
    seen = [
        run_trial(CANARY, 0, 1, False, ModelValueCache(), lambda: 0.0, config) for config in (RunConfig(), INTERPRETED)
    ]
    assert seen[0] == seen[1]
    assert seen[0].detected.at == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    commands = (("run", "--ray", "off", str(path)), ("replay", str(path)), ("hunt", "--ray", "off"))
    # One process that has not loaded Triton for the interpreter, which this one may have.
    code = f"from cluster.cli.main import run; print([run([*each, '--device', 'cuda']) for each in {commands}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stdout == "[2, 2, 2]\n"
    assert done.stderr == 3 * "specstorm: cuda: no CUDA device is visible to this process\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles its kernels where there is a GPU")
def test_a_replay_on_the_interpreter_captures_the_same_bytes(tmp_path: Path) -> None:
    path = str(scenario(tmp_path))
    seen = [specstorm(tmp_path, "replay", "--json", "--device", device, path) for device in ("sim", "triton-cpu")]
    assert [done.returncode for done in seen] == [0, 0]
    verdicts = [json.loads(done.stdout)["scenarios"][0]["verdict"] for done in seen]
    assert verdicts[0] == verdicts[1]


def test_a_fault_says_on_which_devices_it_exists(here: Here) -> None:
    assert here("faults", "show", IN_AN_OP).stdout.endswith("devices:  sim\n")
    assert here("faults", "show", ON_THE_HOST).stdout.endswith("devices:  sim, triton-cpu, cuda\n")
