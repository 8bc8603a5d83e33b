"""NumPy definitions of SGLang's draft kernels: slots of draft steps, bonus tokens."""

from collections.abc import Mapping
from typing import Any

from workers.simulated_torch.kernel_definitions import Definition, Given

_PACKAGE = "sglang.kernels.ops.speculative"


def generate_indices(programs: tuple[int, ...], given: Given) -> None:
    """Write the KV-cache slots that each draft step attends to, by request and tree branch.

    These are the slots of the request's tokens, and of the draft tokens of its branch up to that step.
    """
    num_steps, (_, num_requests, topk) = given.NUM_STEPS or programs[0], programs
    for step in range(num_steps):
        indices, starts, drafted = given.kv_indices_stride * step, given.kv_indptr_stride * step, step + 1
        before = 0
        for row in range(num_requests):
            length = given.paged_kernel_lens[row]
            slots = given.req_pool_indices[row] * given.row_stride
            for branch in range(topk):
                at = indices + before * topk + row * drafted * topk + branch * (length + drafted)
                given.kv_indices.span(at, length)[:] = given.req_to_token.span(slots, length)
                own = given.req_to_token.span(slots + _first_drafted(given, length, num_steps, branch, topk), drafted)
                given.kv_indices.span(at + length, drafted)[:] = own
                # Branch 0 of request 0 writes the end of the last one.
                place = row * topk + branch or num_requests * topk
                given.kv_indptr[starts + place] = int(given.positions.span(0, place).sum()) + place * drafted
            before += length


def _first_drafted(given: Given, length: int, num_steps: int, branch: int, topk: int) -> int:
    """Return the index, in a request's row of slots, of a branch's first draft token.

    Each branch has pages of its own.
    """
    if given.page_size == 1 or topk == 1:
        return length + branch * num_steps
    page: int = given.page_size
    num_pages = -(-(length % page + num_steps) // page)
    return length + branch * num_pages * page


def _maps_single_tokens(given: Mapping[str, Any]) -> bool:
    """Return whether a table maps each token to a slot, without window or translation."""
    return given["window_size"] == 0 and given["ENTRY_PAGE_SIZE"] == 1 and not given["TRANSLATE"]


def assign_draft_slots(programs: tuple[int, ...], given: Given) -> None:
    """Write the KV-cache slots of each request's draft tokens, and their first position."""
    count = given.topk * given.speculative_num_steps
    for row in range(programs[0]):
        length = given.seq_lens[row]
        slots = given.req_to_token.span(given.req_pool_indices[row] * given.pool_len + length, count)
        given.out_cache_loc.span(row * count, count)[:] = slots
        if given.WRITE_POSITIONS:
            given.positions.span(row * given.topk, given.topk)[:] = length


def _has_one_position(given: Mapping[str, Any]) -> bool:
    return not given["WRITE_MROPE"]


def gather_rows(programs: tuple[int, ...], given: Given) -> None:
    """Copy the selected rows of three or four tables."""
    tables = [(given.s0, given.d0, given.n0), (given.s1, given.d1, given.n1), (given.s2, given.d2, given.n2)]
    if given.HAS3:
        tables.append((given.s3, given.d3, given.n3))
    for row in range(programs[0]):
        for source, to, width in tables:
            to.span(row * width, width)[:] = source.span(given.idx_ptr[row] * width, width)


def fill_bonus_tokens(programs: tuple[int, ...], given: Given) -> None:
    """Write each request's last accepted token, the bonus token."""
    for row in range(programs[0]):
        last = given.accept_stride * row + given.accept_lens[row] - 1
        given.bonus_tokens_ptr[row] = given.accept_tokens[last]


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
