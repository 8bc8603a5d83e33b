"""The real vLLM with its second model runner: scenarios agree, planted mistakes are found."""

from pathlib import Path

import pytest

from benchmarks.power.order_lines.runs import Runs
from benchmarks.power.vllm_mutants.mutable import Mutable
from cluster.cli.inputs import require_engine
from scenarios.codec import load
from scenarios.events import Schedule, Submit
from tests.workers.targets.vllm.test_vllm import laid_over
from workers.edits.fix import ALL
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged
from workers.run.check import check
from workers.run.comparison import outputs_of
from workers.run.engine_run import UNJUDGED, Options, Run
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1
from workers.targets.vllm.target import Vllm, VllmV1

SCENARIOS = Path(__file__).resolve().parents[4] / "scenarios" / "vllm"
FINDINGS = SCENARIOS.parents[1] / "findings"
KIND, CONFIG, VALUE_CACHE = Vllm(), RunConfig(engine=VLLM), ModelValueCache()
FIXED = RunConfig(engine=VLLM, fixes=ALL)
# Mistakes without a race: their broken identities.
IDENTITIES = {
    "rejections_forgotten": "positions: ",
    "bounds_of_the_step_before": "bounds: ",
    "positions_one_too_many": "positions: 1, expected 0",
}


@pytest.mark.parametrize(
    "name",
    [
        *("accepted_drafts", "fewer_drafts", "lookup_on_the_device", "preempted_while_in_flight", "hybrid"),
        *("hybrid_drafts", "hybrid_drafts_looked_up", "hybrid_chunks_before_drafts"),
        *("hybrid_gated", "hybrid_gated_drafts", "hybrid_gated_lookups"),
    ],
)
def test_scenario_agrees_with_a_late_device(name: str) -> None:
    trace = load(SCENARIOS / f"{name}.yaml").explicit()
    assert isinstance(
        check(trace.model_copy(update={"schedule": Schedule(policy="lazy")}), VALUE_CACHE, config=FIXED), Agreed
    )


@pytest.mark.parametrize(("engine", "max_tokens"), [(VLLM, 6), (VLLM_V1, 1)])
def test_prompt_logprobs_kept_at_a_reset_are_delivered_once(engine: str, max_tokens: int) -> None:
    trace = load(FINDINGS / "vllm_prompt_logprobs_dropped" / "trace.yaml").explicit()
    events = tuple(
        event.model_copy(update={"max_tokens": max_tokens}) if isinstance(event, Submit) else event
        for event in trace.events
    )
    config = FIXED.model_copy(update={"engine": engine})
    assert isinstance(check(trace.model_copy(update={"events": events}), VALUE_CACHE, config=config), Agreed)


def test_edited_sources_agree_with_fixes_and_report_edited_functions_that_ran(tmp_path: Path) -> None:
    step, edited = "self.current_step += 1\n", "vllm/v1/core/sched/scheduler.py:Scheduler.schedule"
    tree = laid_over(tmp_path, "v1/core/sched/scheduler.py", step, "self.current_step += 2 - 1\n").engine_path
    laid = FIXED.model_copy(update={"engine_path": tree})
    trace = load(SCENARIOS / "accepted_drafts.yaml").explicit()
    try:
        assert isinstance(check(trace, VALUE_CACHE, config=laid), Agreed)
        assert KIND.edited(laid).watched == (edited,)
        first, second = (KIND.newly_run(laid) for _ in range(2))
        assert edited in first
        assert list(second) == []
    finally:
        KIND.keeper(laid).stop()


def test_both_runners_deliver_the_same_tokens() -> None:
    trace = load(SCENARIOS / "accepted_drafts.yaml").explicit()
    outputs = []
    for kind in (KIND, VllmV1()):
        run = Run(trace, VALUE_CACHE, UNJUDGED, kind, RunConfig(engine=kind.name))
        assert run.to_end() is None
        outputs.append(run.target.outputs())
        run.target.close()
    assert outputs[0] == outputs[1]


def test_hybrid_cuda_graphs_work_after_an_engine_without_graphs() -> None:
    KIND.renew(CONFIG)
    outputs_of(load(SCENARIOS / "batch.yaml").explicit(), VALUE_CACHE, KIND, CONFIG)
    # A graph that captured a convolution would reuse the tensors of its capture, which others have overwritten.
    for name in ("hybrid", "hybrid_prefixes"):
        trace = load(SCENARIOS / f"{name}.yaml").explicit()
        trace = trace.model_copy(update={"spec": trace.spec.model_copy(update={"graphs": "full_and_piecewise"})})
        assert isinstance(check(trace, VALUE_CACHE, Options(confirm="never"), config=CONFIG), Agreed)


def test_each_runner_keeps_its_own_process() -> None:
    first, second = (kind.keeper(CONFIG) for kind in (VllmV1(), KIND))
    assert first is not second
    assert second is Vllm().keeper(CONFIG)


def test_mistakes_in_the_second_runner_are_found() -> None:
    trace, runs = load(SCENARIOS / "batch.yaml").explicit(), Runs(Mutable(KIND))
    try:
        clean = runs.seen(trace, "eager")
        assert (clean.races, clean.identity) == ((), "")
        (line,) = (line for line in clean.orders if line.function == "get_output")
        runs.mutate([line])
        assert any("async_utils.py" in race for race in runs.seen(trace, "eager").races)
        runs.mutate(mistake="one_buffer_instead_of_two")
        races = runs.seen(trace, "eager").races
        assert any(race.startswith("runner.block_tables.num_blocks.pool._uva_bufs.cpu: ") for race in races)
        for mistake, identity in IDENTITIES.items():
            runs.mutate(mistake=mistake)
            mistaken = runs.seen(trace, "eager")
            assert (mistaken.races, mistaken.identity[: len(identity)]) == ((), identity)
    finally:
        runs.kind.stop()


def test_edited_kernel_is_reported_and_interpreted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, forgotten = "num_rejected = num_logits - num_sampled\n", "num_rejected = num_logits - num_sampled - 1\n"
    laid = laid_over(tmp_path, "v1/worker/gpu/input_batch.py", kept, forgotten)
    config = CONFIG.model_copy(update={"engine_path": laid.engine_path})
    kernel = "vllm.v1.worker.gpu.input_batch._get_num_sampled_and_rejected_kernel"
    require_engine(config)
    why = f"{kernel} has another source than the kernel that its definition was compared with"
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith(f" files of {tmp_path} over vLLM {KIND.version(CONFIG)}")
    assert told[1:] == [f"specstorm: engine vllm: kernels that are interpreted, slowly: {why}"]
    verdict = check(
        load(SCENARIOS / "accepted_drafts.yaml").explicit(), VALUE_CACHE, Options(confirm="never"), config=config
    )
    KIND.keeper(config).stop()
    assert isinstance(verdict, Crashed | Diverged)


def test_block_tables_in_the_kv_cache_pool_are_lost_in_a_sleep(tmp_path: Path) -> None:
    kept, lost = 'context(tag="runtime")', 'context(tag="kv_cache")'
    config = CONFIG.model_copy(
        update={"engine_path": laid_over(tmp_path, "v1/worker/gpu_worker.py", kept, lost).engine_path}
    )
    trace = load(SCENARIOS / "asleep.yaml").explicit()
    verdict = check(trace, VALUE_CACHE, config=config)
    KIND.keeper(config).stop()
    assert isinstance(verdict, Crashed)
    assert any(site.function == "gather_block_tables" for site in verdict.callers)
    assert isinstance(check(trace, VALUE_CACHE, config=CONFIG), Agreed)


def test_interpreted_kernels_give_the_verdict_of_their_definitions() -> None:
    trace = load(SCENARIOS / "accepted_drafts.yaml").explicit()
    seen = []
    for kernels in KIND.kernels:
        config = CONFIG.model_copy(update={"kernels": kernels})
        seen.append(check(trace, VALUE_CACHE, config=config))
    assert isinstance(seen[0], Agreed)
    assert seen[0] == seen[1]
