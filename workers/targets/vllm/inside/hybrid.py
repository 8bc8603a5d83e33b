"""Device tasks in place of the Triton kernels of hybrid models (short convolutions).

Short convolutions call vLLM's own CPU kernels. Each task reads and writes the same tensors as the kernel that it
replaces: block tables on the device select a row's state slot.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.triton_tasks import pointed_to, remember_pointers

_WORD_BYTES = 4
# The null block: no row has its state there.
_NULL_BLOCK = 0
# Position of the layers among `preprocess_mamba`'s arguments after the plan and the KV-cache configuration.
_LAYERS_ARGUMENT = 4


def prefill_convolution(before: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Replace `causal_conv1d_fn` by a device task (rows without state or of several tokens)."""
    from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_fn_cpu  # noqa: PLC0415

    @wraps(before)
    def causal_conv1d_fn(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: None,
        conv_states: torch.Tensor,
        query_start_loc: torch.Tensor,
        cache_indices: torch.Tensor,
        has_initial_state: torch.Tensor,
        activation: None,
        metadata: Any,
    ) -> torch.Tensor:
        def convolve(
            x: torch.Tensor,
            weight: torch.Tensor,
            states: torch.Tensor,
            starts: torch.Tensor,
            slots: torch.Tensor,
            has_states: torch.Tensor,
            *others: torch.Tensor,
        ) -> None:
            others[-1].copy_(causal_conv1d_fn_cpu(x, weight, None, states, starts, slots, has_states, None))

        output = torch.empty_like(x)
        rows = query_start_loc, cache_indices, has_initial_state
        # By these the programs of a GPU kernel find their tokens.
        programs = metadata.batch_ptr, metadata.token_chunk_offset_ptr
        activate().enqueue(
            "causal_conv1d_fn", convolve, (x, weight, conv_states, *rows, *programs), (conv_states, output)
        )
        return output

    return causal_conv1d_fn


def decode_convolution(before: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Replace `causal_conv1d_update` by a device task (decode rows, with or without drafts)."""
    from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_update_cpu  # noqa: PLC0415

    def convolve(
        x: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, slots: torch.Tensor, *_: torch.Tensor
    ) -> None:
        slots = slots[:, 0].contiguous()
        x.copy_(causal_conv1d_update_cpu(x, states, weight, conv_state_indices=slots))

    @wraps(before)
    def causal_conv1d_update(
        x: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: None,
        activation: None,
        conv_state_indices: torch.Tensor,
        num_accepted_tokens: torch.Tensor | None = None,
        query_start_loc: torch.Tensor | None = None,
        max_query_len: int = -1,
    ) -> torch.Tensor:
        reads: tuple[torch.Tensor, ...] = x, conv_state, weight, conv_state_indices
        task: Callable[..., None] = convolve
        if num_accepted_tokens is not None and query_start_loc is not None:
            reads, task = (*reads, query_start_loc, num_accepted_tokens), _convolve_drafts
        activate().enqueue("causal_conv1d_update", task, reads, (conv_state, x))
        return x

    return causal_conv1d_update


def _convolve_drafts(
    x: torch.Tensor,
    states: torch.Tensor,
    weight: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    accepted: torch.Tensor,
    *_: torch.Tensor,
) -> None:
    """Convolve rows with draft tokens, from the state after their accepted tokens.

    The state keeps a column per draft token, so that a later step can start after the last accepted one.

    Shapes: tokens [T, D], states [slots, D, W - 2 + tokens of a row at most], weights [D, W].
    """
    keep = weight.shape[1] - 1
    begins = starts.tolist()
    for row, (slot, kept) in enumerate(zip(slots[:, 0].tolist(), accepted.tolist(), strict=False)):
        tokens = x[begins[row] : begins[row + 1]].T
        if slot == _NULL_BLOCK or not tokens.numel():
            continue
        every = torch.cat([states[slot, :, kept - 1 : kept - 1 + keep], tokens], dim=1)
        found = torch.nn.functional.conv1d(every.unsqueeze(0), weight.unsqueeze(1), groups=len(weight))[0]
        states[slot, :, : every.shape[1] - 1] = every[:, 1:]
        x[begins[row] : begins[row + 1]] = found.T


def remember_zeroed_caches(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap `KVBlockZeroer.__init__` to keep the KV-cache tensors next to their addresses."""

    @wraps(before)
    def prepare(self: Any, device: torch.device, **options: Any) -> None:
        groups = options["attn_groups_iter"] = list(options["attn_groups_iter"])
        before(self, device, **options)
        if self._meta is not None:
            layers = [options["static_forward_context"][name] for group in groups for name in group.layer_names]
            # Recurrent states are views of the same memory, stored as tuples.
            caches = [layer.kv_cache for layer in layers if isinstance(layer.kv_cache, torch.Tensor)]
            remember_pointers(self._meta[0], caches)

    return prepare


def remember_state_tables(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap the setup of Mamba's address tables to keep the tensors next to their addresses."""

    @wraps(before)
    def _populate_metadata(
        self: Any, config: Any, layers: Any, functions: Any, tables: list[torch.Tensor], aligned: list[torch.Tensor]
    ) -> None:
        before(self, config, layers, functions, tables, aligned)
        names = (name for group in self.mamba_group_ids for name in config.kv_cache_groups[group].layer_names)
        remember_pointers(self.state_base_addrs, [cache for name in names for cache in _caches(layers[name])])
        # The first runner passes views of the first step's rows; the kernel uses the whole tables.
        wholes = [each if (whole := getattr(each, "_base", None)) is None else whole for each in tables]
        remember_pointers(self.block_table_ptrs, wholes)
        remember_pointers(self.aligned_index_block_table_ptrs, aligned)

    return _populate_metadata


def copy_hit_blocks(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap the copy of partial prefix-cache hits; with a KV connector, access their blocks only."""
    from vllm.distributed.kv_transfer import has_kv_transfer_group  # noqa: PLC0415

    @wraps(before)
    def copy_kv_cache_blocks_inplace(
        kv_caches: Iterable[torch.Tensor], num_blocks: int, kv_cache_block_copies: Sequence[tuple[int, int]]
    ) -> None:
        if not has_kv_transfer_group():
            before(kv_caches, num_blocks, kv_cache_block_copies)
            return
        for cache in kv_caches:
            assert len(cache) == num_blocks, "kernel blocks and scheduler blocks have the same size"
            rows = [cache[source].clone() for source, _ in kv_cache_block_copies]
            for row, (_, target) in zip(rows, kv_cache_block_copies, strict=True):
                cache[target].copy_(row)

    return copy_kv_cache_blocks_inplace


class StateCopyKernel:
    """Replaces the kernel that copies recurrent states between blocks for prefix caching.

    The address tables are made when a step is prepared; `prepared` then sets the caches that they point to.
    """

    def __init__(self) -> None:
        self._caches: list[torch.Tensor] = []

    def prepared(self, before: Callable[..., None]) -> Callable[..., None]:
        """Wrap `preprocess_mamba` to keep the state tensors to which the kernel's addresses point."""

        @wraps(before)
        def preprocess_mamba(plan: Any, config: Any, *arguments: Any, **options: Any) -> None:
            layers = arguments[_LAYERS_ARGUMENT]
            names = (name for group in config.kv_cache_groups for name in group.layer_names)
            # Each state of a layer is a tensor of its own.
            self._caches = [cache for name in names for cache in _caches(layers[name])]
            before(plan, config, *arguments, **options)

        return preprocess_mamba

    def launched(self, before: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, sources: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor, BLOCK_SIZE: int) -> None:

        def copy(sources: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor, *_: torch.Tensor) -> None:
            for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True):
                ctypes.memmove(target, source, size)

        activate().enqueue("batch_memcpy", copy, (sources, targets, sizes, *self._caches), self._caches)


def _caches(layer: Any) -> tuple[torch.Tensor, ...]:
    """Return a layer's recurrent-state tensors; () for an attention layer."""
    return () if isinstance(layer.kv_cache, torch.Tensor) else tuple(layer.kv_cache)


class BlockZeroingKernel:
    """Replaces the kernel that zeroes new blocks, which may hold old recurrent states."""

    def __init__(self, before: Any) -> None:
        """Ignore the replaced kernel, which is never launched."""

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return self._launch

    @staticmethod
    def _launch(
        addresses: torch.Tensor, strides: torch.Tensor, sizes: torch.Tensor, blocks: torch.Tensor, BLOCK_SIZE: int
    ) -> None:
        """Enqueue a task that zeroes new blocks; strides and sizes are in 4-byte words."""

        def zero(
            addresses: torch.Tensor, strides: torch.Tensor, sizes: torch.Tensor, blocks: torch.Tensor, *_: torch.Tensor
        ) -> None:
            for address, stride, size in zip(addresses.tolist(), strides.tolist(), sizes.tolist(), strict=True):
                for block in blocks.tolist():
                    ctypes.memset(address + block * stride * _WORD_BYTES, 0, size * _WORD_BYTES)

        activate().enqueue("zero_kv_blocks", zero, (addresses, strides, sizes, blocks), pointed_to(addresses))
