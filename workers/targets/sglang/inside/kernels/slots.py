"""NumPy definitions of SGLang's kernels for KV-cache slots and their allocation."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

_SPECULATIVE = "sglang.kernels.ops.speculative"


def create_indices(programs: tuple[int, ...], args: Given) -> None:
    """Write the KV-cache slots of all requests' tokens, request after request."""
    for row in range(programs[0]):
        request, first, count = args.req_pool_indices_ptr[row], args.kv_indptr[row], args.page_kernel_lens_ptr[row]
        start = args.kv_start_idx[row] if args.kv_start_idx is not None else 0
        slots = args.req_to_token_ptr.span(request * args.req_to_token_ptr_stride + start, count)
        args.kv_indices_ptr.span(first, count)[:] = slots


def _maps_single_tokens(args: Mapping[str, Any]) -> bool:
    return bool(args["ENTRY_PAGE_SIZE"] == 1) and args["token_mapping"] is None


def extend_allocation(programs: tuple[int, ...], args: Given) -> None:
    """Allocate KV-cache slots for each request's new tokens in a prefill chunk.

    They fill the request's last page first, then new pages.
    """
    page, out, taken = args.page_size, 0, 0
    within = np.arange(page)
    for row in range(programs[0]):
        before, after = args.pre_lens_ptr[row], args.seq_lens_ptr[row]
        num_pages = -(-before // page)
        rest = min(after, num_pages * page) - before
        num_new = -(-after // page) - num_pages
        pages = args.free_page_ptr.span(taken, num_new)
        fresh = (pages[:, None] * page + within).ravel()[: after - before - rest]
        slots = args.out_indices.span(out, after - before)
        slots[:rest] = args.last_loc_ptr[row] + 1 + within[:rest]
        slots[rest:] = fresh
        out, taken = out + after - before, taken + num_new


def decode_allocation(programs: tuple[int, ...], args: Given) -> None:
    """Allocate the KV-cache slot of each request's newest token in a decode step.

    It is the slot after the previous token, or the first one of a new page.
    """
    page, taken = args.page_size, 0
    for row in range(programs[0]):
        length = args.seq_lens_ptr[row]
        if -(-length // page) == -(-(length - 1) // page):
            args.out_indices[row] = args.last_loc_ptr[row] + 1
        else:
            args.out_indices[row] = args.free_page_ptr[taken] * page
            taken += 1


def assign_slots(programs: tuple[int, ...], args: Given) -> None:
    """Write new slots into the request-to-token table, for the token range of each request."""
    for in_table, in_batch in _new_slots(programs, args):
        in_table[:] = in_batch


def extend_slots(programs: tuple[int, ...], args: Given) -> None:
    """Copy each request's slots in its token range from the table into one list."""
    for in_table, in_batch in _new_slots(programs, args):
        in_batch[:] = in_table


def _new_slots(programs: tuple[int, ...], args: Given) -> Iterator[tuple[Array, Array]]:
    """Yield two views of each request's new slots: in the table, and in the list."""
    out = 0
    for row in range(programs[0]):
        start, count = args.start_offset[row], args.end_offset[row] - args.start_offset[row]
        place = args.req_pool_indices[row] * args.pool_len + start
        yield args.req_to_token.span(place, count), args.out_cache_loc.span(out, count)
        out += count


def extend_slots_alike(programs: tuple[int, ...], args: Given) -> None:
    """Write slots, positions and anchor token of `draft_token_num` tokens per request."""
    count = args.draft_token_num
    for row in range(programs[0]):
        start = args.start_offset[row]
        slots = args.req_to_token.span(args.req_pool_indices[row] * args.pool_len + start, count)
        args.out_cache_loc.span(row * count, count)[:] = slots
        if args.positions_out is not None:
            args.positions_out.span(row * count, count)[:] = np.arange(start, start + count)
        if args.anchor_out is not None:
            args.anchor_out[row * args.anchor_stride] = args.anchor_src[row]


def _is_untranslated(args: Mapping[str, Any]) -> bool:
    return args["full_v2p"] is None


def fill_rows(programs: tuple[int, ...], args: Given) -> None:
    """Write each request's row of the table: slots of the cached prefix, then of new tokens."""
    out = 0
    for row in range(programs[0]):
        before, after = args.pre_lens[row], args.seq_lens[row]
        slots = args.req_to_token_ptr.span(
            args.req_pool_indices[row] * args.req_to_token_ptr_stride, max(before, after)
        )
        if before:
            slots[:before] = args.prefix_tensors.to(row, np.int64).span(0, before)
        slots[before:after] = args.out_cache_loc.span(out, after - before)
        out += args.extend_lens[row]


def accepted_slots(programs: tuple[int, ...], args: Given) -> None:
    """Write the KV-cache slots of accepted tokens, request after request."""
    places = [place for place in args.accept_index.span(0, programs[0]).tolist() if place != -1]
    for number, place in enumerate(places):
        args.accept_out_cache_loc[number] = args.out_cache_loc[place]


def move_entries(programs: tuple[int, ...], args: Given) -> None:
    """Copy KV-cache entries of each layer to other slots; read all before writing any."""
    sources, targets = (each.span(0, args.num_locs).astype(np.int64) for each in (args.src_loc_ptr, args.tgt_loc_ptr))
    for layer in range(programs[0]):
        width = args.strides[layer]
        within = np.arange(min(width, programs[1] * args.BYTES_PER_TILE))
        memory = args.data_ptrs.to(layer, np.uint8)
        read, written = ((slots[:, None] * width + within).ravel() for slots in (sources, targets))
        memory.put(written, memory.at(read))


def last_slots(programs: tuple[int, ...], args: Given) -> None:
    """Write the KV-cache slot of each request's last token, -1 if it has no token."""
    for row in range(min(args.num_tokens, programs[0] * args.BLOCK_SIZE)):
        length = args.prefix_lens_tensor[row]
        place = args.req_pool_indices_tensor[row] * args.req_to_token_stride + length - 1
        args.result[row] = args.req_to_token[place] if length > 0 else -1


def compute_positions(programs: tuple[int, ...], args: Given) -> None:
    """Write the positions of each request's new tokens, and where they start in the batch."""
    start = 0
    for row in range(programs[0]):
        count, before = args.extend_seq_lens[row], args.extend_prefix_lens[row] if args.has_prefix else 0
        args.positions.span(start, count)[:] = np.arange(before, before + count)
        args.extend_start_loc[row] = start
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
