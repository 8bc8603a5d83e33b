"""Scheduler without a model: every request samples token 1 in each step."""

from collections import deque
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.interface import PauseState
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

BLOCK_SIZE = 32
# The token that every request samples.
TOKEN = 1
MAX_STEPS = 500


def make_scheduler(model: str, **options: Any) -> Scheduler:
    """Make a scheduler; `in_flight` is its queue of steps without results yet."""
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
    """Add a request with these sampling parameters; it ignores the EOS token."""
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
    """End a streaming session by an input that is not resumable."""
    add_request(scheduler, request_id, [0], max_tokens=1)


def launch(scheduler: Scheduler) -> None:
    """Schedule a step; each request whose prefill is complete samples a token."""
    plan = scheduler.schedule()
    requests = scheduler.requests
    sampled = {
        name: [] if requests[name].is_prefill_chunk else [TOKEN]
        for name in plan.num_scheduled_tokens
    }
    scheduler.in_flight.append((plan, sampled))


def process(scheduler: Scheduler) -> None:
    """Process the oldest step if the queue is full or no further step is scheduled."""
    queue = scheduler.in_flight
    is_full = len(queue) == queue.maxlen
    is_last = queue and not queue[-1][0].total_num_scheduled_tokens
    if is_full or is_last or (queue and not scheduler.has_requests()):
        plan, sampled = queue.popleft()
        scheduler.update_from_output(plan, model_output(plan, sampled))


def model_output(
    plan: SchedulerOutput, sampled: dict[str, list[int]]
) -> ModelRunnerOutput:
    """Return the `ModelRunnerOutput` of a step with these sampled tokens."""
    rows = {name: row for row, name in enumerate(sampled)}
    return ModelRunnerOutput([*rows], rows, [*sampled.values()])


def step(scheduler: Scheduler) -> None:
    """Schedule a step if there are requests; process the oldest results if due."""
    if scheduler.has_requests():
        launch(scheduler)
    process(scheduler)


def preempt(scheduler: Scheduler, request_id: str) -> None:
    """Run a step that preempts a running request, as if free blocks ran out."""
    request = scheduler.requests[request_id]
    scheduler.running.remove(request)
    scheduler._preempt_request(request, 0.0)
    scheduler.waiting.remove_requests([request])
    launch(scheduler)
    scheduler.waiting.prepend_request(request)
    process(scheduler)


def pause(scheduler: Scheduler, state: PauseState, clear_cache: bool) -> None:
    """Set the pause state, run steps until idle, and reset the cache if asked to."""
    scheduler.set_pause_state(state)
    drain(scheduler)
    if clear_cache:
        scheduler.reset_prefix_cache(reset_running_requests=True)


def resume(scheduler: Scheduler) -> None:
    """End a pause: the scheduler admits and runs requests again."""
    scheduler.set_pause_state(PauseState.UNPAUSED)


def drain(scheduler: Scheduler) -> None:
    """Run steps until no request is left and no step is in flight."""
    for _ in range(MAX_STEPS):
        if not scheduler.has_requests() and not scheduler.in_flight:
            return
        step(scheduler)
    raise AssertionError(f"not done after {MAX_STEPS} steps")
