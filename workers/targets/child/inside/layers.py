"""Layers of transformers as one task each, where an engine would enqueue every operator of PyTorch for itself.

On a GPU engines have compiled kernels for these; what they compute here is to the same bits what the engine's own
operators compute, which are called where a layer is of another kind. Layers of different engines have the same names.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import torch

_OPS: Any = torch.ops.simulated


def _is_plain(*tensors: Any) -> bool:
    return all(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in tensors)


def normed(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward pass of a root mean square norm: of x, or of the sum of x and a residual, and that sum."""

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


def rotated(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward pass of a rotary embedding: queries and keys, rotated by their positions."""

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


def gated(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward pass of a SwiGLU activation."""
    # In some engines it is a static method.
    takes = len(signature(before).parameters)

    @wraps(before)
    def forward_native(*given: Any) -> Any:
        x = given[-1]
        return _OPS.silu_and_mul.default(x) if _is_plain(x) else before(*given[-takes:])

    return forward_native


ONE_KERNEL = "on a GPU it is one compiled kernel, and here one task of the device, in place of many operators"
# Of each layer its module, below those of an engine's layers, its class, and what makes its forward pass.
LAYERS = (
    ("layernorm", "RMSNorm", normed),
    ("rotary_embedding.base", "RotaryEmbedding", rotated),
    ("activation", "SiluAndMul", gated),
)
