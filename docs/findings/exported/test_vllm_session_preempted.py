"""A streaming session that is preempted with the last token of a part in flight is
never answered again.

A scheduler without a model. Fails on vLLM 0.32.0.
Written by `specstorm export` from findings/vllm_session_preempted/trace.yaml.
"""

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms.cpu import CpuPlatform
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"

HIDDEN = 64
INTERMEDIATE = 96
BLOCK_SIZE = 32
# What is sampled, always.
TOKEN = 1
MAX_STEPS = 500


def save_config(folder: Path, vocab_size: int, num_layers: int = 2) -> str:
    """Write the configuration of a model and return its path."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def leave_asynchrony(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep asynchronous scheduling, which the platform of CPUs switches off."""
    update = CpuPlatform.check_and_update_config

    def update_the_rest(vllm_config: VllmConfig) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        update(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    replaced = staticmethod(update_the_rest)
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", replaced)


def make_scheduler(model: str, **options: Any) -> Scheduler:
    """Make a scheduler, with a queue of plans whose results it does not have yet."""
    sizes = {
        "num_gpu_blocks_override": 129,
        "max_model_len": 128,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "enable_prefix_caching": False,
    }
    config = EngineArgs(
        model=model, block_size=BLOCK_SIZE, skip_tokenizer_init=True, **sizes | options
    ).create_engine_config()
    num_blocks = config.cache_config.num_gpu_blocks_override
    config.cache_config.num_gpu_blocks = num_blocks
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=32, dtype=torch.float32
    )
    scheduler = config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks, [], [KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
    )
    scheduler.in_flight = deque(maxlen=config.max_concurrent_batches)
    return scheduler


def add_request(
    scheduler: Scheduler,
    request_id: str,
    prompt: list[int],
    resumable: bool = False,
    **sampling: Any,
) -> None:
    """Add a request."""
    init_none_hash(sha256)
    request = Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(ignore_eos=True, **sampling),
        pooling_params=None,
        resumable=resumable,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )
    scheduler.add_request(request)


def end_session(scheduler: Scheduler, request_id: str) -> None:
    """Say that no part comes behind the last one of a session."""
    add_request(scheduler, request_id, [0], max_tokens=1)


def launch(scheduler: Scheduler) -> None:
    """Plan a step; who comes to the end of its tokens samples one."""
    plan = scheduler.schedule()
    requests = scheduler.requests
    sampled = {
        name: [] if requests[name].is_prefill_chunk else [TOKEN]
        for name in plan.num_scheduled_tokens
    }
    scheduler.in_flight.append((plan, sampled))


def process(scheduler: Scheduler) -> None:
    """Process the oldest step, once the queue is full or has come to an empty one."""
    queue = scheduler.in_flight
    is_full = len(queue) == queue.maxlen
    if is_full or (queue and not queue[-1][0].total_num_scheduled_tokens):
        plan, sampled = queue.popleft()
        scheduler.update_from_output(plan, model_output(plan, sampled))


def model_output(
    plan: SchedulerOutput, sampled: dict[str, list[int]]
) -> ModelRunnerOutput:
    """Return the results of a step."""
    rows = {name: row for row, name in enumerate(sampled)}
    return ModelRunnerOutput([*rows], rows, [*sampled.values()])


def step(scheduler: Scheduler) -> None:
    """One turn of the engine's loop."""
    if scheduler.has_requests():
        launch(scheduler)
    process(scheduler)


def preempt(scheduler: Scheduler, request_id: str) -> None:
    """Do a step that preempts a running request, as for want of blocks."""
    request = scheduler.requests[request_id]
    scheduler.running.remove(request)
    scheduler._preempt_request(request, 0.0)
    scheduler.waiting.remove_requests([request])
    launch(scheduler)
    scheduler.waiting.prepend_request(request)
    process(scheduler)


def drain(scheduler: Scheduler) -> None:
    """Go on until nothing is left to do."""
    for _ in range(MAX_STEPS):
        if not scheduler.has_requests() and not scheduler.in_flight:
            return
        step(scheduler)
    raise AssertionError(f"not done after {MAX_STEPS} steps")


def test_session_preempted(tmp_path, monkeypatch):
    leave_asynchrony(monkeypatch)
    model = save_config(tmp_path / "model", 32)
    scheduler = make_scheduler(model, async_scheduling=True)
    add_request(
        scheduler,
        "a",
        [29, 14, 14, 30, 28, 14, 16, 28, 27, 9],
        resumable=True,
        max_tokens=5,
    )
    step(scheduler)
    add_request(scheduler, "a", [3, 9, 16, 14, 6, 31], resumable=True, max_tokens=4)
    end_session(scheduler, "a")
    for _ in range(4):
        step(scheduler)
    preempt(scheduler, "a")
    drain(scheduler)
    # Nothing is left.
    assert not scheduler.requests
