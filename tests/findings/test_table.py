"""Table of findings: each page has a head, and the table in `findings/README.md` is current."""

import re

import pytest

from cluster.reports.finding_page import head_of, page_of
from findings.table import INDEX, page
from scenarios.codec import run_on
from workers.edits.fix import FINDINGS, PAGE, TRACE, Fix, fixes_of
from workers.targets.child.releases import is_older
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

TITLE_LENGTH_MAX = 140
SECTIONS = ["## What a client sees", "## Smallest trace", "## Cause", "## Fix", "## How to reproduce"]
NAMES = sorted(file.parent.name for file in FINDINGS.glob(f"*/{PAGE}"))


def test_table_of_findings_is_up_to_date() -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert page(text) == text, "run python -m findings.table"


@pytest.mark.parametrize("name", NAMES)
def test_page_has_a_short_title_and_its_sections_in_order(name: str) -> None:
    title, *lines = page_of(name).splitlines()
    assert title.startswith(("# vLLM", "# SGLang"))
    assert ": " in title
    assert len(title) <= TITLE_LENGTH_MAX
    assert [line for line in lines if line.startswith("## ")] in (SECTIONS, [*SECTIONS, "## Upstream"])


@pytest.mark.parametrize("name", NAMES)
def test_page_of_vllm_names_affected_runners(name: str) -> None:
    runner = head_of(name).runner
    assert (runner == "") == name.startswith("sglang_")
    engine = page_of(name).partition(": ")[0]
    assert engine in ("# SGLang", "# vLLM", "# vLLM on a CPU", f"# vLLM {runner} runner")
    assert (engine == "# vLLM") == (runner == "V1, V2")


@pytest.mark.parametrize("name", NAMES)
def test_page_gives_one_command_for_its_trace(name: str) -> None:
    command = f"`specstorm replay findings/{name}/trace.yaml`"
    assert (FINDINGS / name / TRACE).is_file() == (command in page_of(name).partition("## How to reproduce")[2])


def test_every_finding_outside_the_cpu_build_has_a_trace_and_a_fix_or_the_page_says_why() -> None:
    every = [name for name in NAMES if head_of(name).severity != "CPU build"]
    fixed = {*fixes_of("vllm"), *fixes_of("sglang")}
    assert fixed <= {*NAMES}
    without = [name for name in every if name not in fixed or not (FINDINGS / name / TRACE).is_file()]
    reasons = ("- **No fix.**", "- **No trace.**")
    assert [name for name in without if not any(reason in page_of(name) for reason in reasons)] == []


@pytest.mark.parametrize(("name", "fix"), [*fixes_of("vllm").items(), *fixes_of("sglang").items()])
def test_fix_and_page_name_the_same_release_without_the_bug(name: str, fix: Fix) -> None:
    named = re.search(r"fixed in ([\d.]+)", head_of(name).versions)
    assert fix.fixed_in == (named[1] if named else "")


@pytest.mark.parametrize(("name", "fix"), [each for each in fixes_of("vllm").items() if each[1].fixed_in])
def test_trace_of_a_bug_that_is_fixed_upstream_runs_on_a_release_with_the_bug(name: str, fix: Fix) -> None:
    config = RunConfig.of(run_on(FINDINGS / name / TRACE))
    assert is_older(config.release, fix.fixed_in)
    assert config.release in target_kind(config.engine).releases_on(config.device)
