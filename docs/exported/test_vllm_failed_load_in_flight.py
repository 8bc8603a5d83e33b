"""A failed KV load gives wrong tokens or crashes the engine, with asynchronous
scheduling and `recompute`.

An engine in this process, on a CPU. Fails on vLLM 0.32.0.
Written by `specstorm export` from findings/vllm_failed_load_in_flight/trace.yaml.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vllm import SamplingParams
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorTransferResults,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"

HIDDEN = 64
INTERMEDIATE = 96
MAX_STEPS = 500


def decoder_layer(
    prefix: str, generator: torch.Generator, scale: float
) -> dict[str, torch.Tensor]:
    """Return random decoder-layer weights; `scale` multiplies its output weights."""
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN, 3),
        "self_attn.k_proj": (HIDDEN // 2, HIDDEN, 3),
        "self_attn.v_proj": (HIDDEN // 2, HIDDEN, 1),
        "self_attn.o_proj": (HIDDEN, HIDDEN, 2 * scale),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE, 2 * scale),
    }
    weights = {
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    for name, (rows, columns, factor) in shapes.items():
        weights[name] = torch.randn(rows, columns, generator=generator) * (
            factor * HIDDEN**-0.5
        )
    return {f"{prefix}.{name}.weight": weight for name, weight in weights.items()}


def llama(vocab_size: int, seed: int) -> dict[str, torch.Tensor]:
    """Return random weights of a Llama with two layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "model.embed_tokens.weight": torch.randn(
            vocab_size, HIDDEN, generator=generator
        ),
        "lm_head.weight": torch.randn(vocab_size, HIDDEN, generator=generator) * 0.5,
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for index in range(2):
        weights |= decoder_layer(f"model.layers.{index}", generator, 0.45)
    return weights


def save_config(folder: Path, vocab_size: int, num_layers: int = 2) -> str:
    """Write a model's `config.json` into a new folder; return the folder."""
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


def save_model(
    folder: Path, weights: dict[str, torch.Tensor], vocab_size: int, num_layers: int = 2
) -> str:
    """Write a model's configuration and weights to a new folder; return its path."""
    path = save_config(folder, vocab_size, num_layers)
    save_file(weights, folder / "model.safetensors")
    return path


def keep_async_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch vLLM's CPU platform to keep asynchronous scheduling on."""
    update = CpuPlatform.check_and_update_config

    def update_other_settings(vllm_config: VllmConfig) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        update(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    replaced = staticmethod(update_other_settings)
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", replaced)


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


@dataclass
class Loads(KVConnectorMetadata):
    """Loads that end in a step: their request ids, and the ids of failed blocks."""

    requests: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class PrefixConnector(KVConnectorBase_V1):
    """KV connector that matches prompts with full blocks of finished requests."""

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
        # A synchronous load leaves one token for its step to compute.
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
        # An asynchronous load ends one step later.
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
    """Return the `KVTransferConfig` that selects `PrefixConnector`."""
    return KVTransferConfig(
        kv_connector=PrefixConnector.__name__,
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"is_asynchronous": is_asynchronous},
    )


def test_failed_load_in_flight(tmp_path, monkeypatch):
    keep_async_scheduling(monkeypatch)
    model = save_model(tmp_path / "model", llama(32, seed=11234929914115), 32)
    engine = make_engine(
        model,
        async_scheduling=True,
        max_model_len=160,
        num_gpu_blocks_override=61,
        kv_transfer_config=prefix_connector(is_asynchronous=False),
    )
    prompt = [
        27, 1, 27, 19, 20, 21, 7, 3, 28, 2, 16, 18, 4, 5, 1, 15, 23, 3, 3, 4, 26, 18,
        16, 19, 25, 0, 13, 26, 4, 28, 11, 6, 15, 23, 2, 27, 6, 31, 18, 7, 25, 14, 0, 16,
        14, 21, 4, 7, 21, 31, 3, 12, 27, 15, 30, 24, 26, 28, 30, 1, 23, 18, 17, 19, 3,
        29, 6, 9, 3, 22,
    ]
    add_request(engine, "a", prompt, max_tokens=4)
    for _ in range(14):
        step(engine)
    add_request(engine, "b", prompt, max_tokens=8)
    engine.scheduler.connector.to_lose["b"] = 0
    drain(engine)
    # Every request finishes.
    ends = [outputs[-1].finish_reason for outputs in engine.outputs.values()]
    assert None not in ends
