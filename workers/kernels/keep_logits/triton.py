"""Save a copy of the logits before they are processed."""

import triton.language as tl

from workers.kernels.keep_logits.definition import KeepLogits
from workers.kernels.launch.triton import kernel, launch

BLOCK_LOGITS = 1024


def keep_logits(a: KeepLogits) -> None:
    num_logits = a.logits.numel()
    assert a.kept.numel() == num_logits
    launch(_keep_kernel, (-(-num_logits // BLOCK_LOGITS),))(a.logits, a.kept, num_logits, BLOCK_LOGITS)


@kernel()
def _keep_kernel(p_logits, p_kept, num_logits, BLOCK: tl.constexpr):
    o_logit = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_logit = o_logit < num_logits
    tl.store(p_kept + o_logit, tl.load(p_logits + o_logit, mask=is_logit, other=0.0), mask=is_logit)
