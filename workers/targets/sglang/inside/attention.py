"""SGLang's Triton attention kernels in PyTorch, each as one task of the simulated device.

The arguments are the backend's: for each request, a range of the slot indices. The KV cache has shape [slots, heads,
head size]; a query attends to the slots of its request, in order.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from workers.simulated_torch.device import activate

# Options that are not implemented here, with the value that switches each off.
_PLAIN = {
    "logit_cap": 0.0,
    "sinks": None,
    "xai_temperature_len": -1,
    "has_mla": False,
    "score_mod": None,
    "sliding_window_size": -1,
    "lse_extend": None,
    "skip_prefix": False,
    "skip_extend": False,
    "identity_kv_indices": False,
}


def _check_plain(asked: dict[str, Any]) -> None:
    for name, value in asked.items():
        assert name not in _PLAIN or value == _PLAIN[name], f"attention with {name} {value} is not computed here"


def _attended(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the attention output of queries [n, H, D] over keys and values [m, heads, D]."""
    group = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    weights = torch.einsum("nhd,mhd->hnm", queries, keys) * scale
    if mask is not None:
        weights = weights.masked_fill(~mask, float("-inf"))
    return torch.einsum("hnm,mhd->nhd", weights.softmax(-1), values)


def decoding(before: Callable[..., None]) -> Callable[..., None]:
    """Replace attention of decode steps (one query per request) by one device task in PyTorch."""

    @wraps(before)
    def decode_attention_fwd(
        q: torch.Tensor,
        k_buffer: torch.Tensor,
        v_buffer: torch.Tensor,
        o: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        attn_logits: torch.Tensor,
        attn_lse: torch.Tensor,
        num_kv_splits: torch.Tensor,
        max_kv_splits: int,
        sm_scale: float,
        k_scale: float,
        v_scale: float,
        **asked: Any,
    ) -> None:
        _check_plain(asked)

        def attend(
            q: torch.Tensor,
            keys: torch.Tensor,
            values: torch.Tensor,
            starts: torch.Tensor,
            slots: torch.Tensor,
            splits: torch.Tensor,
            output: torch.Tensor,
        ) -> None:
            first = starts.tolist()
            for row in range(len(q)):
                at = slots[first[row] : first[row + 1]].long()
                # A padding row has no tokens.
                output[row] = _attended(q[row : row + 1], keys[at], values[at], sm_scale)[0] if len(at) else 0

        reads = (q, k_buffer, v_buffer, kv_indptr, kv_indices, num_kv_splits)
        activate().enqueue("decode_attention", attend, reads, (o,))

    return decode_attention_fwd


def extending(before: Callable[..., None]) -> Callable[..., None]:
    """Replace attention of prefill chunks and draft tokens by one device task in PyTorch.

    Tokens before them are in the KV cache; their own keys and values are separate arguments.
    """

    @wraps(before)
    def extend_attention_fwd(
        q_extend: torch.Tensor,
        k_extend: torch.Tensor,
        v_extend: torch.Tensor,
        o_extend: torch.Tensor,
        k_buffer: torch.Tensor,
        v_buffer: torch.Tensor,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        custom_mask: torch.Tensor | None,
        is_causal: bool,
        mask_indptr: torch.Tensor | None,
        max_len_extend: int,
        k_scale: float,
        v_scale: float,
        sm_scale: float | None = None,
        skip_prefix_custom_mask: bool = True,
        **asked: Any,
    ) -> None:
        _check_plain(asked)
        scale = sm_scale or q_extend.shape[-1] ** -0.5
        own = q_extend, k_extend, v_extend, k_buffer, v_buffer
        masks = () if custom_mask is None or mask_indptr is None else (custom_mask, mask_indptr)

        def attend(*views: torch.Tensor) -> None:
            q, k, v, keys, values, starts, prefix_starts, slots, *given, output = views
            first, prefix = starts.tolist(), prefix_starts.tolist()
            for row in range(len(first) - 1):
                begin, end = first[row], first[row + 1]
                if begin == end:
                    continue
                at = slots[prefix[row] : prefix[row + 1]].long()
                shape = end - begin, len(at) + end - begin
                if given:
                    mask = _own_mask(given[0], int(given[1][row]), shape, skip_prefix_custom_mask)
                else:
                    mask = _mask(shape, is_causal)
                pair = torch.cat((keys[at], k[begin:end])), torch.cat((values[at], v[begin:end]))
                output[begin:end] = _attended(q[begin:end], *pair, scale, mask)

        activate().enqueue("extend_attention", attend, (*own, qo_indptr, kv_indptr, kv_indices, *masks), (o_extend,))

    return extend_attention_fwd


def _mask(shape: tuple[int, int], is_causal: bool) -> torch.Tensor:
    """Return which keys each query attends to: cached tokens, and new ones up to itself."""
    mask = torch.ones(shape, dtype=torch.bool)
    return mask.tril(shape[1] - shape[0]) if is_causal else mask


def _own_mask(masks: torch.Tensor, start: int, shape: tuple[int, int], sees_prefix: bool) -> torch.Tensor:
    """Return one request's mask, which begins at `start` in the flat mask of all requests."""
    mask = masks[start : start + shape[0] * shape[1]].view(shape).bool().clone()
    if sees_prefix:
        mask[:, : shape[1] - shape[0]] = True
    return mask
