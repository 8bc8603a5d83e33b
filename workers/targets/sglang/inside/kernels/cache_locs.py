"""Definition of a kernel of `sglang.kernels.ops.speculative.cache_locs`: slots that drafting attends to, by step."""

from collections.abc import Mapping
from typing import Any

from workers.targets.simulated_torch.kernel_definitions import Definition, Given

MODULE = "sglang.kernels.ops.speculative.cache_locs"


def generate_indices(programs: tuple[int, ...], given: Given) -> None:
    """Write for each step of drafting the slots of each request: its tokens, and those drafted up to then."""
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
                # Who is first writes where all end.
                place = row * topk + branch or num_requests * topk
                given.kv_indptr[starts + place] = int(given.positions.span(0, place).sum()) + place * drafted
            before += length


def _first_drafted(given: Given, length: int, num_steps: int, branch: int, topk: int) -> int:
    """Return the position of the first token that a branch drafts behind a request's own; each has pages of its own."""
    if given.page_size == 1 or topk == 1:
        return length + branch * num_steps
    num_pages = -(-(length % given.page_size + num_steps) // given.page_size)
    return length + branch * num_pages * given.page_size


def _is_of_slots(given: Mapping[str, Any]) -> bool:
    """Tell whether slots are those of a table by tokens, all of them."""
    return given["window_size"] == 0 and given["ENTRY_PAGE_SIZE"] == 1 and not given["TRANSLATE"]


DEFINITIONS = {"generate_draft_decode_kv_indices": Definition(generate_indices, "0f0ca57e568fd5bd", _is_of_slots)}
