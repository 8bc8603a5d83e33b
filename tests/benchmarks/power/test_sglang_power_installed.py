"""Reversals of SGLang on the installed sources: edits match, and some are found."""

from pathlib import Path

import pytest

from benchmarks.power.reversals.trial import ROOT, installed
from benchmarks.power.sglang_power.reversals import Reversal, all_reversals
from scenarios.codec import load
from tests.benchmarks.power.edited_sources import check_edits
from workers.edits.tree import overlay
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Diverged
from workers.run.check import check
from workers.targets.registry import target_kind
from workers.targets.sglang.installation import SGLANG
from workers.targets.target import RunConfig


@pytest.mark.parametrize("reversal", all_reversals(), ids=lambda each: each.id)
def test_edits_match_installed_source_once_and_change_it(reversal: Reversal, tmp_path: Path) -> None:
    check_edits(reversal, SGLANG, tmp_path)


@pytest.mark.parametrize(
    ("name", "scenario", "plane"),
    [
        ("sglang-17850-other-requests-token", "decode", "inputs"),
        ("sglang-25015-positions-late", "eagle", "drafts"),
        ("sglang-26800-sampled-behind-chunks", "eagle3", "drafts"),
        ("sglang-28034-planned-before-verified", "plan_stream", "races"),
    ],
)
def test_wrong_step_inputs_are_found(name: str, scenario: str, plane: str, tmp_path: Path) -> None:
    reversal = next(each for each in all_reversals() if each.id == name)
    tree = overlay(reversal.edits, installed(SGLANG), tmp_path)
    trace = load(ROOT / "scenarios" / SGLANG / f"{scenario}.yaml").explicit()
    with target_kind(SGLANG).overlaid(tree, RunConfig(engine=SGLANG)) as config:
        found = check(trace, ModelValueCache(), config=config)
    assert isinstance(found, Diverged)
    assert found.difference.plane == plane
