"""Functions shared by engine and judges: only excused ones, and bugs in others are found.

Verifies: that no function of `scenarios` is called by both but those listed here; that mistakes in what both once
shared are found.
Does not verify: fields of values, which both read.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scenarios.generation.strategies import random_trace
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine import processing
from workers.oracle.derived import keep_rates
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, is_finding
from workers.run.check import check
from workers.run.engine_run import Options

ROOT = Path(__file__).resolve().parents[3]
JUDGED = ("workers/engine", "workers/kernels", "workers/faults", "workers/targets")
JUDGES = ("workers/oracle", "workers/judge")
GENERATORS = ROOT / "scenarios" / "generation"
SEEDS = range(150)
# Functions that engine and judges may both call, with the reason.
EXCUSED = {
    "scenarios.draw.draw": "it says which permutation a shuffle is; any other would do as well",
    "submits": "it lists requests; in targets only the code that recognises known bugs calls it, no engine",
    "submitted": "the same, in the order of ticks",
    "num_ranks": "it is the product of three keys of the specification; an engine's limits ask for it",
    "has_connector": "it says whether the specification has one of three keys; an engine's limits ask for it",
    "workers.record.evidence.fact": "it makes evidence of what a fault requires, and decides nothing",
}

# Attributes of other values with the name of a method in `scenarios`.
NAMESAKES = {
    "allowed": "of a mask in memory, and of the tokens that a request allows; the method belongs to capabilities",
    "number": "of a step in a history, and of a session in an answer; the method belongs to draws of scenarios",
    "of": "of an op's argument, and of an access to memory; the method belongs to draws of scenarios",
    "trace": "of a case that judges are given, and of a report; the method belongs to edges and files of scenarios",
    "rank": "of a lane in an order, and of a request among those that wait; the method belongs to explanations",
}


def files_of(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def functions() -> dict[str, set[str]]:
    """Return the functions of each importable module, and under `""` the methods of values.

    Generators of traces are left out: `test_no_judge_generates_traces` shows that the judges do not use them.
    """
    found: dict[str, set[str]] = {"": set()}
    for path in files_of("scenarios", "workers/record"):
        if path.is_relative_to(GENERATORS):
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(module, set()).add(node.name)
            if isinstance(node, ast.ClassDef) and module.startswith("scenarios"):
                methods = (each.name for each in node.body if isinstance(each, ast.FunctionDef))
                found[""].update(name for name in methods if not name.startswith("_"))
    return found


def called(path: Path) -> Iterator[str]:
    """Yield the functions and methods of `scenarios` and `record` that a file names."""
    known = functions()
    modules: dict[str, str] = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                if name.name in known.get(node.module, ()):
                    yield f"{node.module}.{name.name}"
                if f"{node.module}.{name.name}" in known:
                    modules[name.asname or name.name] = f"{node.module}.{name.name}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute):
            owner = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if owner is not None and node.attr in known[owner]:
                yield f"{owner}.{node.attr}"
            elif owner is None and node.attr in known[""]:
                yield node.attr


def shared() -> set[str]:
    judged, judges = ({name for path in files_of(*folders) for name in called(path)} for folders in (JUDGED, JUDGES))
    return judged & judges


def test_no_judge_generates_traces() -> None:
    assert not [path for path in files_of(*JUDGES) if "scenarios.generation" in path.read_text(encoding="utf-8")]


def test_engine_and_judges_share_only_excused_functions() -> None:
    assert shared() - set(NAMESAKES) == set(EXCUSED)


@pytest.mark.parametrize("source", ["spec.length_limit(1, 2)", "params.changes_logits", "model.block_hash(0, (2,))"])
def test_called_finds_methods_properties_and_functions(source: str, tmp_path: Path) -> None:
    path = tmp_path / "reads.py"
    path.write_text(f"from workers.record import model\n{source}\n", encoding="utf-8")
    name = source.partition("(")[0].rpartition(".")[2]
    assert [each.rpartition(".")[2] for each in called(path)] == [name]


@cache
def trace_of(seed: int) -> Trace:
    return random_trace(seed).explicit()


def wrong_limit(spec: EngineSpec, prompt_length: int, max_tokens: int) -> int:
    return min(prompt_length + max_tokens + 1, spec.max_model_len)


# Functions that would be wrong on both sides if both called them: a class or module, a name, a wrong variant.
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "no parameter changes logits": (SamplingParams, "changes_logits", property(lambda params: False)),
    "penalties alone change logits": (SamplingParams, "changes_logits", property(lambda params: params.has_penalties)),
    "no parameter is a penalty": (SamplingParams, "has_penalties", property(lambda params: False)),
    "a request may have one token more": (EngineSpec, "length_limit", wrong_limit),
    "only the model's length counts": (EngineSpec, "length_limit", lambda spec, prompt, most: spec.max_model_len),
    "drafts are kept at half their rates": (
        EngineSpec,
        "rates",
        property(lambda spec: tuple(spec.synthetic_rates[0] / 2 for _ in keep_rates(spec))),
    ),
    "states are never kept with blocks": (EngineSpec, "is_aligned", property(lambda spec: False)),
    "states are always kept with blocks": (EngineSpec, "is_aligned", property(lambda spec: spec.layers == "hybrid")),
    "top-p alone limits tokens": (processing, "is_limited", lambda params: params.temperature > 0 and params.top_p < 1),
    "top-k alone limits tokens": (processing, "is_limited", lambda params: params.temperature > 0 and params.top_k > 0),
    "a block table is one entry short": (
        EngineSpec,
        "max_blocks_per_request",
        property(lambda spec: max(1, -(-spec.max_model_len // spec.block_size) - 1)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_bug_in_shared_function_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [trace_of(seed) for seed in SEEDS]
    owner, attribute, wrong = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    value_cache = ModelValueCache()
    for trace in traces:
        verdict = check(trace, value_cache, Options(races=False))
        if is_finding(verdict):
            return
        assert isinstance(verdict, Agreed)
    pytest.fail(f"{name}: not found in {len(traces)} traces")
