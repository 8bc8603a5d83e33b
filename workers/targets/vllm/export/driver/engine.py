"""EngineCore in this process, on a CPU: requests, steps, preemption and pauses."""

import time
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor

MAX_STEPS = 500


def make_engine(model: str, **options: Any) -> EngineCore:
    """Make an engine; `engine.outputs` collects the outputs of each request."""
    torch.set_num_threads(1)
    sizes = {
        "block_size": 32,
        "num_gpu_blocks_override": 129,
        "max_model_len": 128,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "enable_prefix_caching": False,
        "skip_tokenizer_init": True,
    }
    config = EngineArgs(
        model=model,
        dtype="float32",
        enforce_eager=True,
        kv_cache_memory_bytes=8 << 20,
        disable_log_stats=True,
        **sizes | options,
    ).create_engine_config()
    engine = EngineCore(config, Executor.get_class(config), log_stats=False)
    engine.outputs = {}
    return engine


def add_request(
    engine: EngineCore,
    request_id: str,
    prompt: list[int],
    resumable: bool = False,
    **sampling: Any,
) -> None:
    """Add a request, which samples greedily unless `sampling` says otherwise."""
    sampling = {"temperature": 0, "ignore_eos": True, "detokenize": False} | sampling
    request = EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        mm_features=None,
        sampling_params=SamplingParams(**sampling),
        pooling_params=None,
        arrival_time=float(len(engine.outputs)),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        resumable=resumable,
    )
    engine.outputs.setdefault(request_id, [])
    engine.add_request(*engine.preprocess_add_request(request))


def end_session(engine: EngineCore, request_id: str) -> None:
    """End a streaming session by an input that is not resumable."""
    add_request(engine, request_id, [0], max_tokens=1)


def grammar(*rules: str) -> StructuredOutputsParams:
    """Return structured-output parameters for EBNF rules, with backend xgrammar."""
    params = StructuredOutputsParams(grammar="\n".join(rules))
    params._backend = "xgrammar"
    return params


def wait_for_grammar(engine: EngineCore, request_id: str) -> None:
    """Wait until xgrammar has compiled the grammar of a request."""
    request = engine.scheduler.requests[request_id].structured_output_request
    while not request.is_grammar_ready:
        time.sleep(0.01)


def step(engine: EngineCore) -> None:
    """Run one step of the engine's loop; collect the delivered outputs."""
    delivered, executed = engine.step_fn()
    engine.post_step(executed)
    for outputs in (delivered or {}).values():
        for output in outputs.outputs:
            engine.outputs[output.request_id].append(output)


def drain(engine: EngineCore) -> None:
    """Run steps until no request is left and no step is in flight."""
    for _ in range(MAX_STEPS):
        if not engine.scheduler.has_requests() and not engine.batch_queue:
            return
        step(engine)
    raise AssertionError(f"not done after {MAX_STEPS} steps")


def preempt(engine: EngineCore, request_id: str) -> None:
    """Run a step that preempts a running request, as if free blocks ran out."""
    scheduler = engine.scheduler
    request = scheduler.requests[request_id]
    schedule = scheduler.schedule

    def schedule_the_others(*arguments: Any) -> SchedulerOutput:
        scheduler.running.remove(request)
        scheduler._preempt_request(request, 0.0)
        scheduler.waiting.remove_requests([request])
        plan = schedule(*arguments)
        scheduler.waiting.prepend_request(request)
        return plan

    scheduler.schedule = schedule_the_others
    step(engine)
    del scheduler.schedule


def pause(engine: EngineCore, state: PauseState, clear_cache: bool) -> None:
    """Set the pause state, run steps until idle, and clear caches if asked to."""
    engine.scheduler.set_pause_state(state)
    drain(engine)
    if clear_cache:
        engine._reset_caches()


def resume(engine: EngineCore) -> None:
    """End a pause: the scheduler admits and runs requests again."""
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
