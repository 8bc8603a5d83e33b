"""The real SGLang: scenarios agree, reused engines equal new ones, planted bugs are found."""

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.conformance.exports import tried
from benchmarks.power.order_lines.runs import Runs
from benchmarks.power.reversals.trial import installed
from benchmarks.power.sglang_mutants.__main__ import Mutable
from cluster.cli import main as cli
from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.events import Schedule
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.edits.edit import Edit
from workers.edits.fix import fixes_of
from workers.edits.tree import overlay
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import MissingOrder
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.comparison import outputs_of
from workers.targets.child.process import Keeper, Launch
from workers.targets.child.target import ChildTarget
from workers.targets.registry import target_kind
from workers.targets.sglang.installation import ROOT, SGLANG, home_of, launch
from workers.targets.target import RunConfig, Watch
from workers.targets.vllm.names import VLLM

CONFIG, VALUE_CACHE = RunConfig(engine=SGLANG), ModelValueCache()
KIND = target_kind(SGLANG)
# Includes the scenarios of vLLM that SGLang can run.
FILES = [
    file
    for file in find_scenarios([ROOT / "scenarios" / name for name in (SGLANG, VLLM)])
    if lacking(load(file), KIND.capabilities) is None
]


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_scenario_agrees_and_its_expectations_happen(file: Path, policy: str) -> None:
    trace = load(file).explicit().model_copy(update={"schedule": Schedule.model_validate({"policy": policy})})
    assert isinstance(check(trace, VALUE_CACHE, config=CONFIG), Agreed)


def test_fixes_of_all_findings_fit_the_installed_release_together() -> None:
    found = KIND.fixed(RunConfig(engine=SGLANG, fixes="all"))
    assert (found.names, dict(found.refused)) == (tuple(fixes_of("sglang")), {})


@pytest.mark.parametrize("seed", range(3))
def test_reused_engine_gives_the_outputs_of_a_new_one(seed: int) -> None:
    trace = fitted_to(random_trace(seed), KIND.capabilities).explicit()
    KIND.renew(CONFIG)
    first, second = (outputs_of(trace, VALUE_CACHE, KIND, CONFIG) for _ in range(2))
    assert not isinstance(first, str)
    assert first == second


@pytest.mark.parametrize(
    ("scenario", "variable", "edit"),
    [
        (
            "min_tokens",
            "min_tokens",
            Edit(
                at="sglang.srt.sampling.penaltylib.min_new_tokens:BatchedMinNewTokensPenalizer._apply",
                find="self.len_output_tokens < self.min_new_tokens",
                put="2 * self.len_output_tokens < self.min_new_tokens",
            ),
        ),
        (
            "ngram_corpus",
            "input_ids",
            Edit(
                at="sglang.srt.speculative.ngram_worker:NGRAMWorker._prepare_for_speculative_decoding",
                find="torch.from_numpy(req_drafts)",
                put="torch.from_numpy(req_drafts[::-1].copy())",
            ),
        ),
        (
            "grammars_beside_drafts",
            "finish_reason",
            Edit(
                at="sglang.srt.speculative.spec_utils:build_grammar_vocab_mask",
                find="barrier is not None",
                put="False",
            ),
        ),
        (
            "pauses",
            "paused",
            Edit(
                at="sglang.srt.managers.scheduler:Scheduler.pause_generation",
                find="self._engine_paused = True",
                put="self._engine_paused = recv_req.mode != 'in_place'",
            ),
        ),
        (
            "trees_of_drafts",
            "input_ids",
            Edit(
                at="sglang.srt.speculative.eagle_worker_common:_finalize_accept_tree_path",
                find="_compact_accept_to_front(predict, accept_index, bs, num_draft_tokens=num_draft_tokens)",
                put="predict",
            ),
        ),
        (
            "trees_of_drafts",
            "tokens",
            Edit(
                at="sglang.srt.speculative.eagle_worker_common:_finalize_accept_tree_path",
                find="accept_lens - 1",
                put="accept_lens - accept_lens",
            ),
        ),
        (
            "ranks_of_tensors",
            "rank_1_sampled",
            Edit(
                at="sglang.srt.layers.sampler:Sampler._preprocess_logits",
                before="return logits",
                code="if get_parallel().tp_rank == 1:\n    return logits.roll(1, -1)",
            ),
        ),
    ],
)
def test_planted_bug_is_found_in_the_variable(scenario: str, variable: str, edit: Edit, tmp_path: Path) -> None:
    tree = overlay([edit], installed(SGLANG), tmp_path)
    trace = load(ROOT / "scenarios" / SGLANG / f"{scenario}.yaml").explicit()
    with KIND.overlaid(tree, CONFIG) as config:
        found = check(trace, VALUE_CACHE, config=config)
    assert isinstance(found, Diverged)
    assert found.difference.variable == variable


def races_of(trace: Trace, **environment: str) -> tuple[MissingOrder, ...]:
    """Run a trace in a process with additional environment variables; return its races."""
    plain = launch(home_of(CONFIG))
    keeper = Keeper(SGLANG, lambda: Launch(plain.command, {**plain.environment, **environment}, plain.folder))
    try:
        target = ChildTarget(trace, keeper.process(), Watch())
        events = list(trace.events)
        for tick in range(200):
            for event in [event for event in events if event.tick == tick]:
                target.submit(event, 0, [])  # type: ignore[arg-type]
            target.step(lambda place: None)
            if tick > max(event.tick for event in events) and target.drained():
                return target.races()
    finally:
        keeper.stop()
    raise AssertionError("the trace did not drain in 200 steps")


def test_missing_barrier_is_a_race_with_both_source_lines() -> None:
    trace = load(ROOT / "scenarios" / SGLANG / "decode.yaml").explicit()
    assert races_of(trace) == ()
    found = races_of(trace, SGLANG_ENABLE_WAR_BARRIER="0")
    assert found
    sites = [access.site for race in found for access in (race.first, race.second)]
    assert all(site is not None and site.file.startswith("sglang/srt/") and site.line for site in sites)


def test_removed_wait_is_a_race() -> None:
    trace, runs = load(ROOT / "scenarios" / SGLANG / "decode.yaml").explicit(), Runs(Mutable())
    clean = runs.seen(trace, "eager")
    lines = {line.function: line for line in clean.orders}
    assert clean.races == ()
    try:
        runs.mutate([lines["_copy_result_to_cpu"]])
        found = runs.seen(trace, "eager")
    finally:
        runs.kind.stop()
    assert found.races
    assert all("async_d2h" in race for race in found.races)


def test_kernel_definitions_agree_with_the_interpreted_kernels() -> None:
    plain = launch(home_of(CONFIG))
    command = [plain.command[0], "-m", "benchmarks.conformance.sglang_kernels"]
    environment = {**os.environ, **plain.environment}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compared = {line.split()[0] for line in done.stdout.splitlines()}
    assert len(compared) == 20
    assert {name.rpartition(".")[2] for name in KIND.interpreted(CONFIG)} & compared == set()


def test_exported_test_fails_on_the_release_and_passes_with_the_fix() -> None:
    found = tried("sglang_penalties_forgotten")
    assert found.line == "fails on the release, passes with the fix", found.output


def test_export_of_the_example_writes_the_same_issue_and_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, examples = "sglang_penalties_forgotten", ROOT / "docs" / "exported"
    evidence = ["--evidence", str(examples / f"{name}.json")]
    assert cli.run(["export", f"findings/{name}/trace.yaml", *evidence, "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in examples.glob(f"*{name}.*")}
    for written in (f"{name}.md", f"{name}.patch"):
        assert (tmp_path / written).read_text(encoding="utf-8") == (examples / written).read_text(encoding="utf-8")
