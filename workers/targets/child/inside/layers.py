"""Layers of a transformer as single device tasks, instead of one task per PyTorch operator.

On a GPU, engines have fused kernels for these layers. The replacements compute bit-identical results to the engine's
PyTorch fallback, which is called for every other variant of a layer. The layers have the same names in all engines.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import torch

_OPS: Any = torch.ops.simulated


def _is_plain(*tensors: Any) -> bool:
    return all(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in tensors)


def rms_norm_as_task(before: Callable[..., Any]) -> Callable[..., Any]:
    """Replace RMSNorm's forward pass (optionally with residual) by one device task."""

    @wraps(before)
    def forward_native(
        self: Any, x: torch.Tensor, residual: torch.Tensor | None = None, *rest: Any, **named: Any
    ) -> Any:
        added = () if residual is None else (residual,)
        if rest or named or self.variance_size_override is not None or not _is_plain(x, self.weight, *added):
            return before(self, x, residual, *rest, **named)
        if residual is None:
            return _OPS.rms_norm.default(x, self.weight, self.variance_epsilon)
        return _OPS.add_rms_norm.default(x, residual, self.weight, self.variance_epsilon)

    return forward_native


def rotary_embedding_as_task(before: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a rotary embedding's forward pass by one device task."""

    @wraps(before)
    def forward_native(
        self: Any,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if rest or named or not self.is_neox_style or not _is_plain(query, key, self.cos_sin_cache):
            return before(self, positions, query, key, *rest, **named)
        return _OPS.rotary_embedding.default(positions, query, key, self.cos_sin_cache, self.head_size)

    return forward_native


def swiglu_as_task(before: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a SwiGLU activation's forward pass by one device task."""
    # In some engines the forward pass is a static method.
    takes = len(signature(before).parameters)

    @wraps(before)
    def forward_native(*given: Any) -> Any:
        x = given[-1]
        return _OPS.silu_and_mul.default(x) if _is_plain(x) else before(*given[-takes:])

    return forward_native


ONE_KERNEL = "on a GPU it is one fused kernel, so it is one device task here instead of many operators"
# For each layer: its module in the engine's package of layers, its class, and the function that returns its new
# forward pass.
LAYERS = (
    ("layernorm", "RMSNorm", rms_norm_as_task),
    ("rotary_embedding.base", "RotaryEmbedding", rotary_embedding_as_task),
    ("activation", "SiluAndMul", swiglu_as_task),
)
