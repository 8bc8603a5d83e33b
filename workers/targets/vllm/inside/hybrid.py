"""Kernels of hybrid models on the simulated device, as tasks in the place of Triton's.

Short convolutions are vLLM's own kernels for a CPU. A launch reads and writes what the kernel does in whose place it
stands: rows are found by tables on the device, and the state a row goes on from lies in the slot that they name.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.triton_tasks import pointed_to, remember_pointers

_WORD_BYTES = 4
# Which no row has a state in.
_NULL_BLOCK = 0
# Behind a plan and the configuration of its caches: where a runner's layers are among what prepares a step's copies.
_LAYERS_ARGUMENT = 4


def prompts_convolved(before: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return what enqueues the convolution of rows with several tokens each, or with no state yet."""
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
            goes_on: torch.Tensor,
            *others: torch.Tensor,
        ) -> None:
            others[-1].copy_(causal_conv1d_fn_cpu(x, weight, None, states, starts, slots, goes_on, None))

        output = torch.empty_like(x)
        rows = query_start_loc, cache_indices, has_initial_state
        # By these a GPU's programs find the tokens that are theirs.
        programs = metadata.batch_ptr, metadata.token_chunk_offset_ptr
        activate().enqueue(
            "causal_conv1d_fn", convolve, (x, weight, conv_states, *rows, *programs), (conv_states, output)
        )
        return output

    return causal_conv1d_fn


def tokens_convolved(before: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return what enqueues the convolution of rows that go on from a state, in place: one token each, or drafts too."""
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
            reads, task = (*reads, query_start_loc, num_accepted_tokens), _drafts_convolved
        activate().enqueue("causal_conv1d_update", task, reads, (conv_state, x))
        return x

    return causal_conv1d_update


def _drafts_convolved(
    x: torch.Tensor,
    states: torch.Tensor,
    weight: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    accepted: torch.Tensor,
    *_: torch.Tensor,
) -> None:
    """Convolve the tokens of each row behind as much of its state as was kept, and leave all of them behind that.

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


def caches_remembered(before: Callable[..., None]) -> Callable[..., None]:
    """Return what prepares the zeroing of blocks, whose table of addresses knows from there on what these are of."""

    @wraps(before)
    def prepare(self: Any, device: torch.device, **options: Any) -> None:
        groups = options["attn_groups_iter"] = list(options["attn_groups_iter"])
        before(self, device, **options)
        if self._meta is not None:
            layers = [options["static_forward_context"][name] for group in groups for name in group.layer_names]
            # States are views of the same memory, in no such tensor.
            caches = [layer.kv_cache for layer in layers if isinstance(layer.kv_cache, torch.Tensor)]
            remember_pointers(self._meta[0], caches)

    return prepare


def states_remembered(before: Callable[..., None]) -> Callable[..., None]:
    """Return what fills tables of addresses, which know from there on what these are of."""

    @wraps(before)
    def _populate_metadata(
        self: Any, config: Any, layers: Any, functions: Any, tables: list[torch.Tensor], aligned: list[torch.Tensor]
    ) -> None:
        before(self, config, layers, functions, tables, aligned)
        names = (name for group in self.mamba_group_ids for name in config.kv_cache_groups[group].layer_names)
        remember_pointers(self.state_base_addrs, [cache for name in names for cache in _caches(layers[name])])
        # The first runner gives those of the rows of its first step, and means all.
        wholes = [each if (whole := getattr(each, "_base", None)) is None else whole for each in tables]
        remember_pointers(self.block_table_ptrs, wholes)
        remember_pointers(self.aligned_index_block_table_ptrs, aligned)

    return _populate_metadata


def blocks_copied(before: Callable[..., None]) -> Callable[..., None]:
    """Return what copies blocks of which a hit ends inside; beside a connector it uses no others of the caches."""
    from vllm.distributed.kv_transfer import has_kv_transfer_group  # noqa: PLC0415

    @wraps(before)
    def copy_kv_cache_blocks_inplace(
        kv_caches: Iterable[torch.Tensor], num_blocks: int, kv_cache_block_copies: Sequence[tuple[int, int]]
    ) -> None:
        if not has_kv_transfer_group():
            before(kv_caches, num_blocks, kv_cache_block_copies)
            return
        for cache in kv_caches:
            assert len(cache) == num_blocks, "a kernel's blocks are the scheduler's"
            rows = [cache[source].clone() for source, _ in kv_cache_block_copies]
            for row, (_, target) in zip(rows, kv_cache_block_copies, strict=True):
                cache[target].copy_(row)

    return copy_kv_cache_blocks_inplace


class StatesCopied:
    """Kernel that copies states from block to block, where prefixes are cached: one at the end of a block stays there.

    Its tables of addresses are of the caches of the engine that prepares a step, which `prepared` is told.
    """

    def __init__(self) -> None:
        self._caches: list[torch.Tensor] = []

    def prepared(self, before: Callable[..., None]) -> Callable[..., None]:
        """Return what prepares a step's copies and launches them."""

        @wraps(before)
        def preprocess_mamba(plan: Any, config: Any, *arguments: Any, **options: Any) -> None:
            layers = arguments[_LAYERS_ARGUMENT]
            names = (name for group in config.kv_cache_groups for name in group.layer_names)
            # Each of a layer's states is a tensor of its own.
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
    """Return the states of a layer, nothing of one of attention."""
    return () if isinstance(layer.kv_cache, torch.Tensor) else tuple(layer.kv_cache)


class BlocksZeroed:
    """Kernel that writes zeros to new blocks of attention's caches: states of others may have been in them."""

    def __init__(self, before: Any) -> None:
        """Take its place."""

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return self._launch

    @staticmethod
    def _launch(
        addresses: torch.Tensor, strides: torch.Tensor, sizes: torch.Tensor, blocks: torch.Tensor, BLOCK_SIZE: int
    ) -> None:
        """Enqueue a launch; strides and sizes are in words of four bytes."""

        def zero(
            addresses: torch.Tensor, strides: torch.Tensor, sizes: torch.Tensor, blocks: torch.Tensor, *_: torch.Tensor
        ) -> None:
            for address, stride, size in zip(addresses.tolist(), strides.tolist(), sizes.tolist(), strict=True):
                for block in blocks.tolist():
                    ctypes.memset(address + block * stride * _WORD_BYTES, 0, size * _WORD_BYTES)

        activate().enqueue("zero_kv_blocks", zero, (addresses, strides, sizes, blocks), pointed_to(addresses))
