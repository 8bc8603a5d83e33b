"""Tests as vLLM has them, of a scheduler and of an engine, which `test_watched.py` runs under the plugin."""

import sys
from pathlib import Path

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from workers.targets.simulated_torch.kernel_definitions import Definitions
from workers.targets.vllm.inside.engines import Engines

SPEC = EngineSpec(
    layers="attention",
    sampling="standard",
    num_speculative_tokens=0,
    block_size=32,
    num_blocks=8,
    max_model_len=128,
    max_num_seqs=4,
    vocab_size=40,
)


def engine_of() -> Engines:
    return Engines(Path(sys.prefix, "models"), "v1", "sim", Definitions({}))


def test_an_engine_ends_what_it_was_given() -> None:
    session = engine_of().open(SPEC, False)
    for number, length in enumerate((40, 3)):
        prompt = tuple(1 + position % 30 for position in range(length))
        session.happen(Submit(tick=0, request=str(number), prompt=prompt, max_tokens=9))
    for _ in range(16):
        session.step()
    assert session.drained()


def test_a_scheduler_plans_what_it_was_given() -> None:
    from vllm.sampling_params import SamplingParams  # noqa: PLC0415  whoever imports this module need not have vLLM
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415
    from vllm.v1.outputs import ModelRunnerOutput  # noqa: PLC0415
    from vllm.v1.request import Request  # noqa: PLC0415

    made = engine_of().open(SPEC, False).engine.scheduler
    scheduler = Scheduler(
        vllm_config=made.vllm_config,
        kv_cache_config=made.kv_cache_config,
        structured_output_manager=made.structured_output_manager,
        block_size=SPEC.block_size,
    )
    parameters = SamplingParams(max_tokens=4, ignore_eos=True)
    parameters.update_from_generation_config({}, 39)
    for name, length in (("a", 31), ("b", 1)):
        scheduler.add_request(Request(name, list(range(length)), parameters, None))
    for _ in range(4):
        plan = scheduler.schedule()
        names = list(plan.num_scheduled_tokens)
        assert names == ["a", "b"]
        rows = {name: row for row, name in enumerate(names)}
        scheduler.update_from_output(plan, ModelRunnerOutput(names, rows, [[7] for _ in names]))
    assert not scheduler.requests
