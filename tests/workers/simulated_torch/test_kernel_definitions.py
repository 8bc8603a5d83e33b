"""Definitions of kernels: matching by source, and bounds checks of their memory."""

from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from workers.simulated_torch.kernel_accesses import KernelError
from workers.simulated_torch.kernel_definitions import (
    Definition,
    Definitions,
    Memory,
    Pointers,
    digest_of,
    flat,
    name_of,
)

# The kernels are only parsed, never run; `tl` stands for `triton.language`.
tl: Any = SimpleNamespace()
SALT: Any = SimpleNamespace(value=7)
STEP: Any = 1


def salted(value):  # type: ignore[no-untyped-def]
    return value + SALT


def salted_otherwise(value):  # type: ignore[no-untyped-def]
    return value - SALT


salted_by: Any = SimpleNamespace(fn=salted)


def count(to_ptr, from_ptr):  # type: ignore[no-untyped-def]
    tl.store(to_ptr, salted_by(tl.load(from_ptr)) + STEP)


def with_names(**names: Any) -> Any:
    """Return the kernel with other values for constants of its module."""
    made = FunctionType(count.__code__, {**globals(), **names}, count.__name__)
    made.__module__ = count.__module__
    return made


def nothing(programs: tuple[int, ...], given: Any) -> None:
    pass


def test_definition_is_used_only_for_the_source_it_was_compared_with() -> None:
    definition = Definition(nothing, digest_of(count))
    definitions = Definitions({name_of(count): definition})
    assert definitions.of(count) is definition
    for names in ({"STEP": 2}, {"salted_by": SimpleNamespace(fn=salted_otherwise)}):
        assert definitions.of(with_names(**names)) is None
    assert definitions.of(salted) is None
    assert definitions.launched == {
        name_of(count): "has another source than the kernel that its definition was compared with",
        name_of(salted): "has no definition",
    }


def test_missing_and_changed_kernels_are_reported_before_a_launch() -> None:
    here, digest = f"{__name__}.salted_by", digest_of(salted)
    assert Definitions({here: Definition(nothing, digest)}).interpreted() == {}
    gone = f"{__name__}.gone", "no_such_module.gone", f"{__name__}.nothing"
    reasons = Definitions(
        {here: Definition(nothing, "other"), **dict.fromkeys(gone, Definition(nothing, digest))}
    ).interpreted()
    assert reasons == {
        here: "has another source than the kernel that its definition was compared with",
        **dict.fromkeys(gone, "is missing"),
    }


def test_definition_for_the_source_is_chosen_among_several() -> None:
    later = Definition(nothing, digest_of(count))
    definitions = Definitions({name_of(count): Definition(nothing, "other", others=(later,))})
    assert definitions.of(count) is later
    assert definitions.of(with_names(STEP=2)) is None


def test_digest_covers_called_functions_and_their_constants() -> None:
    digest = digest_of(count)
    assert digest_of(with_names()) == digest
    other = FunctionType(salted.__code__, {**globals(), "SALT": SimpleNamespace(value=8)}, salted.__name__)
    other.__module__ = salted.__module__
    assert digest_of(with_names(salted_by=SimpleNamespace(fn=other))) != digest


def test_index_outside_the_memory_is_refused() -> None:
    memory = Memory(np.arange(6, dtype=np.int32))
    assert (memory[0], memory[5], memory.span(2, 3).tolist()) == (0, 5, [2, 3, 4])
    assert memory.span(9, 0).size == memory.span(9, -1).size == 0
    for use in (
        lambda: memory[-1],
        lambda: memory[6],
        lambda: memory.span(-1, 2),
        lambda: memory.span(4, 3),
        lambda: memory.at(np.array([0, 6])),
        lambda: memory.put(np.array([-1]), 0),
        lambda: memory.rows(2, (2, 3), (3, 1)),
    ):
        with pytest.raises(KernelError):
            use()


def test_integer_overflow_wraps_as_in_a_kernel() -> None:
    memory = Memory(np.zeros(1, dtype=np.int32))
    memory[0] = (1 << 31) + 5
    assert memory[0] == 5 - (1 << 31)


def test_flat_memory_of_strided_rows_includes_the_gaps() -> None:
    table = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    assert flat(table[1:, :2]).tolist() == [4, 5, 6, 7, 8, 9]


def test_pointer_is_resolved_to_its_tensor_or_refused() -> None:
    first, second = torch.arange(4, dtype=torch.int32), torch.arange(10, 14, dtype=torch.int32)
    addresses = np.array([second.data_ptr() + 4, first.data_ptr(), 8], dtype=np.uint64)
    pointers = Pointers(addresses, (first, second))
    assert pointers.to(0, np.int32).array.tolist() == [11, 12, 13]
    pointers.to(1, np.int32)[2] = 7
    assert first.tolist() == [0, 1, 7, 3]
    with pytest.raises(KernelError, match="outside the tensors of the launch"):
        pointers.to(2, np.int32)


@pytest.mark.parametrize("first", [0, 1])
def test_pointer_into_overlapping_tensors_takes_the_last_start(first: int) -> None:
    memory = torch.arange(12, dtype=torch.int32)
    states = [memory.as_strided((3, 2), (4, 1)), memory.as_strided((3, 2), (4, 1), 2)]
    addresses = np.array([each.data_ptr() for each in states], dtype=np.uint64)
    pointers = Pointers(addresses, (states[first], states[1 - first]))
    assert pointers.to(0, np.int32).array.tolist() == list(range(10))
    assert pointers.to(1, np.int32).array.tolist() == list(range(2, 12))


def test_pointer_between_rows_is_resolved_to_the_other_tensor() -> None:
    # Each row has two values of the first tensor, then two of the second.
    whole = torch.arange(12, dtype=torch.int64)
    first, second = whole.view(3, 4)[:, :2], whole.view(3, 4)[:, 2:]
    addresses = np.array([second.data_ptr()], np.uint64)
    for targets in ((first, second), (second, first)):
        memory = Pointers(addresses, targets).to(0, np.int64)
        assert [*memory.span(8, 2)] == [10, 11]
        with pytest.raises(KernelError):
            memory.span(9, 2)
