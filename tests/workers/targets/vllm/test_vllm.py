"""The real vLLM: scenarios agree, planted mistakes are found, and engines keep no state."""

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.conformance import vllm_determinism
from benchmarks.power.order_lines.runs import Runs
from benchmarks.power.vllm_mutants.mutable import Mutable
from cluster.cli import main as cli
from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.events import DummyStep
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from tests.cluster.cli.test_bisect_commits import repository_of
from workers.edits.fix import ALL
from workers.judge.proposals import first_different_draft
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Site
from workers.record.verdict import Agreed, Crashed, Diverged
from workers.run.check import check, judge_trace
from workers.run.comparison import outputs_of
from workers.run.engine_run import UNJUDGED, Options, Run
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig
from workers.targets.vllm import target
from workers.targets.vllm.installation import home_of
from workers.targets.vllm.names import VLLM, VLLM_V1
from workers.targets.vllm.target import VllmV1

ROOT = Path(__file__).resolve().parents[4]
KIND, CONFIG, VALUE_CACHE = VllmV1(), RunConfig(engine=VLLM_V1), ModelValueCache()
# Mistakes that change no token and cause no race: their broken identities.
IDENTITIES = {
    "stale_counts_on_the_host": "mirror_computed: ",
    "positions_one_too_many": "positions: 1, expected 0",
    "ended_requests_kept": "leaks: ",
}
OF_DRAFTERS = {
    "drafter_rows_not_moved": "draft_slots: ",
    "drafter_positions_behind": "draft_positions: 0, expected 1",
    "drafter_goes_on_from_a_rejected_draft": "draft_input_ids: ",
    "drafter_keeps_rejected_drafts": "draft_seq_lens: ",
    "next_tokens_of_other_rows": "draft_input_ids: ",
    "hidden_states_of_other_rows": "",
    "drafts_of_other_rows": "verified: ",
    "drafter_stands_still": "draft_positions: ",
}
OF_STATES = {
    "states_of_other_rows": "states: block ",
    "states_not_begun": "goes_on: a continuation of an earlier state, expected a start without an earlier state",
}
FILES = find_scenarios([ROOT / "scenarios" / name for name in (VLLM, VLLM_V1)])


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_supported_scenario_agrees_and_meets_its_expectations(file: Path, engine: str) -> None:
    trace = load(file).explicit()
    if lacking(trace, target_kind(engine).capabilities) is None:
        assert isinstance(check(trace, VALUE_CACHE, config=RunConfig(engine=engine, fixes=ALL)), Agreed)


def test_scenario_is_supported_by_its_folder_engine_and_first_runner() -> None:
    for file in FILES:
        for engine in (file.parent.name, VLLM_V1):
            assert lacking(load(file), target_kind(engine).capabilities) is None, file


@pytest.mark.parametrize("seed", range(4))
def test_used_engine_has_the_outputs_of_a_new_engine(seed: int) -> None:
    trace = fitted_to(random_trace(seed), KIND.capabilities).explicit()
    KIND.renew(CONFIG)
    first = outputs_of(trace, VALUE_CACHE, KIND)
    for between in (random_trace(100 + other) for other in range(20)):
        other_trace = fitted_to(between, KIND.capabilities).model_copy(update={"spec": trace.spec}).explicit()
        if not problems(other_trace) and lacking(other_trace, KIND.capabilities) is None:
            outputs_of(other_trace, VALUE_CACHE, KIND)
    assert outputs_of(trace, VALUE_CACHE, KIND) == first


def test_engine_has_the_cuda_graphs_of_its_own_spec() -> None:
    # A dummy step launches piecewise graphs only for a drafter that has them.
    plain = EngineSpec(layers="attention", sampling="standard", block_size=32)
    for graphs in ("piecewise", "full"):
        spec = plain.model_copy(update={"graphs": graphs})
        run = Run(Trace(spec=spec, events=(DummyStep(tick=0),)), VALUE_CACHE, UNJUDGED, KIND, CONFIG)
        try:
            assert run.to_end() is None
        finally:
            run.target.close()


def test_discarded_engines_free_their_memory() -> None:
    trace = load(ROOT / "scenarios" / "vllm" / "batch.yaml").explicit()
    trace = trace.model_copy(update={"events": trace.events[:1]})
    held = []
    for chunk in range(100, 148):
        spec = trace.spec.model_copy(update={"long_prefill_token_threshold": chunk})
        outputs_of(trace.model_copy(update={"spec": spec}), VALUE_CACHE, KIND)
        held.append(_anonymous_megabytes(KIND.keeper(CONFIG).process().pid))
    # The first engines are kept, or wait for the garbage collector.
    assert min(held[-16:]) - min(held[16:32]) < 25, held


def _anonymous_megabytes(pid: int) -> float:
    """Return the private memory of a process."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def test_processes_with_different_hash_seeds_agree() -> None:
    assert vllm_determinism.main(["--traces", "6"]) == 0


def test_mistakes_in_the_first_runner_are_found() -> None:
    trace, runs = load(ROOT / "scenarios" / "vllm" / "batch.yaml").explicit(), Runs(Mutable(KIND))
    try:
        clean = runs.seen(trace, "eager")
        assert (clean.races, clean.identity) == ((), "")
        (line,) = (line for line in clean.orders if line.function == "_get_valid_sampled_token_count")
        runs.mutate([line])
        without = runs.seen(trace, "eager")
        assert (without.outputs, without.identity) == (clean.outputs, "")
        assert any(race.startswith("runner.valid_sampled_token_count_cpu: ") for race in without.races)
        for mistake, identity in IDENTITIES.items():
            runs.mutate(mistake=mistake)
            mistaken = runs.seen(trace, "eager")
            assert (mistaken.outputs, mistaken.races) == (clean.outputs, ())
            assert mistaken.identity.startswith(identity)
    finally:
        runs.kind.stop()


def test_wrong_recurrent_states_are_found() -> None:
    trace, runs = load(ROOT / "scenarios" / "vllm" / "hybrid.yaml").explicit(), Runs(Mutable(KIND))
    try:
        clean = runs.seen(trace, "eager")
        assert (clean.races, clean.identity) == ((), "")
        for mistake, identity in OF_STATES.items():
            runs.mutate(mistake=mistake)
            mistaken = runs.seen(trace, "eager")
            assert mistaken.identity.startswith(identity)
            assert mistaken.outputs != clean.outputs
    finally:
        runs.kind.stop()


def test_drafter_mistake_is_found_without_a_change_of_outputs() -> None:
    trace, runs = load(ROOT / "scenarios" / "vllm" / "batch.yaml").explicit(), Runs(Mutable(KIND))
    try:
        clean = runs.seen(trace, "eager")
        assert (clean.races, clean.identity) == ((), "")
        for mistake, identity in OF_DRAFTERS.items():
            runs.mutate(mistake=mistake)
            mistaken = runs.seen(trace, "eager")
            assert (mistaken.outputs, mistaken.races) == (clean.outputs, ())
            assert mistaken.identity.startswith(identity)
            # The mistake without a broken identity changes values only: other draft tokens are proposed.
            assert identity or first_different_draft(trace, mistaken.proposals, clean.proposals) is not None
    finally:
        runs.kind.stop()


def test_race_is_reported_with_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "is_known_race", lambda race, trace, runner: "backup_next_token_ids" not in race.memory)
    trace = load(ROOT / "scenarios" / "vllm" / "aborted_while_in_flight.yaml").explicit()
    verdict = check(trace, VALUE_CACHE, Options(blame=True), config=CONFIG)
    assert isinstance(verdict, Diverged)
    order = verdict.difference.missing_order
    assert order is not None
    assert order.harm is not None
    task = order.harm.task
    assert task is not None
    assert (order.harm.kind, order.harm.what, task.op, task.step) == ("masked", "reads", "copy_h2d", 0)
    assert task.site == Site(function="copy_to_gpu", file="vllm/v1/utils.py", line=143)


def test_engine_runs_again_after_its_process_was_killed() -> None:
    trace = load(FILES[0]).explicit()
    process = KIND.keeper(CONFIG).process()
    process.kill()
    assert isinstance(check(trace, VALUE_CACHE, config=CONFIG), Agreed)


def test_error_of_the_engine_is_a_crash_with_its_location() -> None:
    trace = load(FILES[0]).explicit()
    # More blocks than the memory has room for.
    wide = trace.model_copy(update={"spec": trace.spec.model_copy(update={"max_model_len": 65536})})
    verdict = check_without_limits(wide)
    assert isinstance(verdict, Crashed)
    assert verdict.error.startswith("ValueError: ")
    assert verdict.where.file == "kv_cache_utils.py"


def check_without_limits(trace: Trace) -> Agreed | Crashed | Diverged:
    verdict = judge_trace(trace, VALUE_CACHE, Options(), KIND, CONFIG)
    assert isinstance(verdict, Agreed | Crashed | Diverged)
    return verdict


def installed_packages() -> Path:
    """Return the folder that contains the package of the default release."""
    found = KIND.installed(CONFIG)
    assert found is not None, "vLLM is installed"
    return found


def laid_over(folder: Path, file: str, before: str, after: str) -> RunConfig:
    """Copy the packages of `file` to `folder`, replace a text in it; return an overlay config."""
    installed = installed_packages() / "vllm"
    for parent in Path(file).parents:
        (folder / "vllm" / parent).mkdir(parents=True, exist_ok=True)
        for source in (installed / parent).glob("*.py"):
            (folder / "vllm" / parent / source.name).write_bytes(source.read_bytes())
    text = (installed / file).read_text()
    assert before in text
    (folder / "vllm" / file).write_text(text.replace(before, after))
    return CONFIG.model_copy(update={"engine_path": str(folder)})


def test_overlay_replaces_the_installed_sources(tmp_path: Path) -> None:
    step = "self.current_step += 1\n"
    config = laid_over(tmp_path, "v1/core/sched/scheduler.py", step, "raise RuntimeError('ours')\n")
    verdict = check(load(FILES[0]).explicit(), VALUE_CACHE, config=config)
    KIND.keeper(config).stop()
    assert isinstance(verdict, Crashed)
    assert verdict.error == "RuntimeError: ours"
    assert (verdict.where.function, verdict.where.file) == ("schedule", "scheduler.py")


@pytest.mark.parametrize(
    ("file", "name", "missing"),
    [
        # Wrapped to read the model's inputs.
        ("v1/worker/gpu_model_runner.py", "_model_forward", "vllm.v1.worker.gpu_model_runner.GPUModelRunner"),
        # Read, and set when a scheduler is made.
        ("v1/core/sched/scheduler.py", "max_num_running_reqs", "vllm.v1.core.sched.scheduler.Scheduler"),
        # Replaced.
        ("v1/sample/rejection_sampler.py", "expand_batch_to_tokens", "vllm.v1.sample.rejection_sampler"),
    ],
)
def test_version_without_a_hooked_name_is_refused(
    file: str, name: str, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laid_over(tmp_path, file, name, f"{name}_renamed")
    assert cli.run(["replay", str(FILES[0]), "--engine", VLLM_V1, "--engine-path", str(tmp_path)]) == 2
    refusal = f"Unknown: vLLM {KIND.version(CONFIG)} has no {missing}.{name}; supported versions: 0.32.0, 0.33.0"
    assert capsys.readouterr().err.endswith(f"specstorm: engine vllm-v1: {refusal}\n")


def test_bisect_finds_the_commit_that_introduced_a_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "vllm/v1/core/sched/utils.py"
    installed = installed_packages()
    right = (installed / name).read_text()
    wrong = right.replace("num_output_tokens >= request.max_tokens", "num_output_tokens > request.max_tokens")
    assert wrong != right
    history = [
        ("begin", "vllm/__init__.py", (installed / "vllm" / "__init__.py").read_text()),
        ("write a comment", name, f"{right}# More.\n"),
        ("break the syntax", name, f"{right}def\n"),
        ("let requests go on", name, wrong),
        ("write another comment", name, f"{wrong}# Less.\n"),
    ]
    made = repository_of(tmp_path / "checkout", history)
    options = ["--engine", VLLM_V1, "--device", "cpu", "--repository", str(tmp_path / "checkout")]
    assert cli.run(["bisect", str(ROOT / "scenarios" / "vllm" / "batch.yaml"), *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    skipped = [line for line in lines if "skipped" in line]
    assert [line for line in skipped if "SyntaxError" not in line] == []
    between = f"; {made['break the syntax']} between them inconclusive"
    good, bad = made["write a comment"], made["let requests go on"]
    assert lines[-1] == f"first bad: {bad} (let requests go on); last good: {good}{between}"


def test_model_classes_are_inspected_in_the_engine_process() -> None:
    program = """
import vllm
from vllm.model_executor.models import registry
from workers.targets.vllm.inside.models import inspect_here
registry._run_in_subprocess = None
inspect_here()
names = "EagleLlamaForCausalLM", "MiMoMTPModel", "DFlashDraftModel", "Qwen3NextForCausalLM"
print([registry.ModelRegistry.models[name].inspect_model_cls().architecture for name in names])
"""
    command = [str(home_of(CONFIG) / "bin/python"), "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_CI_ENV": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    classes = ["EagleLlamaForCausalLM", "MiMoMTP", "DFlashQwen3ForCausalLM", "Qwen3NextForCausalLM"]
    assert run.stdout.splitlines()[-1:] == [str(classes)], run.stderr
