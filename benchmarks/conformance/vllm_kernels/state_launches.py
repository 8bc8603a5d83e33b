"""Launches of vLLM's kernels on recurrent states, and of the kernel that zeroes blocks."""

from collections.abc import Iterator

import numpy as np

from benchmarks.conformance.vllm_kernels.batches import POISON, Array, Batch
from benchmarks.conformance.vllm_kernels.launches import GPU, Launch, num_blocks_of, power_of_2

_CONV = "vllm.model_executor.layers.mamba.ops.causal_conv1d"


def of_states(b: Batch) -> Iterator[Launch]:
    """Yield launches on recurrent states of hybrid models, and of the zeroing of blocks."""
    sizes, rows, dim = b.sizes, b.sizes.rows, 5 + b.seed
    mapping = np.where(b.random.integers(0, 4, rows) == 0, -1, b.states)
    accepted = {"idx_mapping_ptr": mapping, "num_accepted_ptr": np.full(sizes.requests, POISON, dtype=np.int32)}
    states = f"{GPU}.model_states.mamba_hybrid"
    sampled = (b.logits - 1).astype(np.int32)
    yield Launch(f"{states}._scatter_num_accepted_kernel", (rows,), {**accepted, "num_sampled_ptr": sampled})
    yield Launch(f"{states}._fill_num_accepted_kernel", (rows,), {**accepted, "num_sampled": 1})
    caches = [b.lines(6, 40), b.lines(6, 24)]
    yield Launch(
        "vllm.v1.worker.utils._zero_kv_blocks_kernel",
        (rows, 2, 2),
        {
            "seg_addrs_ptr": caches,
            "seg_block_strides_ptr": np.array([40, 24]),
            "seg_page_sizes_ptr": np.array([33, 24]),
            "block_ids_ptr": b.random.integers(0, 6, rows),
            "BLOCK_SIZE": 16,
        },
    )
    for width in (2, 3, 4):
        yield from _convolved(b, dim, width)
    yield from _copied(b)


def _copied(b: Batch) -> Iterator[Launch]:
    """Yield launches that copy convolution windows and recurrent states between blocks."""
    sizes, width, dim, blocks, columns = b.sizes, 3, 2 + b.seed % 4, 9, 7
    is_dim_first, item = b.seed % 2 == 1, 4

    def drawn(low: int, high: int) -> Array:
        return b.random.integers(low, high, sizes.requests).astype(np.int32)

    mapping = np.where(b.random.integers(0, 4, sizes.rows) == 0, -1, b.states).astype(np.int32)
    common = {
        "block_table_ptrs_ptr": [b.random.integers(0, blocks, (sizes.requests, columns)).astype(np.int32)],
        "block_table_stride_req": columns,
        "state_base_addrs_ptr": [b.lines(blocks, width * dim), b.lines(blocks, dim)],
        "state_block_strides_ptr": np.array([width * dim * item, dim * item]),
        "state_elem_sizes_ptr": np.array([item, item], dtype=np.int32),
        "state_inner_sizes_ptr": np.array([dim, dim]),
        "state_conv_widths_ptr": np.array([width, 0], dtype=np.int32),
        "state_group_indices_ptr": np.zeros(2, dtype=np.int32),
        "state_dim_row_count_ptr": np.array([dim if is_dim_first else 0, 0], dtype=np.int32),
        "state_dim_row_stride_ptr": np.array([width * item if is_dim_first else 0, 0]),
        "num_reqs": sizes.rows,
        "COPY_BLOCK_SIZE": 1024,
        "CONV_STATE_DIM_FIRST": is_dim_first,
        "TEMPORAL_TILES": 1,
    }
    states = "vllm.v1.worker.mamba_utils"
    yield Launch(
        f"{states}.preprocess_mamba_align_fused_kernel",
        (num_blocks_of(sizes.rows, 4),),
        {
            "idx_mapping_ptr": b.states.astype(np.int32),
            "state_idx_ptr": drawn(-1, 4),
            "num_computed_tokens_ptr": drawn(0, 12),
            "query_start_loc_ptr": b.starts.astype(np.int32),
            "num_accepted_tokens_ptr": drawn(1, 1 + width),
            "src_col_ptr": np.full(sizes.requests, POISON, dtype=np.int32),
            "src_off_ptr": np.full(sizes.requests, POISON, dtype=np.int32),
            "num_reqs": sizes.rows,
            "BLOCK_SIZE": 4,
            "MAMBA_BLOCK_SIZE": 4,
        },
    )
    for has_mapping in (False, True):
        of = {**common, "idx_mapping_ptr": mapping if has_mapping else None, "HAS_IDX_MAPPING": has_mapping}
        yield Launch(
            f"{states}.precopy_mamba_align_fused_kernel",
            (sizes.rows, 2, 1),
            {**of, "mamba_state_idx_ptr": drawn(0, 4), "src_col_ptr": drawn(-1, 4), "token_bias_ptr": drawn(0, width)},
        )
        accepted = drawn(1, 1 + width)
        yield Launch(
            f"{states}.postprocess_mamba_fused_kernel",
            (sizes.rows, 2, 1),
            {
                **of,
                "num_accepted_tokens_ptr": accepted,
                "mamba_state_idx_ptr": drawn(0, 4),
                "num_scheduled_tokens_ptr": drawn(1, 5),
                "num_computed_tokens_ptr": drawn(3, 12),
                "num_draft_tokens_ptr": drawn(0, 3),
                "num_accepted_tokens_out_ptr": accepted.copy(),
                "block_size": 4,
                "PRECOMPUTED_NEW_COMPUTED": has_mapping,
            },
        )


def _convolved(b: Batch, dim: int, width: int) -> Iterator[Launch]:
    rows, count, keep, chunk = b.sizes.rows, b.num_tokens, width - 1, 4
    blocks = [(row, at) for row, query in enumerate(b.query) for at in range(num_blocks_of(int(query), chunk))]
    finite = b.random.normal(0, 2, (count + 1, dim)).astype(np.float32)
    slots = b.random.permutation(2 * rows + 2)[:rows].astype(np.int32)
    cache = b.random.normal(0, 2, (2 * rows + 2, keep, dim)).astype(np.float32)
    common = {
        "x_ptr": finite,
        "w_ptr": b.random.normal(0, 1, (dim, width)).astype(np.float32),
        "bias_ptr": b.random.normal(0, 1, dim).astype(np.float32) if b.seed % 2 else None,
        "dim": dim,
        "num_cache_lines": len(cache),
        "stride_x_dim": 1,
        "stride_x_token": dim,
        "stride_w_dim": width,
        "stride_w_width": 1,
        "stride_o_dim": 1,
        "stride_o_token": dim,
        "null_block_id": 0,
        "HAS_BIAS": bool(b.seed % 2),
        "KERNEL_WIDTH": width,
        "SILU_ACTIVATION": b.seed % 3 == 0,
        "IS_APC_ENABLED": False,
        "HAS_NULL_BLOCK": True,
        "NP2_STATELEN": power_of_2(keep),
        "BLOCK_N": 256,
        "launch_pdl": False,
        **dict.fromkeys(("block_idx_first_scheduled_token", "block_idx_last_scheduled_token", "initial_state_idx")),
    }
    programs = np.array([*blocks, (-1, 0)], dtype=np.int32)
    yield Launch(
        f"{_CONV}._causal_conv1d_fwd_kernel",
        (len(programs), 1),
        {
            **common,
            "initial_states_ptr": cache,
            "cache_indices_ptr": slots,
            "has_initial_states_ptr": b.random.integers(0, 2, rows).astype(bool),
            "query_start_loc_ptr": b.starts.astype(np.int32),
            "batch_ptr": programs[:, 0].copy(),
            "token_chunk_offset_ptr": programs[:, 1].copy(),
            "num_computed_tokens": None,
            "o_ptr": np.full((count + 1, dim), np.nan, dtype=np.float32),
            "stride_istate_seq": keep * dim,
            "stride_istate_dim": 1,
            "stride_istate_token": dim,
            "stride_cache_indices": 1,
            "stride_block_m": 0,
            "pad_slot_id": -1,
            "BLOCK_M": chunk,
        },
    )
    tokens = 1 + b.seed % min(2, keep)
    update = {
        **common,
        "conv_state_indices_ptr": slots,
        "batch": rows,
        "stride_conv_state_dim": 1,
        "stride_conv_state_tok": dim,
        "stride_state_indices": 1,
    }
    yield Launch(
        f"{_CONV}._causal_conv1d_update_kernel",
        (rows, 1),
        {
            **update,
            "x_ptr": b.random.normal(0, 2, (rows * tokens + 1, dim)).astype(np.float32),
            "conv_state_ptr": cache,
            "num_accepted_tokens_ptr": None,
            "query_start_loc_ptr": None,
            "o_ptr": np.full((rows * tokens + 1, dim), np.nan, dtype=np.float32),
            "seqlen": tokens,
            "state_len": keep,
            "stride_x_seq": tokens * dim,
            "stride_o_seq": tokens * dim,
            "stride_conv_state_seq": keep * dim,
            "IS_VARLEN": False,
            "IS_SPEC_DECODING": False,
        },
    )
    longest = max([1, *b.query.tolist()])
    length = keep + longest - 1
    yield Launch(
        f"{_CONV}._causal_conv1d_update_kernel",
        (rows, 1),
        {
            **update,
            "x_ptr": finite,
            "conv_state_ptr": b.random.normal(0, 2, (2 * rows + 2, length, dim)).astype(np.float32),
            "num_accepted_tokens_ptr": b.random.integers(1, longest + 1, rows).astype(np.int32),
            "query_start_loc_ptr": b.starts.astype(np.int32),
            "o_ptr": np.full((count + 1, dim), np.nan, dtype=np.float32),
            "seqlen": longest,
            "state_len": length,
            "stride_x_seq": 0,
            "stride_o_seq": 0,
            "stride_conv_state_seq": length * dim,
            "NP2_STATELEN": power_of_2(length),
            "IS_VARLEN": True,
            "IS_SPEC_DECODING": True,
        },
    )
