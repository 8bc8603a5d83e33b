"""Triton kernels as tasks: undeclared accesses of a kernel are refused."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workers.simulated_torch.kernel_accesses import KernelError
from workers.simulated_torch.triton_tasks import BOUNDS, CHECKED

GIVEN = [(1000, 1040), (2000, 2008)]


def touched(what: str, addresses: list[int], mask: list[int]) -> Any:
    """Access 4-byte values as the interpreter does; return the arguments that reach it."""
    pointers = SimpleNamespace(data=np.array(addresses), get_element_ty=lambda: SimpleNamespace(primitive_bitwidth=32))
    done = CHECKED[what](lambda self, *given: given)
    given = (pointers, SimpleNamespace(data=np.array(mask)))
    return done(None, *given) if what == "create_masked_load" else done(None, given[0], None, given[1])


@pytest.mark.parametrize("what", ["create_masked_load", "create_masked_store"])
def test_access_outside_the_declared_tensors_is_refused(what: str) -> None:
    is_load = what == "create_masked_load"
    with BOUNDS.within("copy", GIVEN if is_load else [], [] if is_load else GIVEN):
        touched(what, [1000, 1036, 9999], [1, 1, 0])
        touched(what, [1036, 2004], [1, 1])
        with pytest.raises(KernelError, match=r"^copy .* byte 37 of 40 of its tensor$"):
            touched(what, [1000, 1037], [1, 1])
        with pytest.raises(KernelError, match=r"^copy .* byte -4 of 8 of its tensor$"):
            touched(what, [1996], [1])
    touched(what, [1], [1])


def test_store_of_a_kernel_without_stores_is_refused() -> None:
    with (
        BOUNDS.within("copy", GIVEN, []),
        pytest.raises(KernelError, match="copy stores to memory, which its source does not do"),
    ):
        touched("create_masked_store", [1000], [1])
