"""Models with sliding windows: dense ones of which some layers see the last tokens alone.

Where these have more heads for keys and values than the layer of full attention has, vLLM makes the blocks of that so
many times as long, as blocks of all layers take as much memory.
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
# The class of a model whose windows are wide, by the name that vLLM is told.
WIDE = "WideWindowsForCausalLM"


def model(kind: str, version: str, vocab_size: int) -> Model:
    """Return the configuration and the weights of a target with windows, or with wide ones.

    It has the embeddings and the head of the dense target, which drafters are made for. How long windows are an engine
    says.
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
            weights |= _wide(generator, f"{prefix}.self_attn")
    config = dense_config(vocab_size, len(WINDOW_LAYERS)) | {
        "layer_types": list(WINDOW_LAYERS),
        "sliding_window": HIDDEN,
    }
    wide = {"architectures": [WIDE], "window_heads": WIDE_HEADS}
    return config | (wide if kind == "wide-windows" else {}), weights


def _wide(generator: torch.Generator, prefix: str) -> Weights:
    """Return the weights of attention with more heads."""
    inner, width = HIDDEN**-0.5, WIDE_HEADS * HEAD_DIM
    return {
        f"{prefix}.q_proj.weight": normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.k_proj.weight": normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.v_proj.weight": normal(generator, width, HIDDEN, scale=inner),
        f"{prefix}.o_proj.weight": normal(generator, HIDDEN, width, scale=2 * LAYER_SCALE * inner),
    }


def kind_of(spec: EngineSpec) -> str:
    """Return the kind of the target of a specification with windows."""
    return "windows" if spec.window_heads == 1 else "wide-windows"


def arguments_of(spec: EngineSpec) -> dict[str, Any]:
    """Return vLLM's arguments for the windows of a specification, once it knows the class of its model."""
    if spec.layers != "windows":
        return {}
    if spec.window_heads != 1:
        from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415  what is laid over comes first

        from workers.targets.vllm.inside.wide_windows import WideWindowsForCausalLM  # noqa: PLC0415

        if WIDE not in ModelRegistry.models:
            ModelRegistry.register_model(WIDE, WideWindowsForCausalLM)
    return {"hf_overrides": {"sliding_window": spec.window}}
