"""Selection of scenarios for a change, by the functions and blocks that each scenario executes."""

from collections.abc import Mapping

import pytest

from cluster.campaigns.hunt.selection import Selection, edits_in, focus_of, selection_of
from scenarios.generation.catalogue import unknown_focus
from scenarios.generation.weights import Area
from workers.targets.executed import Executed
from workers.targets.registry import known_engines, target_kind

CORE = """
LIMIT = 1

class Scheduler:
    def schedule(self, requests):
        if requests:
            chosen = 1
        else:
            chosen = 2
        return chosen

    def preempt(self):
        return 1

def unused():
    return 1
"""
FILES = {"ours/core.py": CORE, "ours/drafts.py": "def propose():\n    return 1\n", "ours/kernels.py": "SIZE = 4\n"}
RECORD = Executed.of(
    "1.2.3",
    {
        "chunks": ["ours/core.py:Scheduler.schedule", "ours/core.py:Scheduler.schedule:1", "ours/core.py:<module>"],
        "drafts": ["ours/core.py:Scheduler.schedule", "ours/drafts.py:propose", "ours/core.py:<module>"],
        "idle": ["ours/core.py:Scheduler.schedule", "ours/core.py:Scheduler.schedule:2", "ours/core.py:<module>"],
        "preempted": [
            "ours/core.py:Scheduler.schedule",
            "ours/core.py:Scheduler.schedule:1",
            "ours/core.py:Scheduler.preempt",
            "ours/core.py:<module>",
            "ours/kernels.py:<module>",
        ],
    },
)
NAMES = ("chunks", "drafts", "idle", "new", "preempted")
SMOKE = ("idle",)


def selected(
    after: Mapping[str, str | None], before: Mapping[str, str] = FILES, recorded: Mapping[str, str] = FILES
) -> Selection:
    def content(files: Mapping[str, str | None], file: str) -> bytes | None:
        text = files.get(file)
        return text.encode() if text is not None else None

    edits = edits_in(
        sorted(after),
        "ours",
        lambda file: content(before, file),
        lambda file: content(after, file),
        lambda file: content(recorded, file),
    )
    return selection_of(edits, RECORD, NAMES, SMOKE)


@pytest.mark.parametrize(
    ("file", "old", "new", "names"),
    [
        # A block that two scenarios execute: the one that executes more of the file comes first.
        ("ours/core.py", "chosen = 1", "chosen = 7", "preempted chunks"),
        ("ours/core.py", "chosen = 2", "chosen = 7", "idle"),
        ("ours/core.py", "return chosen", "return -chosen", "preempted idle chunks drafts"),
        ("ours/core.py", "    def preempt(self):\n        return 1\n", "", "preempted"),
        # Statements outside functions count as their whole file, and so does a new method as its class.
        ("ours/core.py", "LIMIT = 1", "LIMIT = 2", "preempted idle chunks drafts"),
        (
            "ours/core.py",
            "    def preempt",
            "    def free(self):\n        return 1\n\n    def preempt",
            "preempted idle chunks drafts",
        ),
        ("ours/drafts.py", "return 1", "return 2", "drafts"),
        # No function of this file is executed: it counts by the scenarios that load it.
        ("ours/kernels.py", "SIZE = 4", "SIZE = 8", "preempted"),
    ],
)
def test_scenarios_that_execute_changed_blocks_are_selected(file: str, old: str, new: str, names: str) -> None:
    assert FILES[file].count(old) == 1
    selection = selected({file: FILES[file].replace(old, new)})
    assert " ".join(selection.scenarios) == f"{names} new"


def test_selection_reports_changed_functions_and_omitted_scenarios() -> None:
    after = CORE.replace("chosen = 1", "chosen = 7").replace(
        "def unused():\n    return 1", "def unused():\n    return 2"
    )
    assert selected({"ours/core.py": after}).lines == (
        "changed functions: Scheduler.schedule (ours/core.py), unused (ours/core.py)",
        "no scenario executes unused (ours/core.py) (recorded on release 1.2.3)",
        "to judge: 2 of 5 scenarios, which execute changed functions, largest share of the changed files first; "
        "then 1 without a record; 2 that execute none of them are left out",
    )


def test_unexecuted_change_selects_smoke_and_unrecorded_scenarios() -> None:
    after = CORE.replace("def unused():\n    return 1", "def unused():\n    return 2")
    selection = selected({"ours/core.py": after})
    assert (selection.scenarios, selection.is_all) == (("idle", "new"), False)
    assert selection.lines[-1].startswith(
        "to judge: 1 of 5 scenarios, as a smoke test; then 1 without a record; 3 that "
    )


@pytest.mark.parametrize("after", [{}, {"docs/x.md": "text"}, {"ours/core.py": f"# A comment.\n{CORE}"}])
def test_without_a_changed_function_smoke_scenarios_are_selected(after: dict[str, str | None]) -> None:
    selection = selected(after)
    assert selection.scenarios == ("idle",)
    assert selection.lines == ("no function has changed; to judge: 1 of 5 scenarios, as a smoke test",)


def test_blocks_count_only_where_the_record_was_made_on_the_same_function() -> None:
    before = CORE.replace("chosen = 1", "chosen = 3")
    after = {"ours/core.py": before.replace("chosen = 2", "chosen = 7")}
    assert len(selected(after, {"ours/core.py": before}).scenarios) == 5
    assert selected(after, {"ours/core.py": before}, {"ours/core.py": before}).scenarios == ("idle", "new")
    assert len(selected(after, {"ours/core.py": before}, {}).scenarios) == 5


def test_new_function_counts_as_executed_by_its_callers() -> None:
    after = CORE.replace("chosen = 2", "chosen = helper()") + "\ndef helper():\n    return 2\n"
    assert selected({"ours/core.py": after}).scenarios == ("idle", "new")


AREAS_OF_FILES: Mapping[Area, tuple[str, ...]] = {
    "scheduling": ("*/sched/*",),
    "sampling": ("*/sample/*", "*/structured_output/*"),
    "kv_cache": ("*/block_pool.py",),
    "connectors": ("*/kv_transfer/*", "*/block_pool.py"),
}


@pytest.mark.parametrize(
    ("files", "areas"),
    [
        (["ours/sched/scheduler.py"], ("scheduling",)),
        (["python/ours/sched/scheduler.py"], ("scheduling",)),
        (["ours/core/block_pool.py"], ("kv_cache", "connectors")),
        (["ours/sample/sampler.py", "ours/structured_output/mask.py"], ("sampling",)),
        (["ours/core/block_pool.py", "ours/sample/sampler.py"], ("sampling", "kv_cache", "connectors")),
        (["ours/core/block_pool.py", "ours/sample/sampler.py", "ours/sched/scheduler.py"], ()),
        (["ours/models/llama.py", "README.md"], ()),
        ([], ()),
    ],
)
def test_focus_has_the_areas_of_changed_files_and_at_most_three(files: list[str], areas: tuple[str, ...]) -> None:
    assert focus_of(files, AREAS_OF_FILES) == areas


@pytest.mark.parametrize("engine", known_engines())
def test_areas_of_an_engine_have_situations_of_its_traces(engine: str) -> None:
    kind = target_kind(engine)
    assert unknown_focus(kind.areas, kind.capabilities) == ""


@pytest.mark.parametrize(
    ("engine", "file", "areas"),
    [
        ("vllm", "vllm/v1/core/sched/scheduler.py", ("scheduling",)),
        ("vllm", "vllm/v1/spec_decode/eagle.py", ("speculation",)),
        ("vllm-v1", "vllm/v1/sample/rejection_sampler.py", ("speculation", "sampling")),
        ("vllm", "vllm/v1/engine/core.py", ("sessions", "control_plane")),
        ("vllm", "vllm/entrypoints/openai/api_server.py", ()),
    ],
)
def test_focus_of_a_changed_engine_file(engine: str, file: str, areas: tuple[str, ...]) -> None:
    assert focus_of([file], target_kind(engine).areas) == areas
