"""Launches of vLLM's kernels on a random batch, with arguments by name.

Only kernels that have definitions are launched.

Arrays become device tensors; a list of arrays becomes a tensor of pointers to them; a `Wide` array gets longer rows in
memory. Strides that are not given follow from the tensors.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.conformance.vllm_kernels.batches import POISON, Array, Batch

GPU = "vllm.v1.worker.gpu"
_INPUTS = f"{GPU}.input_batch"
_SAMPLE = f"{GPU}.sample"
_DECODE = f"{GPU}.spec_decode"


class Wide(NamedTuple):
    """An array stored in memory with longer rows (a larger stride)."""

    array: Array


class Launch(NamedTuple):
    """A launch: the qualified name of a kernel, its grid, and its arguments."""

    kernel: str
    grid: tuple[int, ...]
    given: dict[str, Any]


def power_of_2(count: int) -> int:
    """Return the smallest power of 2 that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def num_blocks_of(size: int, width: int) -> int:
    """Return the number of blocks of `width` that cover `size`."""
    return -(-size // width)


def _int32(values: Any) -> Array:
    return np.asarray(values).astype(np.int32)


def of_inputs(b: Batch) -> Iterator[Launch]:
    """Yield launches of the kernels that prepare a step's inputs and update counts after it."""
    sizes, rows = b.sizes, b.sizes.rows
    ids, starts, computed = b.tokens(b.num_tokens + 2), _int32(b.starts), b.of_requests(b.computed)
    all_tokens, prefill, lookahead = b.tokens(sizes.requests, sizes.length), b.of_requests(b.prefill), 1 + b.seed % 3
    common = {"idx_mapping_ptr": b.states, "query_start_loc_ptr": starts, "num_computed_tokens_ptr": computed}
    yield Launch(
        f"{_INPUTS}._prepare_prefill_inputs_kernel",
        (rows,),
        {
            **common,
            "input_ids_ptr": ids,
            "next_prefill_tokens_ptr": b.tokens(lookahead, sizes.requests),
            "num_lookahead": lookahead,
            "all_token_ids_ptr": all_tokens,
            "prefill_lens_ptr": np.minimum(prefill, sizes.length),
            "BLOCK_SIZE": 1024,
            "LOOKAHEAD_BLOCK": power_of_2(lookahead),
        },
    )
    lengths = np.full(sizes.requests, POISON, dtype=np.int32)
    positions = np.full(b.num_tokens + 2, POISON, dtype=np.int64)
    yield Launch(
        f"{_INPUTS}._prepare_pos_seq_lens_kernel",
        (rows + 1,),
        {**common, "pos_ptr": positions, "seq_lens_ptr": lengths, "max_num_reqs": sizes.requests, "BLOCK_SIZE": 1024},
    )
    for num_new in (0, 1):
        yield Launch(
            f"{_INPUTS}._combine_sampled_and_draft_tokens_kernel",
            (rows,),
            {
                **common,
                "input_ids_ptr": ids,
                "last_sampled_tokens_ptr": b.tokens(sizes.requests, 1, dtype=np.int64),
                "seq_lens_ptr": b.lengths(),
                "prefill_len_ptr": prefill,
                "draft_tokens_ptr": b.drafts(sizes.requests, max(1, sizes.drafts + 1 - num_new), dtype=np.int64),
                "cu_num_logits_ptr": _int32(b.cu_logits),
                "logits_indices_ptr": np.full(b.num_logits, POISON, dtype=np.int64),
                "BLOCK_SIZE": power_of_2(sizes.drafts + 1),
                "NUM_NEW_SAMPLED_TOKENS": num_new,
            },
        )
    sampled = b.random.integers(0, b.logits + 1)
    yield Launch(
        f"{_INPUTS}._get_num_sampled_and_rejected_kernel",
        (rows,),
        {
            **common,
            "num_sampled_ptr": _int32(sampled),
            "num_rejected_ptr": np.full(rows, POISON, dtype=np.int32),
            "seq_lens_ptr": b.lengths(),
            "cu_num_logits_ptr": _int32(b.cu_logits),
            "prefill_len_ptr": prefill,
        },
    )
    for counted in (True, False):
        yield Launch(
            f"{_INPUTS}._post_update_kernel",
            (rows,),
            {
                **common,
                "idx_mapping_ptr": np.where(b.random.integers(0, 4, rows) == 0, -1, b.states),
                "query_start_loc_ptr": starts if counted else None,
                "last_sampled_tokens_ptr": b.tokens(sizes.requests, 1, dtype=np.int64),
                "output_bin_counts_ptr": b.tokens(sizes.requests, sizes.vocab) if counted else None,
                "sampled_tokens_ptr": b.tokens(rows, sizes.drafts + 1, dtype=np.int64),
                "num_sampled_ptr": _int32(sampled),
                "num_rejected_ptr": _int32(b.logits - sampled),
                "all_token_ids_ptr": all_tokens,
                "total_len_ptr": b.of_requests(b.total),
                "draft_tokens_ptr": None,
                "draft_tokens_out_ptr": None,
                "num_draft_tokens": 0,
            },
        )
    yield Launch(f"{_INPUTS}._post_update_num_computed_tokens_kernel", (rows,), common)
    yield Launch(
        f"{_INPUTS}._expand_idx_mapping_kernel",
        (rows,),
        {
            "idx_mapping_ptr": b.states,
            "expanded_idx_mapping_ptr": np.full(b.num_logits, POISON, dtype=np.int64),
            "expanded_local_pos_ptr": np.full(b.num_logits, POISON, dtype=np.int32),
            "cu_num_logits_ptr": _int32(b.cu_logits),
            "BLOCK_SIZE": power_of_2(sizes.drafts + 1),
        },
    )
    yield Launch(
        f"{_SAMPLE}.prompt_logprob._prompt_logprobs_token_ids_kernel",
        (rows,),
        {
            **common,
            "prompt_logprobs_token_ids_ptr": np.full(b.num_tokens, POISON, dtype=np.int64),
            "all_token_ids_ptr": b.tokens(sizes.requests, sizes.length + 1),
            "BLOCK_SIZE": 1024,
        },
    )


def of_tables(b: Batch) -> Iterator[Launch]:
    """Yield launches on block tables of two KV-cache groups, and of writes staged by the host."""
    sizes, rows, num_groups, blocks = b.sizes, b.sizes.rows, 2, np.array([4, 16])
    widths = -(-(sizes.length + 8) // blocks)
    tables = [b.tokens(sizes.requests, width) for width in widths]
    counts = np.stack([b.random.integers(0, width + 1, sizes.requests) for width in widths])
    yield Launch(
        f"{GPU}.block_table._gather_block_tables_kernel",
        (num_groups, sizes.requests),
        {
            "batch_idx_to_req_idx": b.states,
            "src_block_table_ptrs": tables,
            "dst_block_table_ptrs": [np.full_like(table, POISON) for table in tables],
            "block_table_strides": widths.astype(np.int64),
            "num_blocks_ptr": _int32(counts),
            "num_reqs": rows,
            "num_computed_tokens_ptr": b.of_requests(b.prefill),
            "sliding_window_reach_ptr": np.zeros(num_groups, dtype=np.int32),
            "block_sizes_ptr": _int32(blocks),
            "MASK_SLIDING_WINDOW": False,
            "BLOCK_SIZE": 1024,
        },
    )
    positions = np.concatenate([b.computed[s] + np.arange(q) for s, q in zip(b.states, b.query, strict=True)] or [[]])
    yield Launch(
        f"{GPU}.block_table._compute_slot_mappings_kernel",
        (num_groups, rows + 1),
        {
            "max_num_tokens": b.num_tokens + 5,
            "idx_mapping": np.where(b.random.integers(0, 4, rows) == 0, -1, b.states),
            "query_start_loc": _int32(b.starts),
            "pos": np.concatenate([positions, [POISON]]).astype(np.int64),
            "block_table_ptrs": tables,
            "block_table_strides": widths.astype(np.int64),
            "block_sizes": _int32(blocks),
            "slot_mapping_enabled": np.array([True, b.seed % 2 == 0]),
            "dcp_sharded": np.zeros(num_groups, dtype=bool),
            "slot_mappings_ptr": np.full((num_groups, b.num_tokens + 5), POISON, dtype=np.int64),
            "cp_rank": 0,
            "CP_SIZE": 1,
            "CP_INTERLEAVE": 1,
            "PAD_ID": -1,
            "TRITON_BLOCK_SIZE": 1024,
        },
    )
    lengths = b.random.integers(0, min(widths) + 1, rows)
    for is_grouped in (True, False):
        yield Launch(
            f"{GPU}.buffer_utils._apply_write_kernel",
            (rows, 1 + int(min(widths)) // 4),
            {
                "output_ptr": tables if is_grouped else tables[0],
                "output_stride": widths.astype(np.int64) if is_grouped else int(widths[0]),
                "write_indices_ptr": _int32(b.states),
                "write_starts_ptr": _int32(b.random.integers(0, 1 + min(widths) - lengths)),
                "write_contents_ptr": b.tokens(int(lengths.sum()) + 1),
                "write_cu_lens_ptr": _int32(np.cumsum(lengths)),
                "write_group_ids_ptr": _int32(b.random.integers(0, 2, rows)) if is_grouped else None,
                "BLOCK_SIZE": 4,
                "MULTI_GROUP": is_grouped,
            },
        )


def of_drafters(b: Batch) -> Iterator[Launch]:
    """Yield launches of the kernels that prepare a drafter's inputs, and of n-gram lookup."""
    sizes, rows, length = b.sizes, b.sizes.rows, b.sizes.length
    rejected = _int32(b.random.integers(0, b.logits))
    num_tokens, ids = b.num_tokens + rows + 2, b.tokens(b.num_tokens + rows + 2)
    places = b.random.integers(0, length, num_tokens)
    sampled = _int32(b.random.integers(0, b.logits + 1))
    common = {
        "target_input_ids_ptr": ids,
        "target_positions_ptr": places,
        "last_token_indices_ptr": np.full(sizes.requests, POISON, dtype=np.int64),
        "idx_mapping_ptr": b.states,
        "last_sampled_ptr": b.tokens(sizes.requests, dtype=np.int64),
        "num_rejected_ptr": rejected,
        "query_start_loc_ptr": _int32(b.starts),
        "seq_lens_ptr": b.lengths(),
        "max_num_reqs": sizes.requests,
        "BLOCK_SIZE": 1024,
    }
    outs = ("input_ids", "positions", "query_start_loc", "seq_lens")
    shapes = (num_tokens, np.int32), (num_tokens, np.int64), (sizes.requests + 1, np.int32), (sizes.requests, np.int32)
    out = {name: np.full(shape, POISON, dtype=dtype) for name, (shape, dtype) in zip(outs, shapes, strict=True)}
    yield Launch(
        f"{_DECODE}.target_dependent_ar.speculator._prepare_prefill_inputs_kernel",
        (rows,),
        {
            **common,
            **{f"draft_{name}_ptr": each for name, each in out.items()},
            "draft_current_step_ptr": np.array(7),
            "next_prefill_tokens_ptr": b.tokens(sizes.requests),
            "num_sampled_ptr": sampled,
        },
    )
    yield Launch(
        f"{_DECODE}.standalone_ar.speculator._prepare_prefill_inputs_kernel",
        (rows,),
        {**common, **{f"out_{name}_ptr": each for name, each in out.items()}, "max_model_len": length},
    )
    lengths = np.where(b.random.integers(0, 3, sizes.requests) == 0, length, b.random.integers(1, length + 1))
    later = {
        "input_ids_ptr": b.tokens(num_tokens),
        "positions_ptr": b.random.integers(0, length, num_tokens),
        "sample_src_positions_ptr": b.positions(sizes.requests),
        "seq_lens_ptr": _int32(lengths),
        "max_model_len": length,
        "BLOCK_SIZE": 1024,
        "ADVANCE_DRAFT_POSITIONS": b.seed % 3 > 0,
    }
    yield Launch(
        f"{_DECODE}.target_dependent_ar.speculator._prepare_decode_inputs_kernel",
        (rows + 1,),
        {
            **later,
            "draft_tokens_ptr": Wide(b.drafts(rows, max(1, sizes.drafts), dtype=np.int64)),
            "target_seq_lens_ptr": b.lengths(),
            "num_rejected_ptr": rejected,
            "query_start_loc_ptr": out["query_start_loc"],
            "max_num_reqs": sizes.requests,
        },
    )
    width = 64 + b.seed
    yield Launch(
        f"{_DECODE}.target_dependent_ar.speculator._update_draft_inputs_kernel",
        (rows,),
        {
            **later,
            "output_draft_tokens_ptr": b.drafts(sizes.requests, sizes.drafts + 1, dtype=np.int64),
            "next_input_hidden_states_ptr": b.lines(sizes.requests, width),
            "draft_tokens_ptr": b.drafts(rows, dtype=np.int64),
            "current_draft_step_ptr": np.array(b.seed % (sizes.drafts + 1)),
            "hidden_states_ptr": Wide(b.lines(rows, width)),
            "hidden_size": width,
            "num_speculative_steps": sizes.drafts + 1,
        },
    )
    yield _at_once(b, sampled, rejected)
    yield from _looked_up(b, sampled)


def _at_once(b: Batch, sampled: Array, rejected: Array) -> Launch:
    """Return a launch that prepares a parallel drafter (DFlash) near the ends of its tables."""
    sizes, rows, from_anchor = b.sizes, b.sizes.rows, b.seed % 2
    drafts, length = sizes.drafts + 1, sizes.length
    queries, block = drafts + 1 - from_anchor, 4
    longest = int(max(b.query, default=0)) + queries
    width, num_tokens = min(256, power_of_2(longest)), b.num_tokens + 2
    first = np.where(b.random.integers(0, 3, rows) == 0, length - b.query, b.computed[b.states])
    positions = [begin + np.arange(count) for begin, count in zip(first, b.query, strict=True)]
    out = {
        "input_ids": (sizes.requests * queries + 3, np.int32),
        "is_padding": (sizes.requests * queries + 3, bool),
        "query_positions": (sizes.requests * queries + 3, np.int64),
        "query_start_loc": (sizes.requests + 1, np.int32),
        "seq_lens": (sizes.requests, np.int32),
        "query_slot_mapping": (sizes.requests * queries + 3, np.int64),
        "context_positions": (num_tokens, np.int64),
        "context_slot_mapping": (num_tokens, np.int64),
        "sample_indices": (sizes.requests * drafts, np.int64),
        "sample_pos": (sizes.requests * drafts, np.int64),
        "sample_idx_mapping": (sizes.requests * drafts, np.int32),
        "temperature": (sizes.requests, np.float32),
        "seeds": (sizes.requests, np.int64),
    }
    return Launch(
        f"{_DECODE}.dflash.speculator._prepare_dflash_inputs_kernel",
        (rows, num_blocks_of(longest, width)),
        {
            **{f"out_{name}_ptr": np.full(size, POISON, dtype=dtype) for name, (size, dtype) in out.items()},
            "target_positions_ptr": np.concatenate([*positions, [POISON]]).astype(np.int64),
            "target_query_start_loc_ptr": _int32(b.starts),
            "idx_mapping_ptr": _int32(b.states),
            "last_sampled_ptr": b.tokens(sizes.requests, dtype=np.int64),
            "next_prefill_tokens_ptr": b.tokens(sizes.requests),
            "num_sampled_ptr": sampled,
            "num_rejected_ptr": rejected,
            "temperature_ptr": b.temperatures(),
            "seeds_ptr": b.seeds(),
            # Some blocks are block 0, the null block.
            "block_table_ptr": _int32(b.random.integers(0, 5, (max(1, rows), -(-length // block)))),
            "block_table_stride": -(-length // block),
            "parallel_drafting_token_id": 3,
            "block_size": block,
            "num_query_per_req": queries,
            "num_speculative_steps": drafts,
            "max_num_reqs": sizes.requests,
            "max_num_tokens": sizes.requests * queries + 3,
            "max_model_len": length,
            "cp_rank": 0,
            "SAMPLE_FROM_ANCHOR": bool(from_anchor),
            "PAD_SLOT_ID": -1,
            "CP_SIZE": 1,
            "CP_INTERLEAVE": 1,
            "BLOCK_SIZE": width,
        },
    )


def _looked_up(b: Batch, sampled: Array) -> Iterator[Launch]:
    """Yield launches of n-gram lookup over few distinct tokens."""
    sizes, width = b.sizes, 64
    num_blocks = -(-sizes.length // width)
    tokens = _int32(b.random.integers(0, 3, (sizes.requests, sizes.length)))
    common = {
        "token_ids_ptr": tokens,
        "idx_mapping_ptr": b.states,
        "total_len_ptr": b.of_requests(b.total),
        "num_sampled_ptr": sampled,
        "L": sizes.length,
    }
    least, most = 1 + b.seed % 2, 3
    yield Launch(
        f"{_DECODE}.ngram.speculator._ngram_scan_kernel",
        (sizes.rows, num_blocks),
        {
            **common,
            "scratch_ptr": np.full((sizes.requests, num_blocks), POISON, dtype=np.int64),
            "MIN_N": least,
            "MAX_N": most,
            "MAX_N_PO2": power_of_2(most),
            "BLOCK_L": width,
        },
    )
    found = b.random.integers(least, most + 1, (sizes.requests, num_blocks)) * (sizes.length + 1)
    found += b.random.integers(1, sizes.length + 1, found.shape)
    drafts = sizes.drafts + 1
    yield Launch(
        f"{_DECODE}.ngram.speculator._ngram_finalize_kernel",
        (sizes.rows,),
        {
            **common,
            "last_sampled_ptr": b.tokens(sizes.requests, dtype=np.int64),
            "scratch_ptr": np.where(b.random.integers(0, 2, found.shape) == 0, 0, found),
            "drafts_ptr": np.full((sizes.requests, drafts), POISON, dtype=np.int64),
            "N_BLOCKS": num_blocks,
            "K": drafts,
            "K_PO2": power_of_2(drafts),
            "N_BLOCKS_PO2": power_of_2(num_blocks),
        },
    )


INPUTS: tuple[Callable[[Batch], Iterator[Launch]], ...] = (of_inputs, of_tables, of_drafters)
