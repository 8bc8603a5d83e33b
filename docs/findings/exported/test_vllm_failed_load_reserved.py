"""A request whose load has failed waits for room that it reserves for itself.

A scheduler without a model. Fails on vLLM 0.32.0.
Written by `specstorm export` from findings/vllm_failed_load_reserved/trace.yaml.
"""

import json
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm import SamplingParams
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorTransferResults,
)
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
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
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


def step(scheduler: Scheduler) -> None:
    """One turn of the engine's loop."""
    if scheduler.has_requests():
        launch(scheduler)
    process(scheduler)


def drain(scheduler: Scheduler) -> None:
    """Go on until nothing is left to do."""
    for _ in range(MAX_STEPS):
        if not scheduler.has_requests() and not scheduler.in_flight:
            return
        step(scheduler)
    raise AssertionError(f"not done after {MAX_STEPS} steps")


@dataclass
class Loads(KVConnectorMetadata):
    """The loads that end in a step: their requests, and blocks that are lost."""

    requests: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class PrefixConnector(KVConnectorBase_V1):
    """Knows the full blocks of requests that have ended."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.is_asynchronous = extra["is_asynchronous"]
        self.block_size = vllm_config.cache_config.block_size
        self.known: set[tuple[int, ...]] = set()
        self.to_lose: dict[str, int] = {}
        self.begun, self.ending = Loads(), Loads()

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        size, end = self.block_size, num_computed_tokens
        # A load within a step leaves that step a token to compute.
        last = request.num_tokens - (not self.is_asynchronous)
        while (
            end + size <= last
            and tuple(request.all_token_ids[: end + size]) in self.known
        ):
            end += size
        count = end - num_computed_tokens
        return count, self.is_asynchronous and count > 0

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        if num_external_tokens:
            self.begun.requests.add(request.request_id)
            if request.request_id in self.to_lose:
                index = self.to_lose.pop(request.request_id)
                self.begun.lost.add(blocks.get_block_ids()[0][index])

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        begun, self.begun = self.begun, Loads()
        if not self.is_asynchronous:
            return begun
        # An asynchronous load ends a step later.
        ending, self.ending = self.ending, begun
        return ending

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        size = self.block_size
        ends = range(size, request.num_computed_tokens + 1, size)
        self.known |= {tuple(request.all_token_ids[:end]) for end in ends}
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        arrived = (
            self._get_connector_metadata().requests if self.is_asynchronous else set()
        )
        return KVConnectorTransferResults(finished_recving=set(arrived))

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set(self._get_connector_metadata().lost)


def prefix_connector(is_asynchronous: bool) -> KVTransferConfig:
    """Return the configuration of the connector of this file."""
    return KVTransferConfig(
        kv_connector=PrefixConnector.__name__,
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"is_asynchronous": is_asynchronous},
    )


def model_output(
    plan: SchedulerOutput, sampled: dict[str, list[int]]
) -> ModelRunnerOutput:
    """Return the results of a step, with the ends of loads."""
    rows = {name: row for row, name in enumerate(sampled)}
    loads = plan.kv_connector_metadata
    ended = KVConnectorOutput(
        finished_recving=loads.requests, invalid_block_ids=loads.lost
    )
    return ModelRunnerOutput(
        [*rows], rows, [*sampled.values()], kv_connector_output=ended
    )


def test_failed_load_reserved(tmp_path, monkeypatch):
    leave_asynchrony(monkeypatch)
    model = save_config(tmp_path / "model", 32)
    scheduler = make_scheduler(
        model,
        async_scheduling=True,
        max_model_len=160,
        num_gpu_blocks_override=7,
        kv_transfer_config=prefix_connector(is_asynchronous=True),
    )
    prompt = [
        27, 1, 27, 19, 20, 21, 7, 3, 28, 2, 16, 18, 4, 5, 1, 15, 23, 3, 3, 4, 26, 18,
        16, 19, 25, 0, 13, 26, 4, 28, 11, 6, 15, 23, 2, 27, 6, 31, 18, 7, 25, 14, 0, 16,
        14, 21, 4, 7, 21, 31, 3, 12, 27, 15, 30, 24, 26, 28, 30, 1, 23, 18, 17, 19, 3,
        29, 6, 9, 3, 22, 9, 28, 23, 2, 17, 13, 8, 6, 31, 18, 19, 21, 21, 28, 13, 19, 11,
        7, 12, 13, 24, 13, 19, 14, 26, 15, 2,
    ]
    add_request(scheduler, "a", prompt, max_tokens=2)
    for _ in range(14):
        step(scheduler)
    add_request(scheduler, "b", prompt, max_tokens=2)
    scheduler.connector.to_lose["b"] = 0
    drain(scheduler)
    # It comes to this line: in the release a request waits for ever.
