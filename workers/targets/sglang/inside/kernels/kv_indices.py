"""Definition of a kernel of `sglang.kernels.ops.attention.kv_indices`: the slots of a batch, one after the other."""

from collections.abc import Mapping
from typing import Any

from workers.targets.simulated_torch.kernel_definitions import Definition, Given

MODULE = "sglang.kernels.ops.attention.kv_indices"


def create_indices(programs: tuple[int, ...], given: Given) -> None:
    """Write the slots of each request's tokens behind those of the requests before it."""
    for row in range(programs[0]):
        request, first, count = given.req_pool_indices_ptr[row], given.kv_indptr[row], given.page_kernel_lens_ptr[row]
        start = given.kv_start_idx[row] if given.kv_start_idx is not None else 0
        slots = given.req_to_token_ptr.span(request * given.req_to_token_ptr_stride + start, count)
        given.kv_indices_ptr.span(first, count)[:] = slots


def _is_of_slots(given: Mapping[str, Any]) -> bool:
    return bool(given["ENTRY_PAGE_SIZE"] == 1) and given["token_mapping"] is None


DEFINITIONS = {"create_flashinfer_kv_indices_triton": Definition(create_indices, "27869b9e61676059", _is_of_slots)}
