from pathlib import Path

import pytest

from benchmarks.power.reversals.trial import Task, installed, tried
from benchmarks.power.vllm_power.reversals import Reversal, all_reversals
from scenarios.codec import load
from tests.benchmarks.power.edited_sources import check_edits
from workers.edits.edit import Edit
from workers.edits.tree import overlay
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Diverged
from workers.run.shard import judged_in_full
from workers.targets.target import RunConfig
from workers.targets.vllm.installation import ROOT
from workers.targets.vllm.names import VLLM_V1


@pytest.mark.parametrize("reversal", all_reversals(), ids=lambda each: each.id)
def test_edits_match_installed_source_once_and_change_it(reversal: Reversal, tmp_path: Path) -> None:
    check_edits(reversal, VLLM_V1, tmp_path)


def test_reversal_is_found_and_edit_without_effect_is_not() -> None:
    reversal = next(each for each in all_reversals() if each.id == "vllm-48245-placeholders-kept")
    assert tried(Task(reversal.id, reversal.edits, VLLM_V1), 6).found is not None
    (edit,) = reversal.edits
    same = Edit(at=edit.at, find=edit.without, put=edit.without)
    result = tried(Task(reversal.id, (same,), VLLM_V1), 6)
    assert (result.found, result.refused, result.traces) == (None, "", 6)


@pytest.mark.parametrize(
    ("number", "scenario", "plane"),
    [
        (31341, "offloaded_prompts", "races"),
        (48596, "offloaded_at_ends", "kv"),
        (49285, "offloaded_in_part", "kv"),
        (50297, "handed_over_from_a_tight_pool", "transfers"),
        (17751, "handed_over", "transfers"),
        (43433, "handed_over", "transfers"),
        (33377, "stores_of_the_aborted", "contracts"),
        (33881, "offloaded_outputs", "transfers"),
        (46972, "offloaded_chunks_beside_drafts", "transfers"),
    ],
)
def test_reversed_connector_fix_is_found_on_a_scenario(number: int, scenario: str, plane: str, tmp_path: Path) -> None:
    reversal = next(each for each in all_reversals() if each.number == number)
    config = RunConfig(engine=VLLM_V1, engine_path=str(overlay(reversal.edits, installed(VLLM_V1), tmp_path)))
    trace = load(ROOT / "scenarios" / "vllm" / f"{scenario}.yaml").explicit()
    _, verdicts, _ = judged_in_full(trace, ModelValueCache(), config)
    found = verdicts[-1]
    assert isinstance(found, Diverged)
    assert found.difference.plane == plane
