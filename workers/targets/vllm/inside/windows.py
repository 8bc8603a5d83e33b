"""Sliding-window models: dense models in which some layers attend to the last tokens only.

With more KV heads in the sliding-window layers, vLLM multiplies the block size of the full-attention layer, because
blocks of all layers have the same number of bytes.
"""

from typing import Any

import torch

from scenarios.spec import EngineSpec
from workers.targets.child.inside.models import (
    HEAD_DIM,
    HIDDEN,
    LAYER_SCALE,
    Model,
    Weights,
    dense_config,
    generator_of,
    layer_weights,
    normal,
    target_weights,
)
from workers.targets.vllm.engine_sizes import WINDOW_LAYERS

WIDE_HEADS = 4
# Model class with wide windows, by its registered name.
WIDE = "WideWindowsForCausalLM"


def model(kind: str, version: str, vocab_size: int) -> Model:
    """Return configuration and weights of a sliding-window target.

    Embeddings and head are the dense target's, for which the drafters are made. The engine sets the window length.
    """
    target, generator = target_weights(vocab_size), generator_of(f"{kind} {version}", vocab_size)
    weights = {name: target[name] for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")}
    if version != "good":
        of_tokens = ("model.embed_tokens.weight", "lm_head.weight")
        weights |= {name: normal(generator, *target[name].shape, scale=float(target[name].std())) for name in of_tokens}
    for index, layer in enumerate(WINDOW_LAYERS):
        prefix = f"model.layers.{index}"
        weights |= layer_weights(generator, prefix, LAYER_SCALE)
        if kind == "wide-windows" and layer == "sliding_attention":
            weights |= _wide_attention(generator, f"{prefix}.self_attn")
    config = dense_config(vocab_size, len(WINDOW_LAYERS)) | {
        "layer_types": list(WINDOW_LAYERS),
        "sliding_window": HIDDEN,
    }
    wide = {"architectures": [WIDE], "window_heads": WIDE_HEADS}
    return config | (wide if kind == "wide-windows" else {}), weights


def _wide_attention(generator: torch.Generator, prefix: str) -> Weights:
    """Return attention weights with `WIDE_HEADS` heads, more than in full-attention layers."""
    inner, width = HIDDEN**-0.5, WIDE_HEADS * HEAD_DIM
    return {
        f"{prefix}.q_proj.weight": normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.k_proj.weight": normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.v_proj.weight": normal(generator, width, HIDDEN, scale=inner),
        f"{prefix}.o_proj.weight": normal(generator, HIDDEN, width, scale=2 * LAYER_SCALE * inner),
    }


def window_model_kind(spec: EngineSpec) -> str:
    """Return the test model of a sliding-window spec: `windows` or `wide-windows`."""
    return "windows" if spec.window_heads == 1 else "wide-windows"


def arguments_of(spec: EngineSpec) -> dict[str, Any]:
    """Return vLLM's arguments for a sliding-window spec; register the wide model class if used."""
    if spec.layers != "windows":
        return {}
    if spec.window_heads != 1:
        from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415  after the overlay is installed

        from workers.targets.vllm.inside.wide_windows import WideWindowsForCausalLM  # noqa: PLC0415

        if WIDE not in ModelRegistry.models:
            ModelRegistry.register_model(WIDE, WideWindowsForCausalLM)
    return {"hf_overrides": {"sliding_window": spec.window}}
