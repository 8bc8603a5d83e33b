"""Llama model with more heads in sliding-window layers than in full-attention layers."""

from functools import partial
from typing import Any

from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaForCausalLM
from vllm.model_executor.models.utils import extract_layer_index


class WideWindowsAttention(LlamaAttention):  # type: ignore[misc]
    """Llama attention whose number of heads depends on the layer type."""

    def __init__(self, config: Any, *, prefix: str, **options: Any) -> None:
        if config.layer_types[extract_layer_index(prefix)] == "sliding_attention":
            options |= dict.fromkeys(("num_heads", "num_kv_heads"), config.window_heads)
        super().__init__(config, prefix=prefix, **options)


class WideWindowsForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """Llama model with `WideWindowsAttention` in every layer."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        layer: Any = partial(LlamaDecoderLayer, attn_layer_type=WideWindowsAttention)
        super().__init__(vllm_config=vllm_config, prefix=prefix, layer_type=layer)
