"""Which arguments a Triton kernel reads and writes, derived from its source code."""

from types import SimpleNamespace
from typing import Any

import pytest

from workers.simulated_torch.kernel_accesses import KernelError, Root, accesses_of

# The kernels are only parsed, never run; `tl` stands for `triton.language`.
tl: Any = SimpleNamespace()


def row(pointer, stride, index):  # type: ignore[no-untyped-def]
    start = tl.load(index)
    return pointer + start * stride


def pointer_at(table):  # type: ignore[no-untyped-def]
    return tl.cast(tl.load(table), tl.pointer_type(tl.int32))


def rows_of(pointer, value):  # type: ignore[no-untyped-def]
    tl.store(pointer, value)
    return tl.load(pointer)


row_of: Any
pointer_of: Any
changed: Any
row_of, pointer_of, changed = (SimpleNamespace(fn=function) for function in (row, pointer_at, rows_of))


def copy(target_ptr, source_ptr, index_ptr, stride, SIZE):  # type: ignore[no-untyped-def]
    offsets = tl.arange(0, SIZE)
    source = source_ptr
    source += tl.load(index_ptr + tl.program_id(0)) * stride
    for i in range(0, stride, SIZE):
        tl.store(target_ptr + i + offsets, tl.load(source + offsets, mask=offsets < stride))


def through_functions(target_ptr, source_ptr, index_ptr, counts_ptr, stride):  # type: ignore[no-untyped-def]
    here = row_of(source_ptr, stride, index_ptr)
    if target_ptr is not None:
        tl.store(target_ptr, tl.load(here))
    tl.atomic_add(counts_ptr + changed(target_ptr, 0), 1)


def through_memory(tables_ptr, targets_ptr, lengths_ptr):  # type: ignore[no-untyped-def]
    group = tl.program_id(0)
    source, target = pointer_of(tables_ptr + group), pointer_of(targets_ptr + group)
    tl.store(target + tl.load(lengths_ptr), tl.load(source + group))


def in_turns(first_ptr, second_ptr, count):  # type: ignore[no-untyped-def]
    here, there = first_ptr, second_ptr
    while count:
        tl.store(here, 0)
        here, there = there, here
        count -= 1


def with_a_function(pointer):  # type: ignore[no-untyped-def]
    def inner(value: int) -> None:
        tl.store(pointer, value)

    inner(1)


def named(roots: frozenset[Root]) -> set[str]:
    """Return the names of pointer roots; a star marks pointers that are loaded from memory."""
    names = {root.argument + "*" * root.is_loaded for root in roots}
    return {name for name in names if "_ptr" in name}


@pytest.mark.parametrize(
    ("kernel", "reads", "writes"),
    [
        (copy, {"source_ptr", "index_ptr"}, {"target_ptr"}),
        (through_functions, {"source_ptr", "index_ptr", "target_ptr", "counts_ptr"}, {"target_ptr", "counts_ptr"}),
        (through_memory, {"tables_ptr", "targets_ptr", "lengths_ptr", "tables_ptr*"}, {"targets_ptr*"}),
        (in_turns, set(), {"first_ptr", "second_ptr"}),
    ],
)
def test_accesses_follow_the_origins_of_pointers(kernel: Any, reads: set[str], writes: set[str]) -> None:
    accesses = accesses_of(kernel)
    assert (named(accesses.reads), named(accesses.writes)) == (reads, writes)


def test_kernel_with_underivable_accesses_is_refused() -> None:
    with pytest.raises(KernelError, match="with_a_function defines a function"):
        accesses_of(with_a_function)
