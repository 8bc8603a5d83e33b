"""Worker and attention backend that run vLLM's GPU model runner on the simulated device."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes

from workers.simulated_torch.device import activate
from workers.targets.vllm.inside.drafting import observing_captured_passes
from workers.targets.vllm.inside.platform import DEVICE


class TaggedMemory:
    """Device memory of one worker by vLLM's sleep tag (`weights`, `kv_cache` ...)."""

    def __init__(self) -> None:
        self._tags: dict[str, int] = {}

    @contextmanager
    def pool(self, tag: str) -> Iterator[None]:
        """Return a context that tags allocations; an inner context overrides an outer one."""
        device = activate()
        if tag not in self._tags:
            self._tags[tag] = device.new_tag()
        with device.tagging(self._tags[tag]):
            yield

    def parts(self) -> Mapping[str, Sequence[torch.Tensor]]:
        """Return byte tensors that cover the memory of each tag."""
        return {tag: activate().tagged(number) for tag, number in self._tags.items()}


class SimulatedWorker(Worker):  # type: ignore[misc]
    """vLLM's GPU worker without memory profiling and warm-up."""

    def init_device(self) -> None:
        """Set the device, and make the same model runner as vLLM's GPU worker."""
        self.device = DEVICE
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, "gloo"
        )
        set_random_seed(self.model_config.seed)
        self.pools = TaggedMemory()
        self._init_workspace_and_model_runner()

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        """Return a context that tags allocations, so that sleep can select them."""
        return self.pools.pool(tag)

    def determine_available_memory(self) -> int:
        """Return the configured KV-cache size in bytes; nothing is profiled."""
        size: int = self.cache_config.kv_cache_memory_bytes
        return size

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Capture CUDA graphs if configured; nothing is compiled or warmed up."""
        if not self.model_config.enforce_eager:
            with observing_captured_passes(self.model_runner):
                self.model_runner.capture_model()
        return CompilationTimes(language_model=0.0, encoder=0.0)


class MetadataBuilder(CPUAttentionMetadataBuilder):  # type: ignore[misc]
    """Builds attention metadata from device tensors that attention tasks read when they run.

    Hence a CUDA graph works for any batch, and a drafter's metadata is valid for its next pass after the update of its
    buffers. With graphs all later draft passes share one metadata object, as with GPU kernels; without graphs each pass
    has its own. `bounds` are the host's upper bounds of the sequence lengths, which GPU kernels use to plan their work.
    With graphs, the first layer that uses the metadata copies `lengths` for all layers, as some GPU kernels do: a graph
    has the lengths of its own batch only if it contains this copy.
    """

    _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.supports_draft_decode_metadata_update = not vllm_config.model_config.enforce_eager

    def update_draft_decode_metadata(self, metadata: Any) -> None:
        """Drop the cached sequence-length bounds and copies before the next draft pass."""
        metadata.bounds = []
        metadata.lengths = None

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        common = common_attn_metadata
        metadata = CPUAttentionMetadata(
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            query_start_loc=common.query_start_loc,
            max_seq_len=common.max_seq_len,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            scheduler_metadata=None,
            causal=common.causal,
        )
        bounds = common.seq_lens_cpu_upper_bound
        metadata.bounds = [] if bounds is None else bounds.tolist()
        metadata.builder = self
        metadata.num_reqs = common.num_reqs
        metadata.lengths = None if self.supports_draft_decode_metadata_update else common.seq_lens
        return metadata


class AttentionTask:
    """Device task that computes attention over the KV cache, given sizes and scales."""

    def __init__(self, impl: Any, builder: Any, layer: Any, num_reqs: int, causal: bool) -> None:
        self._impl, self._builder = impl, builder
        self._isa, self._num_reqs, self._causal = layer.isa, num_reqs, causal
        self._scales = layer._k_scale_float, layer._v_scale_float

    def __call__(
        self,
        query: torch.Tensor,
        cache: torch.Tensor,
        starts: torch.Tensor,
        lengths: torch.Tensor,
        table: torch.Tensor,
        output: torch.Tensor,
    ) -> None:
        impl, builder = self._impl, self._builder
        schedule = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=self._num_reqs,
            num_heads=builder.num_heads,
            num_kv_heads=builder.num_kv_heads,
            head_dim=builder.head_dim,
            seq_lens=lengths,
            dtype=builder.dtype,
            query_start_loc=starts,
            causal=self._causal,
            sliding_window_size=builder.window_size,
            isa=self._isa,
            enable_kv_split=False,
            dynamic_causal=None,
            kv_cache_dtype=impl.kv_cache_dtype,
        )
        keys, values = _keys_and_values(cache)
        ops.cpu_attention_with_kv_cache(
            query=query,
            key_cache=keys,
            value_cache=values,
            output=output,
            query_start_loc=starts,
            seq_lens=lengths,
            scale=impl.scale,
            causal=self._causal,
            alibi_slopes=None,
            sliding_window=impl.sliding_window,
            block_table=table,
            softcap=impl.logits_soft_cap,
            scheduler_metadata=schedule,
            s_aux=None,
            dynamic_causal=None,
            k_scale=self._scales[0],
            v_scale=self._scales[1],
            kv_cache_dtype=impl.kv_cache_dtype,
        )


class AttentionImpl(CPUAttentionBackendImpl):  # type: ignore[misc]
    """Queues vLLM's CPU attention kernels as device tasks."""

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if attn_metadata is None:
            return output
        num_tokens, metadata = attn_metadata.num_actual_tokens, attn_metadata
        task = AttentionTask(self, metadata.builder, layer, metadata.num_reqs, metadata.causal)
        if metadata.lengths is None:
            metadata.lengths = torch.empty_like(metadata.seq_lens)
            activate().enqueue("plan", _copy, (metadata.seq_lens,), (metadata.lengths,))
        reads = (query[:num_tokens], metadata.query_start_loc, metadata.lengths, metadata.block_table)
        used, cache = _blocks_used(kv_cache, is_written=False), activate().host_view(kv_cache)
        room = metadata.block_table.shape[1] * kv_cache.shape[2]

        def attend(*views: torch.Tensor) -> None:
            query, starts, lengths, table = views[: len(reads)]
            if (longest := int(lengths.max())) > room:
                # A kernel would read block ids of the next row, or beyond the block table.
                raise IndexError(f"a row of {longest} tokens attends to blocks of {room}")
            task(query, cache, starts, lengths, table, views[-1])

        activate().enqueue("attention", attend, (*reads, *used), (output[:num_tokens],))
        return output

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Enqueue the write of keys and values to the KV cache."""
        isa, scales = layer.isa, (layer._k_scale_float, layer._v_scale_float)

        cache = activate().host_view(kv_cache)

        def write(key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor, *_: torch.Tensor) -> None:
            keys, values = _keys_and_values(cache)
            ops.cpu_attn_reshape_and_cache(
                key,
                value,
                keys,
                values,
                slots,
                isa,
                k_scale=scales[0],
                v_scale=scales[1],
                kv_cache_dtype=self.kv_cache_dtype,
            )

        used = _blocks_used(kv_cache, is_written=True)
        activate().enqueue("reshape_and_cache", write, (key, value, slot_mapping), used)


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)


def _blocks_used(cache: torch.Tensor, is_written: bool) -> Sequence[torch.Tensor]:
    """Return the KV-cache blocks that a step accesses, or the whole cache without a connector."""
    touched = get_kv_transfer_group().touched() if has_kv_transfer_group() else None
    return (cache,) if touched is None else [cache[block] for block in touched[is_written]]


def accessed_tensors(name: str, tensors: Sequence[torch.Tensor], is_written: bool) -> Sequence[torch.Tensor]:
    """Return the tensors that a kernel accesses, for a KV cache only the blocks of the step."""
    agent: Any = get_kv_transfer_group() if has_kv_transfer_group() else None
    return agent.accessed_tensors(name, tensors, is_written) if hasattr(agent, "accessed_tensors") else tensors


activate().accessed_tensors = accessed_tensors


def _keys_and_values(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return key and value views of a KV cache [blocks, heads, block size, 2 x head size]."""
    num_blocks, num_heads, block_size, _ = cache.size()
    keys, values = cache.view((num_blocks, num_heads, 2 * block_size, -1)).chunk(2, dim=2)
    return keys, values


@register_backend(AttentionBackendEnum.CUSTOM)
class Attention(CPUAttentionBackend):  # type: ignore[misc]
    """Attention backend class that vLLM selects on the simulated device."""

    @staticmethod
    def get_name() -> str:
        """Return `CUSTOM`, vLLM's registry name for a custom attention backend."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[AttentionImpl]:
        return AttentionImpl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder
