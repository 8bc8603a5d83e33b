"""Make logits undefined, as an event asks for."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import check_flat, launch
from workers.kernels.spoil_logits.arguments import SpoilLogits

BLOCK_VERIFIED = 16
BLOCK_VOCABULARY = 128
BLOCK_HISTORY = 64
BLOCK_LOGITS = 1024


def spoil_logits(a: SpoilLogits) -> None:
    """Set all logits of `rows`, `num_logits` each, to what is not a number."""
    check_flat(a.rows, a.logits)
    grid = (a.rows.numel(), -(-a.num_logits // BLOCK_LOGITS))
    launch(_spoil_kernel, grid)(a.rows, a.logits, a.num_logits, BLOCK_LOGITS)


@triton.jit(do_not_specialize=["num_logits"])
def _spoil_kernel(p_rows, p_logits, num_logits, BLOCK: tl.constexpr):
    o_logit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    p_row = p_logits + tl.load(p_rows + tl.program_id(0)) * num_logits
    tl.store(p_row + o_logit, tl.full([BLOCK], float("nan"), dtype=tl.float32), mask=o_logit < num_logits)
