"""Arguments of ops: a launch takes the declared arguments and refuses swapped buffers."""

from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import pytest

from scenarios import codec
from tests.workers.lanes.ops import device, machine
from workers.kernels.argument import (
    ANY_DTYPE,
    ANY_NAME,
    Arguments,
    In,
    Memory,
    Out,
    arguments,
    disagreement,
    factors_of,
)
from workers.lanes.lane import Span
from workers.lanes.prepared import Op, PreparedOp, op_of
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import specstorm_target

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke"
# Between them they launch every op that takes ten arguments or more.
SCENARIOS = ("everything", "drawn_tokens", "sampling_params", "mtp_in_chunks")


@arguments
class Compare(Arguments):
    """Compare two tables of rows."""

    one: Annotated[Memory, In("int64", "B * width")]
    other: Annotated[Memory, In("int64", "B * width", of=("spare",))]
    result: Annotated[Memory, Out("int64", "B")]
    width: int


def compare(a: Compare) -> None:
    """Compare."""


OP = op_of(compare)


def launches(name: str) -> dict[str, tuple[str, Op, Any]]:
    """Return a launch of every op of a scenario: its lane, op and arguments."""
    run = Run(codec.load(SMOKE / f"{name}.yaml").explicit(), ModelValueCache(), Options())
    run.to_end()
    lanes: Any = specstorm_target(run.target).machine
    return {
        prepared.op.function.__name__: (lane.name, prepared.op, given)
        for lane in lanes.lanes
        for given, prepared in lane._prepared.items()
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_swapped_buffers_of_a_launch_raise(name: str) -> None:
    swapped = 0
    for lane, op, given in launches(name).values():
        buffers = [argument for argument, mode in op.modes if mode != "int"]
        for one, other in combinations(buffers, 2):
            first, second = getattr(given, one), getattr(given, other)
            if first is not second:
                swapped += 1
                swap = given.on({one: second, other: first})
                with pytest.raises((TypeError, ValueError)):
                    PreparedOp(lane, op, swap)
                with pytest.raises(TypeError, match=rf"{type(given).__name__}\.\w+: expected"):
                    swap.check(swap.values())
    assert swapped > 100


def spans(**sizes: int) -> dict[str, Span]:
    made = machine()
    return {name: device(made, name, size).all for name, size in sizes.items()}


def test_check_accepts_span_by_argument_name_or_of() -> None:
    own = spans(one=6, other=6, spare=6, result=3)
    PreparedOp("a", OP, Compare(own["one"], own["other"], own["result"], 2))
    PreparedOp("a", OP, Compare(own["one"], own["spare"], own["result"], 2))
    with pytest.raises(TypeError, match=r"Compare\.one: expected one, got spare"):
        PreparedOp("a", OP, Compare(own["spare"], own["other"], own["result"], 2))
    with pytest.raises(TypeError, match=r"Compare\.one: expected one, got other"):
        PreparedOp("a", OP, Compare(own["other"], own["one"], own["result"], 2))


@pytest.mark.parametrize(
    ("sizes", "width"), [((6, 6, 4), 2), ((6, 4, 3), 2), ((7, 7, 3), 2), ((6, 6, 3), 3), ((6, 6, 3), 0)]
)
def test_inconsistent_buffer_sizes_raise(sizes: tuple[int, int, int], width: int) -> None:
    own = spans(one=sizes[0], other=sizes[1], result=sizes[2])
    with pytest.raises(ValueError, match="elements, got"):
        PreparedOp("a", OP, Compare(own["one"], own["other"], own["result"], width))


def test_checked_arguments_are_cached_by_sizes_and_integers() -> None:
    own = spans(one=6, other=6, result=3)
    PreparedOp("a", OP, Compare(own["one"], own["other"], own["result"], 2))
    with pytest.raises(ValueError, match=r"result: expected B elements, got 3"):
        PreparedOp("a", OP, Compare(own["one"], own["other"], own["result"], 1))


def test_disagreement_binds_lengths_in_any_order() -> None:
    shapes = (("table", "B * K", 6), ("rows", "B", 3), ("wide", "slots * (2 + K)", 20))
    assert disagreement(shapes, {}) is None
    assert disagreement(shapes, {"K": 2}) is None
    assert disagreement((*shapes, ("slots", "slots", 4)), {"K": 2}) == (
        "slots: expected slots elements, got 4 (K = 2, B = 3, slots = 5)"
    )
    assert disagreement((("table", "B * K", 0), ("rows", "B", 3)), {"K": 0}) is None
    assert disagreement((("table", "B * K", 6),), {"K": 0}) is not None


@pytest.mark.parametrize(
    ("shape", "value"), [("4", 4), ("K", 2), ("(1 + K)", 3), ("(1 + 2 * K)", 5), ("(W - 1)", 3), ("(W + K)", 6)]
)
def test_factors_of_parses_names_numbers_and_sums(shape: str, value: int) -> None:
    (factor,) = factors_of(shape)
    assert factor.value({"K": 2, "W": 4}) == value


@pytest.mark.parametrize("shape", ["B + 1", "B * ", "B*K", "(B", "B // 2", ""])
def test_factors_of_malformed_shape_raises(shape: str) -> None:
    with pytest.raises(ValueError, match="a shape is a product"):
        factors_of(shape)


def test_arguments_class_with_other_field_raises() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.scale is neither In, Out, InOut nor int"):

        @arguments
        class Wrong(Arguments):
            scale: float


def test_any_dtype_buffers_must_share_one_dtype() -> None:
    @arguments
    class Move(Arguments):
        source: Annotated[Memory, In(ANY_DTYPE, "length", of=(ANY_NAME,))]
        target: Annotated[Memory, Out(ANY_DTYPE, "length", of=(ANY_NAME,))]

    made = machine()
    words, more = device(made, "words").all, device(made, "more").all
    floats = made.buffer("floats", more._writable.astype("float32")).all
    Move(words, more).check((words, more))
    with pytest.raises(TypeError, match=r"Move\.target: expected any, floats is float32"):
        Move(words, floats).check((words, floats))


def test_arguments_are_compared_by_identity() -> None:
    one, other = Compare(1, 2, 3, 4), Compare(1, 2, 3, 4)
    assert one != other
    assert len({one, other}) == 2
