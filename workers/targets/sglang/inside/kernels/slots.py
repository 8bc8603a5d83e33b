"""NumPy definitions of SGLang's kernels for KV-cache slots and page allocation."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

_SPECULATIVE = "sglang.kernels.ops.speculative"


def create_indices(programs: tuple[int, ...], given: Given) -> None:
    """Write the KV-cache slots of each request's tokens, one request after the other."""
    for row in range(programs[0]):
        request, first, count = given.req_pool_indices_ptr[row], given.kv_indptr[row], given.page_kernel_lens_ptr[row]
        start = given.kv_start_idx[row] if given.kv_start_idx is not None else 0
        slots = given.req_to_token_ptr.span(request * given.req_to_token_ptr_stride + start, count)
        given.kv_indices_ptr.span(first, count)[:] = slots


def _maps_single_tokens(given: Mapping[str, Any]) -> bool:
    return bool(given["ENTRY_PAGE_SIZE"] == 1) and given["token_mapping"] is None


def extend_allocation(programs: tuple[int, ...], given: Given) -> None:
    """Allocate KV-cache slots for each request's new tokens in a prefill chunk.

    They fill the request's last page first, then new pages.
    """
    page, out, taken = given.page_size, 0, 0
    within = np.arange(page)
    for row in range(programs[0]):
        before, after = given.pre_lens_ptr[row], given.seq_lens_ptr[row]
        num_pages = -(-before // page)
        rest = min(after, num_pages * page) - before
        num_new = -(-after // page) - num_pages
        pages = given.free_page_ptr.span(taken, num_new)
        fresh = (pages[:, None] * page + within).ravel()[: after - before - rest]
        slots = given.out_indices.span(out, after - before)
        slots[:rest] = given.last_loc_ptr[row] + 1 + within[:rest]
        slots[rest:] = fresh
        out, taken = out + after - before, taken + num_new


def decode_allocation(programs: tuple[int, ...], given: Given) -> None:
    """Allocate the KV-cache slot of each request's newest token in a decode step.

    It is the slot after the previous token, or the first one of a new page.
    """
    page, taken = given.page_size, 0
    for row in range(programs[0]):
        length = given.seq_lens_ptr[row]
        if -(-length // page) == -(-(length - 1) // page):
            given.out_indices[row] = given.last_loc_ptr[row] + 1
        else:
            given.out_indices[row] = given.free_page_ptr[taken] * page
            taken += 1


def assign_slots(programs: tuple[int, ...], given: Given) -> None:
    """Write new slots into the request-to-token table, for the token range of each request."""
    for in_table, in_batch in _new_slots(programs, given):
        in_table[:] = in_batch


def extend_slots(programs: tuple[int, ...], given: Given) -> None:
    """Copy each request's slots in its token range from the table into one list."""
    for in_table, in_batch in _new_slots(programs, given):
        in_batch[:] = in_table


def _new_slots(programs: tuple[int, ...], given: Given) -> Iterator[tuple[Array, Array]]:
    """Yield for each request two views of its new slots: in the table and in the list."""
    out = 0
    for row in range(programs[0]):
        start, count = given.start_offset[row], given.end_offset[row] - given.start_offset[row]
        place = given.req_pool_indices[row] * given.pool_len + start
        yield given.req_to_token.span(place, count), given.out_cache_loc.span(out, count)
        out += count


def extend_slots_alike(programs: tuple[int, ...], given: Given) -> None:
    """Write slots, positions and anchor token of each request for `draft_token_num` tokens."""
    count = given.draft_token_num
    for row in range(programs[0]):
        start = given.start_offset[row]
        slots = given.req_to_token.span(given.req_pool_indices[row] * given.pool_len + start, count)
        given.out_cache_loc.span(row * count, count)[:] = slots
        if given.positions_out is not None:
            given.positions_out.span(row * count, count)[:] = np.arange(start, start + count)
        if given.anchor_out is not None:
            given.anchor_out[row * given.anchor_stride] = given.anchor_src[row]


def _is_untranslated(given: Mapping[str, Any]) -> bool:
    return given["full_v2p"] is None


def fill_rows(programs: tuple[int, ...], given: Given) -> None:
    """Write each request's table row: the slots of its cached prefix, then of its new tokens."""
    out = 0
    for row in range(programs[0]):
        before, after = given.pre_lens[row], given.seq_lens[row]
        slots = given.req_to_token_ptr.span(
            given.req_pool_indices[row] * given.req_to_token_ptr_stride, max(before, after)
        )
        if before:
            slots[:before] = given.prefix_tensors.to(row, np.int64).span(0, before)
        slots[before:after] = given.out_cache_loc.span(out, after - before)
        out += given.extend_lens[row]


def accepted_slots(programs: tuple[int, ...], given: Given) -> None:
    """Write the KV-cache slots of accepted tokens, one request after the other."""
    places = [place for place in given.accept_index.span(0, programs[0]).tolist() if place != -1]
    for number, place in enumerate(places):
        given.accept_out_cache_loc[number] = given.out_cache_loc[place]


def move_entries(programs: tuple[int, ...], given: Given) -> None:
    """Copy KV-cache entries of each layer to other slots; read all before writing any."""
    sources, targets = (
        each.span(0, given.num_locs).astype(np.int64) for each in (given.src_loc_ptr, given.tgt_loc_ptr)
    )
    for layer in range(programs[0]):
        width = given.strides[layer]
        within = np.arange(min(width, programs[1] * given.BYTES_PER_TILE))
        memory = given.data_ptrs.to(layer, np.uint8)
        read, written = ((slots[:, None] * width + within).ravel() for slots in (sources, targets))
        memory.put(written, memory.at(read))


def last_slots(programs: tuple[int, ...], given: Given) -> None:
    """Write the KV-cache slot of each request's last token, -1 if it has no token."""
    for row in range(min(given.num_tokens, programs[0] * given.BLOCK_SIZE)):
        length = given.prefix_lens_tensor[row]
        place = given.req_pool_indices_tensor[row] * given.req_to_token_stride + length - 1
        given.result[row] = given.req_to_token[place] if length > 0 else -1


def compute_positions(programs: tuple[int, ...], given: Given) -> None:
    """Write the positions of each request's new tokens, and where they start in the batch."""
    start = 0
    for row in range(programs[0]):
        count, before = given.extend_seq_lens[row], given.extend_prefix_lens[row] if given.has_prefix else 0
        given.positions.span(start, count)[:] = np.arange(before, before + count)
        given.extend_start_loc[row] = start
        start += count


DEFINITIONS = {
    "sglang.kernels.ops.attention.kv_indices.create_flashinfer_kv_indices_triton": Definition(
        create_indices, "27869b9e61676059", _maps_single_tokens
    ),
    "sglang.kernels.ops.memory.allocator.alloc_extend_kernel": Definition(extend_allocation, "2d6ffbc793c5f0f3"),
    "sglang.kernels.ops.memory.allocator.alloc_decode_kernel": Definition(decode_allocation, "51bda2571a159d5b"),
    "sglang.srt.mem_cache.allocation.assign_req_to_token_pool": Definition(assign_slots, "9e534fd7ff181d88"),
    f"{_SPECULATIVE}.cache_locs.assign_extend_cache_locs": Definition(extend_slots, "f4d59da6d5048a03"),
    f"{_SPECULATIVE}.cache_locs.assign_extend_cache_locs_uniform": Definition(
        extend_slots_alike, "c40c42a89146eeb6", _is_untranslated
    ),
    "sglang.kernels.ops.memory.common.write_req_to_token_pool_triton": Definition(fill_rows, "53072cc8185f9708"),
    f"{_SPECULATIVE}.eagle.fill_accept_out_cache_loc": Definition(accepted_slots, "266739ae08ad7efa"),
    "sglang.kernels.ops.kvcache.cache_move.copy_all_layer_kv_cache_tiled": Definition(move_entries, "b0f60f6d0bf1d4d7"),
    "sglang.kernels.ops.memory.common.get_last_loc_kernel": Definition(last_slots, "f3be54b42e4bded8"),
    "sglang.kernels.ops.attention.position.compute_position_kernel": Definition(compute_positions, "eb2f0b9afee15c55"),
}
