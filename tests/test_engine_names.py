"""No package except the targets names an engine or branches on its name.

Does not verify: facts about an engine without its name.
"""

import ast
import re

from tests.test_architecture import ROOMS, ROOT, files_of, is_in, module_of, tree_of

# Properties of an engine in a separate process are known to its target only.
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
# Examples of commands may name any engine.
EXAMPLES = ROOT / "cluster" / "cli" / "examples.py"
# A historical bug, or a rule, has the name of its source: `vllm-38556-backup-token`, vLLM PR #38556.
REPORTED = re.compile(r"\b(vllm|sglang)-\d+(-\w+)*|\b(vllm|sglang)(-\w+)? (PR|issue)s? #\d+", re.IGNORECASE)


def engines_named(text: str) -> list[str]:
    """Return the lines that name an engine other than as the source of a historical bug."""
    return [line.strip() for line in text.splitlines() if OTHER_ENGINES.search(REPORTED.sub("", line))]


def test_shared_modules_name_no_engine() -> None:
    # Among the modules that all targets share, only the registry names engines.
    shared = [path for path in (ROOT / "workers" / "targets").glob("*.py") if path.name != "registry.py"]
    files = {*files_of(*KNOWS_NO_ENGINE), *shared} - {EXAMPLES}
    assert [module_of(path) for path in files if engines_named(path.read_text(encoding="utf-8"))] == []


def test_only_targets_compare_engine_names() -> None:
    asking = [
        module_of(path)
        for path in files_of(*ROOMS)
        if not is_in(module_of(path), "workers.targets")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare)
        if any(isinstance(each, ast.Name) and each.id in ENGINES for each in (node.left, *node.comparators))
    ]
    assert asking == []


def test_engines_named_ignores_sources_of_bugs() -> None:
    assert engines_named('lifted_by="vllm-32951-cascade-stays-on",\nSource: vLLM PR #38556.') == []
    assert engines_named('if engine == "vllm":  # vLLM PR #38556\n# as in SGLang') == [
        'if engine == "vllm":  # vLLM PR #38556',
        "# as in SGLang",
    ]
