"""Test models other than dense ones: hybrid targets, and drafters mtp and dflash.

A hybrid model has two recurrent layers (short convolutions or gated delta nets) and an attention layer between them. A
sliding-window model (`windows.py`) has dense layers.
"""

from pathlib import Path
from typing import Any

import torch

from workers.targets.child.inside import models
from workers.targets.child.inside.models import (
    HEAD_DIM,
    HEAD_SCALE,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYER_SCALE,
    LAYERS,
    Model,
    Weights,
    dense_config,
    dense_model,
    dense_weights,
    generator_of,
    layer_weights,
    normal,
    sizes,
    target_weights,
)
from workers.targets.vllm.inside import windows

HYBRID_LAYERS = ("conv", "full_attention", "conv")
GATED_LAYERS = ("linear_attention", "full_attention", "linear_attention")
# Tokens that a convolution reads: its state holds all but the newest.
CONV_WIDTH = 3
# Scale of the hybrid model's embeddings, which are also its output head.
EMBEDDING_SCALE = 0.1
# Gated delta nets: key heads, value heads, head size, and tokens that their convolutions read. With the most draft
# tokens their states still fit into a block of attention.
KEY_HEADS, VALUE_HEADS, DELTA_DIM, DELTA_WIDTH = 1, 2, 16, 4
# Decay of the state, per head; the slow head keeps its content for long.
DECAYS = (0.005, 0.05)
# vLLM's model classes of the targets and drafters, by their registered names.
_ARCHITECTURES = (
    "LlamaForCausalLM",
    "EagleLlamaForCausalLM",
    "Eagle3LlamaForCausalLM",
    "MiMoForCausalLM",
    "MiMoMTPModel",
    "DFlashDraftModel",
    "Lfm2ForCausalLM",
    "Qwen3NextForCausalLM",
    "MixtralForCausalLM",
)
# Experts of each layer, and how many of them compute a token.
EXPERTS, EXPERTS_PER_TOKEN = 4, 2
# Relative size of the difference between an expert and the dense MLP that all experts of a layer are made from.
EXPERT_SPREAD = 0.3


def model_folder(cache: Path, kind: str, quality: str, vocab_size: int) -> Path:
    """Return the folder of a test model; write the model at first use.

    `kind` is a dense one, hybrid, gated, windows, wide-windows, experts, dflash, or mtp (a target with a draft head of
    that quality). Targets other than mtp have versions v1, v2, ... in addition to `good`.
    """
    return models.model_folder(cache, kind, quality, vocab_size, _model)


def inspect_here() -> None:
    """Let vLLM inspect its model classes in this process, without a subprocess.

    For classes registered by name vLLM starts a process, which lacks our overlay.
    """
    from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415  after the overlay is installed

    for name in _ARCHITECTURES:
        ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())


def _model(kind: str, quality: str, vocab_size: int) -> Model:
    """Return the configuration and weights of a test model."""
    match kind, quality:
        case "hybrid", version:
            name = "hybrid" if version == "good" else f"hybrid {version}"
            return _hybrid_config(vocab_size), _hybrid(generator_of(name, vocab_size), vocab_size)
        case "gated", version:
            return _gated_config(vocab_size), _gated_delta_net(version, vocab_size)
        case (("windows" | "wide-windows"), version):
            return windows.model(kind, version, vocab_size)
        case "experts", version:
            return _experts_config(vocab_size), _experts(version, vocab_size)
        case "dflash", _:
            return _dflash_config(vocab_size), _dflash(target_weights(vocab_size), quality, vocab_size)
        case "mtp", _:
            target = target_weights(vocab_size)
            head = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
            return dense_config(vocab_size, LAYERS) | head, _with_zero_biases(target) | _mtp(quality, vocab_size)
        case _:
            return dense_model(kind, quality, vocab_size)


def _hybrid(generator: torch.Generator, vocab_size: int) -> Weights:
    """Return weights of a hybrid model; embeddings are small, so that layers decide the output."""
    weights = {
        "model.embed_tokens.weight": normal(generator, vocab_size, HIDDEN, scale=EMBEDDING_SCALE),
        "model.embedding_norm.weight": torch.full((HIDDEN,), HEAD_SCALE / EMBEDDING_SCALE),
    }
    for index, kind in enumerate(HYBRID_LAYERS):
        weights |= _hybrid_layer(generator, f"model.layers.{index}", kind)
    return weights


def _hybrid_layer(generator: torch.Generator, prefix: str, kind: str) -> Weights:
    width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    inner = HIDDEN**-0.5
    mixer = {
        "conv.in_proj": normal(generator, 3 * HIDDEN, HIDDEN, scale=inner),
        "conv.conv": normal(generator, HIDDEN, 1, CONV_WIDTH, scale=CONV_WIDTH**-0.5),
        "conv.out_proj": normal(generator, HIDDEN, HIDDEN, scale=inner),
    }
    if kind == "full_attention":
        mixer = {
            "self_attn.q_proj": normal(generator, width, HIDDEN, scale=inner),
            "self_attn.k_proj": normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.v_proj": normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.out_proj": normal(generator, HIDDEN, width, scale=2 * inner),
            "self_attn.q_layernorm": torch.full((HEAD_DIM,), 2.0),
            "self_attn.k_layernorm": torch.ones(HEAD_DIM),
        }
    both = {
        "feed_forward.w1": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "feed_forward.w3": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "feed_forward.w2": normal(generator, HIDDEN, INTERMEDIATE, scale=inner),
        "operator_norm": torch.ones(HIDDEN),
        "ffn_norm": torch.ones(HIDDEN),
    }
    return {f"{prefix}.{name}.weight": weight for name, weight in (mixer | both).items()}


def _gated_delta_net(version: str, vocab_size: int) -> Weights:
    """Return gated-delta-net weights; version `good` has the attention model's embeddings."""
    target, generator = target_weights(vocab_size), generator_of(f"gated {version}", vocab_size)
    weights = {name: target[name] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    if version != "good":
        weights = {name: normal(generator, *each.shape, scale=float(each.std())) for name, each in weights.items()}
    # Its norms multiply by 1 + weight.
    weights["model.norm.weight"] = torch.zeros(HIDDEN)
    for index, kind in enumerate(GATED_LAYERS):
        weights |= _gated_layer(generator, f"model.layers.{index}", kind)
    return weights


def _gated_layer(generator: torch.Generator, prefix: str, kind: str) -> Weights:
    width, kv_width, inner = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, HIDDEN**-0.5
    keys, values = KEY_HEADS * DELTA_DIM, VALUE_HEADS * DELTA_DIM
    outer = 2 * LAYER_SCALE * inner
    mixer = {
        # Queries, keys, values and output gates; then the update rate and the decay of the state.
        "linear_attn.in_proj_qkvz.weight": normal(generator, 2 * keys + 2 * values, HIDDEN, scale=inner),
        "linear_attn.in_proj_ba.weight": normal(generator, 2 * VALUE_HEADS, HIDDEN, scale=inner),
        "linear_attn.conv1d.weight": normal(generator, 2 * keys + values, 1, DELTA_WIDTH, scale=DELTA_WIDTH**-0.5),
        "linear_attn.dt_bias": torch.zeros(VALUE_HEADS),
        "linear_attn.A_log": torch.tensor(DECAYS).log(),
        "linear_attn.norm.weight": torch.ones(DELTA_DIM),
        "linear_attn.out_proj.weight": normal(generator, HIDDEN, values, scale=outer),
    }
    if kind == "full_attention":
        mixer = {
            # Queries, and gates of the attention output.
            "self_attn.q_proj.weight": normal(generator, 2 * width, HIDDEN, scale=inner),
            "self_attn.k_proj.weight": normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.v_proj.weight": normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.o_proj.weight": normal(generator, HIDDEN, width, scale=outer),
            "self_attn.q_norm.weight": torch.ones(HEAD_DIM),
            "self_attn.k_norm.weight": torch.zeros(HEAD_DIM),
        }
    both = {
        "mlp.gate_proj.weight": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "mlp.up_proj.weight": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "mlp.down_proj.weight": normal(generator, HIDDEN, INTERMEDIATE, scale=outer),
        "input_layernorm.weight": torch.zeros(HIDDEN),
        "post_attention_layernorm.weight": torch.zeros(HIDDEN),
    }
    return {f"{prefix}.{name}": weight for name, weight in (mixer | both).items()}


def _experts(version: str, vocab_size: int) -> Weights:
    """Return the dense target's weights, with several experts in place of each layer's MLP."""
    name = "target" if version == "good" else f"target {version}"
    generator, weights = generator_of(f"experts {version}", vocab_size), {}
    for key, weight in dense_weights(name, vocab_size).items():
        layer, is_mlp, projection = key.partition(".mlp.")
        if not is_mlp:
            weights[key] = weight
            continue
        for expert in range(EXPERTS):
            noise = EXPERT_SPREAD * weight.std() * torch.randn(weight.shape, generator=generator)
            name = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[projection.removesuffix(".weight")]
            weights[f"{layer}.block_sparse_moe.experts.{expert}.{name}.weight"] = weight + noise
        weights[f"{layer}.block_sparse_moe.gate.weight"] = normal(generator, EXPERTS, HIDDEN)
    return weights


def _experts_config(vocab_size: int) -> dict[str, Any]:
    return dense_config(vocab_size, LAYERS) | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "sliding_window": None,
    }


def _with_zero_biases(weights: Weights) -> Weights:
    """Return weights without biases in the query, key and value projections (all zero)."""
    projections = [name for name in weights if name.rpartition("_proj")[0][-1:] in ("q", "k", "v")]
    biases = {name.replace("weight", "bias"): torch.zeros(len(weights[name])) for name in projections}
    return weights | biases


def _mtp(quality: str, vocab_size: int) -> Weights:
    """Return weights of an MTP draft head, which mixes token embedding and target hidden state."""
    generator, prefix = generator_of(f"mtp {quality}", vocab_size), "model.mtp_layers.0"
    one = torch.eye(HIDDEN)
    match quality:
        case "good":
            mixed = torch.cat((0.2 * one, one), dim=1)
        case "mediocre":
            mixed = torch.cat((0.6 * one, one), dim=1)
        case _:
            mixed = normal(generator, HIDDEN, 2 * HIDDEN, scale=HIDDEN**-0.5)
    norms = {f"{prefix}.{name}.weight": torch.ones(HIDDEN) for name in ("token_layernorm", "hidden_layernorm")}
    layer = _with_zero_biases(layer_weights(generator, prefix, 0.02 if quality == "good" else 0.2))
    last = {f"{prefix}.input_proj.weight": mixed, f"{prefix}.final_layernorm.weight": torch.ones(HIDDEN)}
    return layer | norms | last


def _dflash(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return weights of a dflash drafter; it guesses at random, whatever the quality."""
    generator = generator_of(f"dflash {quality}", vocab_size)
    layer = layer_weights(generator, "layers.0", 0.2)
    attention = "layers.0.self_attn"
    return layer | {
        f"{attention}.q_norm.weight": torch.ones(HEAD_DIM),
        f"{attention}.k_norm.weight": torch.ones(HEAD_DIM),
        "fc.weight": normal(generator, HIDDEN, LAYERS * HIDDEN, scale=HIDDEN**-0.5),
        "hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "embed_tokens.weight": target["model.embed_tokens.weight"],
        "lm_head.weight": target["lm_head.weight"],
    }


def _dflash_config(vocab_size: int) -> dict[str, Any]:
    return dense_config(vocab_size, 1) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": list(range(LAYERS))},
    }


def _hybrid_config(vocab_size: int) -> dict[str, Any]:
    return sizes(vocab_size, len(HYBRID_LAYERS)) | {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "block_dim": HIDDEN,
        "conv_dim": HIDDEN,
        "conv_L_cache": CONV_WIDTH,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "layer_types": list(HYBRID_LAYERS),
        "norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }


def _gated_config(vocab_size: int) -> dict[str, Any]:
    return sizes(vocab_size, len(GATED_LAYERS)) | {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "layer_types": list(GATED_LAYERS),
        "linear_conv_kernel_dim": DELTA_WIDTH,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_key_head_dim": DELTA_DIM,
        "linear_value_head_dim": DELTA_DIM,
        "num_experts": 0,
        "mlp_only_layers": list(range(len(GATED_LAYERS))),
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    }
