"""`--device`: what a job is, what a fault is refused on, and how a GPU is shared out."""

import json
from pathlib import Path

import pytest
import torch

from cluster.job import Job, job_key
from cluster.pool import gpu_share
from tests.cluster.stand_in import trace
from tests.cluster.test_cli import SCENARIO, specstorm
from workers.devices import DEVICES

IN_AN_OP, ON_THE_HOST = "vllm-43434-draft-order", "vllm-38556-backup-token"


def scenario(folder: Path) -> Path:
    path = folder / "one.yaml"
    path.write_text(SCENARIO.format(seed=1))
    return path


def test_a_job_on_another_device_is_another_job() -> None:
    keys = {Job.of(trace("agree"), sweep=True, device=device).key for device in DEVICES}
    assert len(keys) == len(DEVICES)
    assert job_key(trace("agree"), True, "x") == job_key(trace("agree"), True, "x", "sim")


def test_every_actor_gets_an_equal_share_of_one_gpu() -> None:
    assert [gpu_share(slots, 1) for slots in (1, 2, 4)] == [1, 0.5, 0.25]
    assert [gpu_share(slots, 2) for slots in (1, 2, 3, 4)] == [1, 1, 0.5, 0.5]


@pytest.mark.parametrize("command", [("run", "--ray", "off"), ("replay",)])
def test_a_fault_that_does_not_exist_on_a_device_is_refused_and_none_is_ignored(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = scenario(tmp_path)
    path.write_text(f"faults: [{IN_AN_OP}]\n" + path.read_text())
    done = specstorm(tmp_path, *command, "--device", "triton-cpu", str(path))
    assert done.returncode == 2
    assert f"one.yaml: fault {IN_AN_OP} exists on --device sim only" in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    for command in (("run", "--ray", "off"), ("replay",)):
        done = specstorm(tmp_path, *command, "--device", "cuda", str(path), environment={"TRITON_INTERPRET": "0"})
        assert (done.returncode, done.stderr) == (2, "specstorm: cuda: no CUDA device is visible to this process\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles its kernels where there is a GPU")
def test_a_replay_on_the_interpreter_captures_the_same_bytes(tmp_path: Path) -> None:
    path = str(scenario(tmp_path))
    seen = [specstorm(tmp_path, "replay", "--json", "--device", device, path) for device in ("sim", "triton-cpu")]
    assert [done.returncode for done in seen] == [0, 0]
    verdicts = [json.loads(done.stdout)["scenarios"][0]["verdict"] for done in seen]
    assert verdicts[0] == verdicts[1]


def test_a_fault_says_on_which_devices_it_exists(tmp_path: Path) -> None:
    assert specstorm(tmp_path, "faults", "show", IN_AN_OP).stdout.endswith("devices:  sim\n")
    assert specstorm(tmp_path, "faults", "show", ON_THE_HOST).stdout.endswith("devices:  sim, triton-cpu, cuda\n")
