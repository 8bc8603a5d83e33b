"""Outputs and numbers on pages of the documentation equal what the program prints.

Verifies: README, tutorial and the page of findings, for Specstorm's own engine.
Does not verify: outputs that need vLLM or SGLang, an installation or minutes.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.dispatch.origin import ROOT
from tests.cluster.cli.conftest import Here
from workers.faults.registry import FAULTS
from workers.judge.contracts.judge import CONTRACTS
from workers.run.schedules import all_schedules

README, TUTORIAL, FINDINGS, JUDGING = (
    ROOT / name for name in ("README.md", "docs/tutorial.md", "docs/findings.md", "docs/judging.md")
)
FAULT = "vllm-38556-accepted-counts"
SCENARIO = "smoke/condense_with_counts_on_the_host.yaml"


def blocks(page: Path, language: str = "") -> list[str]:
    """Return the fenced blocks of a page that have this language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for named, block in fenced if named == language]


def lines_shown(block: str) -> Iterator[str]:
    """Yield the lines of an output on a page, unwrapped, without lines that name a folder."""
    for line in re.sub(r"\n {15,}", " ", block).splitlines():
        if line.strip() and line.strip() != "..." and "campaigns/" not in line:
            yield line.strip().replace("scenarios/smoke", "smoke")


def block_with(page: Path, text: str) -> str:
    (block,) = (block for block in blocks(page) if text in block)
    return block


def test_counts_in_readme_equal_the_program() -> None:
    text, judging = (" ".join(page.read_text(encoding="utf-8").split()) for page in (README, JUDGING))
    num_scenarios = len([*ROOT.glob("scenarios/smoke/*.yaml")])
    num_released = sum(not name.startswith("specstorm-") for name in FAULTS)
    assert f"runs {num_scenarios} scenarios under {len(all_schedules())} schedules each" in text
    assert f"{num_scenarios} scenarios: {num_scenarios} agreed" in text
    assert f"has {len(FAULTS)} historical bugs, *faults*, that can be switched on; {num_released} are bugs of" in text
    assert f"and others, {len(CONTRACTS)} in all" in judging


def test_trace_in_readme_is_the_trace_of_its_finding() -> None:
    shown, scenario = blocks(README, "yaml")
    found = ROOT / "findings" / "vllm_min_tokens_asynchronous" / "trace.yaml"
    assert yaml.safe_load(shown) == yaml.safe_load(found.read_text(encoding="utf-8"))
    assert "discard_while_drafting: 1" in scenario


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "scenarios.md"], ids=["README", "scenarios"])
def test_scenario_of_page_agrees_and_hits_its_probe(page: Path, tmp_path: Path, here: Here) -> None:
    (scenario,) = (block for block in blocks(page, "yaml") if "discard_while_drafting" in block)
    (tmp_path / "chunks.yaml").write_text(scenario, encoding="utf-8")
    done = here("run", "chunks.yaml", "--ray", "off")
    assert (done.returncode, "1 scenario: 1 agreed" in done.stdout) == (0, True), done.stdout


def test_planted_bug_prints_what_pages_show(here: Here) -> None:
    done = here("run", SCENARIO, "--fault", FAULT, "--ray", "off")
    assert done.returncode == 1
    printed = [line.strip() for line in done.stdout.splitlines()]
    for page in (README, TUTORIAL, FINDINGS):
        shown = [*lines_shown(block_with(page, "accepted_read is 1, expected 4"))]
        assert len(shown) >= 5
        assert [line for line in shown if line not in printed] == []


def test_hunt_with_planted_bug_prints_what_tutorial_shows(here: Here) -> None:
    done = here("hunt", "--traces", "48", "--fault", FAULT, "--ray", "off")
    assert done.returncode == 1
    printed = [line.strip() for line in done.stdout.splitlines()]
    shown = [*lines_shown(block_with(TUTORIAL, "48 traces (median"))]
    assert [line for line in shown if line not in printed] == []


def test_every_setting_of_an_engine_is_on_the_page_of_scenarios() -> None:
    schema: Any = yaml.safe_load((ROOT / "scenarios" / "scenario.schema.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+)", text))
    definitions = schema["$defs"]
    for name in ("EngineSpec", "SamplingParams", "Transfer", "Offloading", "Handoff"):
        assert definitions[name]["properties"].keys() - named == set(), name
    events = {each["properties"]["do"]["const"] for each in definitions.values() if "do" in each.get("properties", {})}
    assert len(events) >= 20
    assert events - named == set()
