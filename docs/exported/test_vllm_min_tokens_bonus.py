"""A request does not stop at a stop token that is its bonus token, with `min_tokens`
and speculative decoding.

An engine in this process, on a CPU. Fails on vLLM 0.32.0.
Written by `specstorm export` from findings/vllm_min_tokens_bonus/trace.yaml.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
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


def tokens_of(outputs: list[EngineCoreOutput]) -> list[int]:
    """Return the output tokens of one request, from its engine outputs."""
    return [token for output in outputs for token in output.new_token_ids]


def run(model, **options):
    engine = make_engine(
        model,
        max_num_batched_tokens=37,
        max_num_scheduled_tokens=33,
        **options,
    )
    add_request(
        engine,
        "r0",
        [
            16, 7, 22, 0, 3, 23, 18, 13, 17, 6, 13, 24, 13, 14, 14, 1, 15, 5, 27, 10,
            22, 5, 25, 30, 29, 25, 30, 12, 7, 11, 6,
        ],
        max_tokens=24,
        min_tokens=4,
        stop_token_ids=[24],
        frequency_penalty=-1.53125,
    )
    drain(engine)
    return engine.outputs


def test_min_tokens_bonus(tmp_path, monkeypatch):
    keep_async_scheduling(monkeypatch)
    model = save_model(tmp_path / "model", llama(32, seed=11234929914115), 32)
    outputs = run(
        model,
        async_scheduling=True,
        speculative_config={
            "method": "draft_model",
            "num_speculative_tokens": 4,
            "model": model,
        },
    )["r0"]
    others = run(model, async_scheduling=False)["r0"]
    assert tokens_of(outputs) == tokens_of(others)
