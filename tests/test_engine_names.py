"""Engines are known to their targets alone, read from the source: no other room names one, or asks which it has.

Does not verify: a fact of an engine in other words than its name.
"""

import ast
import re

from tests.test_architecture import ROOMS, ROOT, files_of, is_in, module_of, tree_of

# What is peculiar to an engine in a process of its own is known to its target alone.
ENGINES = ("SPECSTORM", "VLLM", "VLLM_V1", "SGLANG")
OTHER_ENGINES = re.compile(r"vllm|sglang", re.IGNORECASE)
KNOWS_NO_ENGINE = (
    "scenarios",
    "workers/edits",
    "workers/lanes",
    "workers/record",
    "workers/oracle",
    "workers/judge",
    "workers/run",
    "workers/shrink",
    "workers/simulated_torch",
    "workers/targets/child",
    "cluster",
)
# What a user types may name any engine.
EXAMPLES = ROOT / "cluster" / "cli" / "examples.py"
# A historical bug, or a rule, is named after where it was reported; `vllm-38556-backup-token`, vLLM PR #38556.
REPORTED = re.compile(r"\b(vllm|sglang)-\d+(-\w+)*|\b(vllm|sglang)(-\w+)? (PR|issue)s? #\d+", re.IGNORECASE)


def engines_named(text: str) -> list[str]:
    """Return the lines that name an engine otherwise than as where a historical bug was reported."""
    return [line.strip() for line in text.splitlines() if OTHER_ENGINES.search(REPORTED.sub("", line))]


def test_nothing_is_peculiar_to_an_engine_outside_its_target() -> None:
    # Of the modules that all targets share, the registry alone names them.
    shared = [path for path in (ROOT / "workers" / "targets").glob("*.py") if path.name != "registry.py"]
    files = {*files_of(*KNOWS_NO_ENGINE), *shared} - {EXAMPLES}
    assert [module_of(path) for path in files if engines_named(path.read_text(encoding="utf-8"))] == []


def test_no_room_but_targets_asks_which_engine_it_has() -> None:
    asking = [
        module_of(path)
        for path in files_of(*ROOMS)
        if not is_in(module_of(path), "workers.targets")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare)
        if any(isinstance(each, ast.Name) and each.id in ENGINES for each in (node.left, *node.comparators))
    ]
    assert asking == []


def test_an_engine_is_named_by_its_bugs_reports_alone() -> None:
    assert engines_named('lifted_by="vllm-32951-cascade-stays-on",\nSource: vLLM PR #38556.') == []
    assert engines_named('if engine == "vllm":  # vLLM PR #38556\n# as in SGLang') == [
        'if engine == "vllm":  # vLLM PR #38556',
        "# as in SGLang",
    ]
