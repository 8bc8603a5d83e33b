"""Ops and spans of every machine: declared arguments, and the views of a span."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.lanes.ops import Copy, Note, copy, device, fill, machine, noting, stir
from workers.engine.functions import EngineFunctions
from workers.lanes.prepared import op_of


def test_op_of_takes_argument_modes_from_the_arguments_class() -> None:
    assert tuple(op_of(copy).arguments.modes().items()) == (("source", "in"), ("destination", "out"))
    assert tuple(op_of(fill).arguments.modes().values()) == ("out", "int")
    assert tuple(op_of(stir).arguments.modes().values()) == ("in", "inout", "int")
    assert op_of(stir).name == "stir"


def test_op_of_name_is_the_function_name_or_op_name() -> None:
    def replaced(a: Note) -> None:
        """Do nothing."""

    replaced.op_name = "attention"  # type: ignore[attr-defined]
    assert op_of(replaced).name == "attention"
    assert op_of(noting("copy_counts", [])).name == "copy_counts"


def test_op_of_function_without_one_arguments_object_raises() -> None:
    def takes_two(a: Copy, b: Copy) -> None:
        """Do nothing."""

    def takes_a_bare_array(cell: NDArray[Any]) -> None:
        """Do nothing."""

    wrong: tuple[Any, ...] = (takes_two, takes_a_bare_array)
    for function in wrong:
        with pytest.raises(TypeError, match=f"op {function.__name__} must take exactly one arguments object"):
            op_of(function)


def test_engine_ops_declare_reads_and_writes() -> None:
    functions = EngineFunctions()
    kernels = [
        name for name in EngineFunctions.__slots__ if getattr(functions, name).__module__.startswith("workers.kernels.")
    ]
    assert len(kernels) == 54
    for name in kernels:
        modes = op_of(getattr(functions, name)).arguments.modes().values()
        assert {"in", "inout"} & set(modes), name
        assert {"out", "inout"} & set(modes), name


def test_span_of_same_range_is_the_same_object() -> None:
    buffer = device(machine(), "cells", 8)
    assert buffer.span(2, 5) is buffer.span(2, 5)
    assert buffer.span(2, 5) is not buffer.span(2, 6)
    assert buffer.all is buffer.span(0, 8)
    assert buffer.span(2, 5).key == (2, 5)


def test_spans_of_a_range_share_one_watched_place() -> None:
    buffer = device(machine(), "cells[1]", 8)
    named = buffer.span(2, 5, "counts")
    assert named is buffer.span(2, 5, "counts")
    assert (named.name, buffer.span(2, 5).name) == ("counts", "cells")
    assert named is not buffer.span(2, 5)
    assert named.key == buffer.span(2, 5).key


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 9), (5, 4)])
def test_span_outside_its_buffer_raises(start: int, stop: int) -> None:
    with pytest.raises(AssertionError, match=r"cells\[.*\] of 8"):
        device(machine(), "cells", 8).span(start, stop)


def test_buffer_must_be_flat_and_its_name_unique() -> None:
    made = machine()
    with pytest.raises(AssertionError, match="square must be flat"):
        made.buffer("square", np.zeros((2, 2), dtype=np.int64))
    device(made, "cells")
    with pytest.raises(AssertionError, match="cells exists"):
        device(made, "cells")
