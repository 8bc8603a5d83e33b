"""Small device ops for tests, and machines to launch them on."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.argument import ANY_NAME, Arguments, In, InOut, Memory, Out, arguments
from workers.lanes.base import HeldOp
from workers.lanes.lane import Buffer, Span, Watcher
from workers.lanes.policies import Eager, LaneOrder, Lazy, Policy, Random
from workers.lanes.simulated import SimulatedMachine as Machine

LANES = ("a", "b", "c", "d")
POLICIES: tuple[Policy, ...] = (Eager(), Lazy(), LaneOrder(("d", "host", "a", "c", "b")), Random(7))


@arguments
class Copy(Arguments):
    """Copy."""

    source: Annotated[Memory, In("int64", "length", of=(ANY_NAME,))]
    destination: Annotated[Memory, Out("int64", "length", of=(ANY_NAME,))]


@arguments
class Fill(Arguments):
    """Write one value everywhere."""

    destination: Annotated[Memory, Out("int64", "length", of=(ANY_NAME,))]
    value: int


@arguments
class Stir(Arguments):
    """Op that mixes a source into its target; the result depends on the order of ops."""

    source: Annotated[Memory, In("int64", "source_length", of=(ANY_NAME,))]
    target: Annotated[Memory, InOut("int64", "length", of=(ANY_NAME,))]
    salt: int


@arguments
class Note(Arguments):
    """Op that records that it ran."""

    cell: Annotated[Memory, InOut("int64", "length", of=(ANY_NAME,))]


def copy(a: Copy) -> None:
    """Copy."""
    a.destination[:] = a.source


def fill(a: Fill) -> None:
    """Write one value everywhere."""
    a.destination[:] = a.value


def stir(a: Stir) -> None:
    """Mix the source into the target; the result depends on the order of ops."""
    a.target[:] = a.target * 3 + np.sum(a.source) * 5 + a.salt


def noting(name: str, order: list[str]) -> Callable[[Note], None]:
    """Make an op of this name that appends its name to `order` when it runs."""

    def note(a: Note) -> None:
        order.append(name)

    note.__name__ = name
    return note


def machine(
    policy: Policy | None = None,
    watcher: Watcher | None = None,
    held: Sequence[HeldOp] = (),
    without: frozenset[tuple[str, str]] = frozenset(),
    blame: bool = False,
) -> Machine:
    """Make a machine of four lanes; the default policy is Eager."""
    return Machine(LANES, policy or Eager(), watcher, held, without=without, blame=blame)


def lazy_machine() -> Machine:
    """Make a machine in which lanes run only for a blocked host, the last lane first."""
    return machine(LaneOrder(("host", *reversed(LANES))))


def device(made: Machine, name: str, length: int = 4) -> Buffer:
    """Make a device buffer of zeros."""
    return made.buffer(name, np.zeros(length, np.int64))


def pinned(made: Machine, name: str, length: int = 4) -> Buffer:
    """Make a pinned buffer of zeros."""
    return made.buffer(name, np.zeros(length, np.int64), pinned=True)


def contents(made: Machine, span: Span) -> list[int]:
    """Run everything and return the values of a span, read by a capture."""
    made.drain()
    seen: list[int] = []

    def look(view: NDArray[Any]) -> None:
        seen.extend(view.tolist())

    made.lanes[0].capture(look, span)
    return seen
