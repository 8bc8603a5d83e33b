"""How a Triton op declares its arguments: as its definition does, with tensors for arrays.

The sentinels of device buffers are here too, as constants that a kernel may name.
"""

from typing import Annotated, TypeAlias

import triton.language as tl
from torch import Tensor

from workers.kernels import signature as definition

In: TypeAlias = Annotated[Tensor, "in"]
Out: TypeAlias = Annotated[Tensor, "out"]
InOut: TypeAlias = Annotated[Tensor, "inout"]

NO_TOKEN = tl.constexpr(definition.NO_TOKEN)
NO_DRAFT = tl.constexpr(definition.NO_DRAFT)
PAD_SLOT = tl.constexpr(definition.PAD_SLOT)
PAD_ROW = tl.constexpr(definition.PAD_ROW)
PAD_BLOCK = tl.constexpr(definition.PAD_BLOCK)
PAD_STATE_SLOT = tl.constexpr(definition.PAD_STATE_SLOT)
UNKNOWN_TOKEN = tl.constexpr(definition.UNKNOWN_TOKEN)
POISON = tl.constexpr(definition.POISON)


def check_flat(*buffers: Tensor) -> None:
    """Refuse buffers whose elements do not follow one another: a kernel sees the first address alone.

    Raises:
        ValueError: a buffer is not flat, or a slice with a step.
    """
    for buffer in buffers:
        if buffer.dim() != 1 or not buffer.is_contiguous():
            found = f"shape {tuple(buffer.shape)} and strides {buffer.stride()}"
            raise ValueError(f"a device op takes flat, contiguous buffers, not {found}")
