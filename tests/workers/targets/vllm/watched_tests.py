"""Tests like vLLM's own, of a scheduler and an engine; `test_watched.py` runs them."""

import sys
from pathlib import Path
from typing import Any

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from workers.simulated_torch.kernel_definitions import Definitions
from workers.targets.vllm.inside.engines import Engines
from workers.targets.vllm.inside.rank_processes.setup import RankProcesses

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
    return Engines(Path(sys.prefix, "models"), "v1", "sim", Definitions({}), RankProcesses(None))


def test_an_engine_finishes_its_requests() -> None:
    session = engine_of().open(SPEC, False)
    for number, length in enumerate((40, 3)):
        prompt = tuple(1 + position % 30 for position in range(length))
        session.happen(Submit(tick=0, request=str(number), prompt=prompt, max_tokens=9))
    for _ in range(16):
        session.step()
    assert session.drained()


def test_a_scheduler_schedules_its_requests() -> None:
    from vllm.sampling_params import SamplingParams  # noqa: PLC0415  imported without vLLM too
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415
    from vllm.v1.outputs import ModelRunnerOutput  # noqa: PLC0415
    from vllm.v1.request import Request  # noqa: PLC0415

    session: Any = engine_of().open(SPEC, False)
    made = session.engine.scheduler
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


def test_a_scheduler_recomputes_the_end_of_a_prefix_cache_hit() -> None:
    from vllm.sampling_params import SamplingParams  # noqa: PLC0415
    from vllm.utils.hashing import sha256  # noqa: PLC0415
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher  # noqa: PLC0415
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import (  # noqa: PLC0415
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowMLASpec,
    )
    from vllm.v1.outputs import ModelRunnerOutput  # noqa: PLC0415
    from vllm.v1.request import Request  # noqa: PLC0415

    spec = SPEC.model_copy(update={"prefix_cache": True, "max_num_batched_tokens": 96})
    session: Any = engine_of().open(spec, False)
    made = session.engine.scheduler
    dtype = made.vllm_config.model_config.dtype
    whole = FullAttentionSpec(block_size=32, num_kv_heads=1, head_size=1, dtype=dtype)
    window = SlidingWindowMLASpec(
        block_size=32, num_kv_heads=1, head_size=64, dtype=dtype, sliding_window=32, bounded_replay=True
    )
    scheduler = Scheduler(
        vllm_config=made.vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=20,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["whole"], whole), KVCacheGroupSpec(["window"], window)],
        ),
        structured_output_manager=made.structured_output_manager,
        block_size=SPEC.block_size,
    )
    scheduler.use_v2_model_runner = True
    parameters = SamplingParams(max_tokens=9, ignore_eos=True)
    parameters.update_from_generation_config({}, 39)
    hashes = get_request_block_hasher(32, sha256)
    for name in ("a", "b"):
        scheduler.add_request(Request(name, [3] * 70, parameters, None, block_hasher=hashes))
        plan = scheduler.schedule()
        names = list(plan.num_scheduled_tokens)
        rows = {each: row for row, each in enumerate(names)}
        scheduler.update_from_output(plan, ModelRunnerOutput(names, rows, [[7] for _ in names]))
    # One of the hit's two blocks is computed again.
    assert plan.num_scheduled_tokens["b"] == 70 - 32
