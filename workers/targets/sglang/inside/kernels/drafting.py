"""NumPy definitions of SGLang's draft kernels: slots of draft steps, bonus tokens."""

from collections.abc import Mapping
from typing import Any

from workers.simulated_torch.kernel_definitions import Definition, Given

_PACKAGE = "sglang.kernels.ops.speculative"


def generate_indices(programs: tuple[int, ...], args: Given) -> None:
    """Write the KV-cache slots that each draft step attends to, by request and tree branch.

    These are the slots of the request's tokens, and of the draft tokens of its branch up to that step.
    """
    num_steps, (_, num_requests, topk) = args.NUM_STEPS or programs[0], programs
    for step in range(num_steps):
        indices, starts, drafted = args.kv_indices_stride * step, args.kv_indptr_stride * step, step + 1
        before = 0
        for row in range(num_requests):
            length = args.paged_kernel_lens[row]
            slots = args.req_pool_indices[row] * args.row_stride
            for branch in range(topk):
                at = indices + before * topk + row * drafted * topk + branch * (length + drafted)
                args.kv_indices.span(at, length)[:] = args.req_to_token.span(slots, length)
                own = args.req_to_token.span(slots + _first_drafted(args, length, num_steps, branch, topk), drafted)
                args.kv_indices.span(at + length, drafted)[:] = own
                # Branch 0 of request 0 writes the end of the last one.
                place = row * topk + branch or num_requests * topk
                args.kv_indptr[starts + place] = int(args.positions.span(0, place).sum()) + place * drafted
            before += length


def _first_drafted(args: Given, length: int, num_steps: int, branch: int, topk: int) -> int:
    """Return the index of a branch's first draft token in a request's row of the slot table.

    Each branch has pages of its own.
    """
    if args.page_size == 1 or topk == 1:
        return length + branch * num_steps
    page: int = args.page_size
    num_pages = -(-(length % page + num_steps) // page)
    return length + branch * num_pages * page


def _maps_single_tokens(args: Mapping[str, Any]) -> bool:
    """Return whether a table maps single tokens to slots, without window or translation."""
    return args["window_size"] == 0 and args["ENTRY_PAGE_SIZE"] == 1 and not args["TRANSLATE"]


def assign_draft_slots(programs: tuple[int, ...], args: Given) -> None:
    """Write the KV-cache slots of each request's draft tokens, and their first position."""
    count = args.topk * args.speculative_num_steps
    for row in range(programs[0]):
        length = args.seq_lens[row]
        slots = args.req_to_token.span(args.req_pool_indices[row] * args.pool_len + length, count)
        args.out_cache_loc.span(row * count, count)[:] = slots
        if args.WRITE_POSITIONS:
            args.positions.span(row * args.topk, args.topk)[:] = length


def _has_one_position(args: Mapping[str, Any]) -> bool:
    return not args["WRITE_MROPE"]


def gather_rows(programs: tuple[int, ...], args: Given) -> None:
    """Copy the selected rows of three or four tables."""
    tables = [(args.s0, args.d0, args.n0), (args.s1, args.d1, args.n1), (args.s2, args.d2, args.n2)]
    if args.HAS3:
        tables.append((args.s3, args.d3, args.n3))
    for row in range(programs[0]):
        for source, to, width in tables:
            to.span(row * width, width)[:] = source.span(args.idx_ptr[row] * width, width)


def fill_bonus_tokens(programs: tuple[int, ...], args: Given) -> None:
    """Write each request's last accepted token, the bonus token."""
    for row in range(programs[0]):
        last = args.accept_stride * row + args.accept_lens[row] - 1
        args.bonus_tokens_ptr[row] = args.accept_tokens[last]


DEFINITIONS = {
    f"{_PACKAGE}.cache_locs.generate_draft_decode_kv_indices": Definition(
        generate_indices, "0f0ca57e568fd5bd", _maps_single_tokens
    ),
    f"{_PACKAGE}.cache_locs.assign_draft_cache_locs_contiguous": Definition(
        assign_draft_slots, "73d42bfee67a64be", _has_one_position
    ),
    f"{_PACKAGE}.gather_spec_extras._gather_rows_kernel": Definition(gather_rows, "715f71dd4779475d"),
    f"{_PACKAGE}.eagle.fill_bonus_tokens": Definition(fill_bonus_tokens, "6c4df974fe810d62"),
}
