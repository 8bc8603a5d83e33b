"""Compare SGLang's interpreted kernels with the NumPy definitions that replace them.

Run by SGLang's Python. Prints one line per kernel: its name, the digest of its source, and the number of equal
launches; raises if a launch differs.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from workers.targets.child.inside.interpreter import interpret
from workers.targets.sglang.inside import absent, plugin

LAUNCHES = 60
# A tensor is passed as a pointer, a list of tensors as an array of pointers.
Arguments = dict[str, Any]
Launch = tuple[tuple[int, ...], Arguments]


def _integers(values: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(list(values), dtype=dtype)


def _table(chance: random.Random, rows: int, width: int) -> torch.Tensor:
    """Return a table of distinct random KV-cache slots, with one row for each request."""
    slots = list(range(rows * width))
    chance.shuffle(slots)
    return _integers(slots, torch.int32)


def _indices(chance: random.Random) -> Launch:
    rows, width = chance.randint(1, 5), 700
    lengths = [chance.choice((0, 1, 7, 511, 513)) for _ in range(rows)]
    starts = [chance.randint(0, 40) for _ in range(rows)] if chance.random() < 0.5 else None
    return (rows,), {
        "req_to_token_ptr": _table(chance, 8, width),
        "req_pool_indices_ptr": _integers(chance.sample(range(8), rows)),
        "page_kernel_lens_ptr": _integers(lengths),
        "kv_indptr": _integers([sum(lengths[:row]) for row in range(rows + 1)], torch.int32),
        "kv_start_idx": None if starts is None else _integers(starts, torch.int32),
        "kv_indices_ptr": torch.full((sum(lengths) + 3,), -7),
        "req_to_token_ptr_stride": width,
        "ENTRY_PAGE_SIZE": 1,
        "TOKEN_BLOCK_PARALLEL": False,
        "token_mapping": None,
    }


def _drafted_indices(chance: random.Random) -> Launch:
    rows, topk, steps, page = (
        chance.randint(1, 5),
        chance.choice((1, 1, 2)),
        chance.randint(1, 4),
        chance.choice((1, 4)),
    )
    lengths, width = [chance.choice((1, 3, 8, 127, 129)) for _ in range(rows)], 200
    stride, starts = topk * (sum(lengths) + rows * steps), rows * topk + 2
    return (steps, rows, topk), {
        "req_pool_indices": _integers(chance.sample(range(8), rows)),
        "req_to_token": _table(chance, 8, width),
        "paged_kernel_lens": _integers(lengths),
        "kv_indices": torch.full((steps * stride,), -7),
        "kv_indptr": torch.full((steps * starts,), -7, dtype=torch.int32),
        "positions": _integers([length for length in lengths for _ in range(topk)]),
        "row_stride": width,
        "kv_indices_stride": stride,
        "kv_indptr_stride": starts,
        "bs_upper": 8,
        "iter_upper": 4,
        "num_tokens_upper": 16,
        "page_size": page,
        "window_size": 0,
        "sink_size": 0,
        "NUM_STEPS": 0,
        "ENTRY_PAGE_SIZE": 1,
        "v2p": None,
        "TRANSLATE": False,
    }


def _tree(chance: random.Random) -> Launch:
    """Return a launch that builds draft trees with `topk` candidates per selected node."""
    rows, topk, depth = chance.randint(1, 4), chance.choice((1, 1, 2, 3)), chance.randint(1, 4)
    num_candidates = topk + (depth - 1) * topk * topk
    size = min(1 + num_candidates, chance.randint(2, 8))
    width = 1 + (depth - 1) * topk
    lengths, mode = [chance.randint(1, 30) for _ in range(rows)], chance.choice((0, 1))
    # The parents of candidates after the first step, by their index among all candidates.
    parents = [[-1, *(chance.randrange(topk + step // topk * topk) for step in range(width - 1))] for _ in range(rows)]
    selected = [sorted(chance.sample(range(num_candidates), size - 1)) for _ in range(rows)]
    bits = size * (sum(lengths) + rows * size) if mode == 0 else rows * size * size
    return (rows,), {
        "parent_list_ptr": _integers([each for row in parents for each in row]),
        "selected_index_ptr": _integers([each for row in selected for each in row]),
        "verified_seq_len_ptr": _integers(lengths),
        "seq_len_prefix_sum_ptr": _integers([sum(lengths[:row]) for row in range(rows)]),
        "tree_mask_ptr": torch.ones(bits, dtype=torch.bool),
        "positions_ptr": torch.full((rows * size,), -7),
        "retrieve_index_ptr": torch.full((rows * size,), -1),
        "retrieve_next_token_ptr": torch.full((rows * size,), -1),
        "retrieve_next_sibling_ptr": torch.full((rows * size,), -1),
        "topk": topk,
        "depth": depth,
        "draft_token_num": size,
        "tree_mask_mode": mode,
        "batch_size": rows,
        "parent_list_stride": width,
        "selected_index_stride": size - 1,
    }


def _verification(chance: random.Random) -> Launch:
    """Return a launch that verifies draft trees with random parents."""
    rows, size = chance.randint(1, 4), chance.randint(2, 8)
    most = chance.randint(2, size)
    after, siblings = [-1] * (rows * size), [-1] * (rows * size)
    for row in range(rows):
        for node in range(size - 1, 0, -1):
            parent = row * size + chance.randrange(node)
            siblings[row * size + node], after[parent] = after[parent], node
    return (rows,), {
        "predicts_ptr": torch.full((rows * size,), -7, dtype=torch.int32),
        "accept_index_ptr": torch.full((rows * most,), -1, dtype=torch.int32),
        "accept_token_num_ptr": torch.full((rows,), -7, dtype=torch.int32),
        "candidates_ptr": _integers([chance.randrange(3) for _ in range(rows * size)]),
        "retrieve_index_ptr": _integers(range(rows * size)),
        "retrieve_next_token_ptr": _integers(after),
        "retrieve_next_sibling_ptr": _integers(siblings),
        "target_predict_ptr": _integers([chance.randrange(3) for _ in range(rows * size)]),
        "batch_size": rows,
        "num_speculative_tokens": most,
        "num_draft_tokens": size,
    }


def _draft_slots(chance: random.Random) -> Launch:
    rows, topk, steps = chance.randint(1, 5), chance.choice((1, 2)), chance.randint(1, 5)
    return (rows,), {
        "req_pool_indices": _integers(chance.sample(range(8), rows)),
        "req_to_token": _table(chance, 8, 90),
        "seq_lens": _integers([chance.randint(0, 70) for _ in range(rows)]),
        "out_cache_loc": torch.full((rows * topk * steps,), -7),
        "pool_len": 90,
        "topk": topk,
        "speculative_num_steps": steps,
        "positions": torch.full((rows * topk,), -7),
        "mrope": None,
        "BS": rows,
        "WRITE_POSITIONS": chance.random() < 0.5,
        "WRITE_MROPE": False,
    }


def _gathered(chance: random.Random) -> Launch:
    rows, widths, block = chance.randint(1, 5), [chance.randint(1, 9) for _ in range(4)], 8
    given: Arguments = {"idx_ptr": _integers([chance.randrange(6) for _ in range(rows)])}
    for number, width in enumerate(widths):
        given[f"s{number}"] = torch.arange(6 * width, dtype=torch.float32)
        given[f"d{number}"] = torch.full((rows * width,), -7.0)
        given[f"n{number}"] = width
    return (rows, -(-max(widths) // block)), given | {"HAS3": chance.random() < 0.5, "BLOCK": block}


def _bonus(chance: random.Random) -> Launch:
    rows, width = chance.randint(1, 5), chance.randint(1, 5)
    return (rows,), {
        "accept_tokens": _integers([chance.randrange(90) for _ in range(rows * width)]),
        "accept_lens": _integers([chance.randint(1, width) for _ in range(rows)], torch.int32),
        "bonus_tokens_ptr": torch.full((rows,), -7, dtype=torch.int32),
        "accept_stride": width,
    }


def _allocation(chance: random.Random) -> Launch:
    rows, page = chance.randint(1, 5), chance.choice((1, 2, 4, 16))
    before = [chance.choice((0, 1, page, 3 * page - 1, 2 * page)) for _ in range(rows)]
    after = [length + chance.choice((0, 1, page - 1, page, 3 * page + 1)) for length in before]
    pages = list(range(100, 200))
    chance.shuffle(pages)
    return (rows,), {
        "pre_lens_ptr": _integers(before),
        "seq_lens_ptr": _integers(after),
        # If a row's last page is not full, allocation continues after its last slot.
        "last_loc_ptr": _integers([row * page * 3 + length % page - 1 for row, length in enumerate(before)]),
        "free_page_ptr": _integers(pages),
        "out_indices": torch.full((sum(after) - sum(before) + 2,), -7),
        "bs_upper": 8,
        "page_size": page,
    }


def _decode_allocation(chance: random.Random) -> Launch:
    rows, page = chance.randint(1, 5), chance.choice((1, 2, 4, 16))
    lengths = [chance.choice((1, 2, page, page + 1, 3 * page)) for _ in range(rows)]
    pages = list(range(100, 200))
    chance.shuffle(pages)
    return (rows,), {
        "seq_lens_ptr": _integers(lengths),
        "last_loc_ptr": _integers([row * page * 3 + length - 2 for row, length in enumerate(lengths)]),
        "free_page_ptr": _integers(pages),
        "out_indices": torch.full((rows,), -7),
        "bs_upper": 8,
        "page_size": page,
    }


def _assigned(chance: random.Random) -> Launch:
    rows = chance.randint(1, 5)
    starts, counts = ([chance.choice((0, 1, 31, 33)) for _ in range(rows)] for _ in range(2))
    return (rows,), {
        "req_pool_indices": _integers(chance.sample(range(8), rows)),
        "req_to_token": _table(chance, 8, 90),
        "start_offset": _integers(starts),
        "end_offset": _integers([start + count for start, count in zip(starts, counts, strict=True)]),
        "out_cache_loc": _integers(range(1000, 1000 + sum(counts))),
        "pool_len": 90,
        "bs_upper": 8,
    }


def _extended(chance: random.Random) -> Launch:
    programs, given = _assigned(chance)
    return programs, given | {"out_cache_loc": torch.full_like(given["out_cache_loc"], -7)}


def _extended_alike(chance: random.Random) -> Launch:
    rows, count = chance.randint(1, 5), chance.choice((1, 3, 63, 65))
    has_positions, has_anchors = chance.random() < 0.5, chance.random() < 0.5
    return (rows,), {
        "req_pool_indices": _integers(chance.sample(range(8), rows)),
        "req_to_token": _table(chance, 8, 120),
        "start_offset": _integers([chance.choice((0, 1, 31, 55)) for _ in range(rows)]),
        "out_cache_loc": torch.full((rows * count,), -7),
        "pool_len": 120,
        "draft_token_num": count,
        **dict.fromkeys(("full_v2p", "swa_v2p", "full_out", "swa_out")),
        "PAGE_SIZE": 1,
        "num_v_pages": 0,
        "num_swa_pages": 0,
        "positions_out": torch.full((rows * count,), -7) if has_positions else None,
        "anchor_src": _integers(chance.sample(range(90), rows)) if has_anchors else None,
        "anchor_out": torch.full((rows * count,), -7) if has_anchors else None,
        "anchor_stride": count if has_anchors else 0,
    }


def _filled(chance: random.Random) -> Launch:
    rows, width = chance.randint(1, 5), 1100
    before = [chance.choice((0, 1, 5, 511, 513)) for _ in range(rows)]
    new = [chance.choice((0, 1, 7, 511, 513)) for _ in range(rows)]
    return (rows,), {
        "req_to_token_ptr": torch.full((8 * width,), -7, dtype=torch.int32),
        "req_pool_indices": _integers(chance.sample(range(8), rows)),
        "prefix_tensors": [_integers(chance.sample(range(2000), max(length, 1))) for length in before],
        "pre_lens": _integers(before),
        "seq_lens": _integers([sum(each) for each in zip(before, new, strict=True)]),
        "extend_lens": _integers(new),
        "out_cache_loc": _integers(range(3000, 3001 + sum(new))),
        "req_to_token_ptr_stride": width,
    }


def _accepted(chance: random.Random) -> Launch:
    size = chance.randint(1, 9)
    return (size,), {
        "accept_index": _integers([chance.choice((-1, chance.randrange(20))) for _ in range(size)], torch.int32),
        "out_cache_loc": _integers(chance.sample(range(100), 20)),
        "accept_out_cache_loc": torch.full((size,), -7),
        "size_upper": 16,
    }


def _moved(chance: random.Random) -> Launch:
    """Return a launch that moves KV cache entries; a slot may be both source and target."""
    slots, count, widths = 12, chance.randint(1, 6), [chance.choice((4, 16, 40)) for _ in range(3)]
    caches = [torch.arange(slots * width).to(torch.uint8) for width in widths]
    return (len(caches), 3), {
        "data_ptrs": caches,
        "strides": _integers(widths),
        "tgt_loc_ptr": _integers(chance.sample(range(slots), count)),
        "src_loc_ptr": _integers(chance.sample(range(slots), count)),
        "num_locs": count,
        "num_locs_upper": 8,
        "BYTES_PER_TILE": 16,
    }


def _hashed(chance: random.Random) -> Launch:
    rows, columns, block = chance.randint(1, 4), chance.randint(1, 40), 16
    return (rows, -(-columns // block)), {
        "seed_ptr": _integers([chance.choice((0, 1, -1, chance.getrandbits(62))) for _ in range(rows)]),
        "positions_ptr": _integers([chance.choice((0, 7, chance.getrandbits(31))) for _ in range(rows)]),
        "col_indices_ptr": _integers(range(columns)),
        "output_ptr": torch.zeros(rows * columns, dtype=torch.uint32),
        "num_rows": rows,
        "num_cols": columns,
        "BLOCK_SIZE": block,
    }


def _masked(chance: random.Random) -> Launch:
    rows, vocab, block = chance.randint(1, 4), chance.choice((31, 32, 33, 70)), 64
    words, stride = -(-vocab // 32), vocab + chance.choice((0, 3))
    chosen = _integers(chance.sample(range(rows), chance.randint(1, rows))) if chance.random() < 0.5 else None
    bits = [chance.getrandbits(32) - (1 << 31) for _ in range(rows * words)]
    return (4,), {
        "logits_ptr": torch.arange(rows * stride, dtype=torch.float32),
        "bitmask_ptr": _integers(bits, torch.int32),
        "indices_ptr": chosen,
        "num_rows": rows if chosen is None else len(chosen),
        "vocab_size": vocab,
        "logits_strides": stride,
        "bitmask_strides": words,
        "NUM_SMS": 4,
        "BLOCK_SIZE": block,
    }


def _rebuilt(chance: random.Random) -> Launch:
    rows, size = chance.randint(1, 4), chance.randint(1, 8)
    return (rows,), {
        "tree_mask_ptr": torch.tensor([chance.random() < 0.5 for _ in range(rows * size * size)]),
        "verified_seq_len_ptr": _integers([chance.randint(0, 90) for _ in range(rows)]),
        **{
            f"{name}_ptr": torch.full((rows * size,), -7)
            for name in ("positions", "retrieve_index", "retrieve_next_token", "retrieve_next_sibling")
        },
        "n": size,
        "BLOCK_N": 8,
    }


def _last(chance: random.Random) -> Launch:
    rows, block = chance.randint(1, 9), 4
    return (-(-rows // block),), {
        "req_to_token": _table(chance, 9, 40),
        "req_pool_indices_tensor": _integers(chance.sample(range(9), rows)),
        "prefix_lens_tensor": _integers([chance.choice((0, 1, 5, 40)) for _ in range(rows)]),
        "result": torch.full((rows,), -7),
        "num_tokens": rows,
        "req_to_token_stride": 40,
        "BLOCK_SIZE": block,
    }


def _positions(chance: random.Random) -> Launch:
    rows = chance.randint(1, 5)
    counts = [chance.choice((1, 4, 511, 513)) for _ in range(rows)]
    return (rows,), {
        "positions": torch.full((sum(counts) + 1,), -7),
        "extend_start_loc": torch.full((rows,), -7, dtype=torch.int32),
        "extend_prefix_lens": _integers([chance.randint(0, 50) for _ in range(rows)], torch.int32),
        "extend_seq_lens": _integers(counts, torch.int32),
        "has_prefix": chance.random() < 0.5,
    }


CASES: Mapping[str, Callable[[random.Random], Launch]] = {
    "_gather_rows_kernel": _gathered,
    "_reconstruct_tree_mask_kernel": _rebuilt,
    "alloc_decode_kernel": _decode_allocation,
    "alloc_extend_kernel": _allocation,
    "apply_token_bitmask_inplace_kernel": _masked,
    "assign_draft_cache_locs_contiguous": _draft_slots,
    "assign_extend_cache_locs": _extended,
    "assign_extend_cache_locs_uniform": _extended_alike,
    "assign_req_to_token_pool": _assigned,
    "compute_position_kernel": _positions,
    "copy_all_layer_kv_cache_tiled": _moved,
    "fill_accept_out_cache_loc": _accepted,
    "fill_bonus_tokens": _bonus,
    "get_last_loc_kernel": _last,
    "create_flashinfer_kv_indices_triton": _indices,
    "murmur_hash32_kernel": _hashed,
    "generate_draft_decode_kv_indices": _drafted_indices,
    "sgl_build_tree_kernel_efficient_triton": _tree,
    "verify_tree_greedy_kernel_triton": _verification,
    "write_req_to_token_pool_triton": _filled,
}


def _tensors(value: Any) -> list[torch.Tensor]:
    return value if isinstance(value, list) else [value] if isinstance(value, torch.Tensor) else []


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [each.clone() for each in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def _addresses(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], dtype=torch.uint64)


def _checked() -> Iterator[str]:
    """Run each kernel and its NumPy definition on random inputs; yield a line per kernel."""
    from workers.simulated_torch.kernel_definitions import Memory, Pointers, digest_of, flat  # noqa: PLC0415
    from workers.targets.sglang.inside.kernels.table import TABLE  # noqa: PLC0415

    def memory_of(value: Any) -> Any:
        if isinstance(value, list):
            return Pointers(_addresses(value).numpy(), value)
        return Memory(flat(value)) if isinstance(value, torch.Tensor) else value

    assert {name.rpartition(".")[2] for name in TABLE} == set(CASES), "each definition has launches"
    for name, definition in TABLE.items():
        module, _, last = name.rpartition(".")
        kernel = getattr(import_module(module), last)
        for number in range(LAUNCHES):
            programs, given = CASES[last](random.Random(number))
            assert definition.covers(given), f"{last}: launch {number} is not covered"
            one, other = ({key: _copied(each) for key, each in given.items()} for _ in range(2))
            kernel[programs](**{key: _addresses(each) if isinstance(each, list) else each for key, each in one.items()})
            memory = {key: memory_of(each) for key, each in other.items()}
            definition.run(programs, SimpleNamespace(**memory))
            for key, each in one.items():
                for seen, wanted in zip(_tensors(other[key]), _tensors(each), strict=True):
                    same = torch.equal(seen, wanted)
                    assert same, f"{last}: launch {number}: {key} is {seen.tolist()}, interpreted {wanted.tolist()}"
        yield f"{last} {digest_of(kernel.fn)} {LAUNCHES}"


if __name__ == "__main__":
    interpret()
    absent.install()
    plugin.install()
    # SGLang's platform module queries the device when it is loaded.
    from workers.simulated_torch.device import activate

    activate()
    for line in _checked():
        print(line)
