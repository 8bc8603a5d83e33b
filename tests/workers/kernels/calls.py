"""Calls of ops with arguments by name, from which the op's argument object is made."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from workers.lanes.lane import Mode
from workers.lanes.prepared import op_of

Op: TypeAlias = Callable[[Any], None]


def modes_of(op: Op) -> Mapping[str, Mode]:
    """Return how an op uses each of its arguments, in order."""
    return dict(op_of(op).modes)


def run(op: Op, **arguments: Any) -> None:
    """Call an op with these arguments."""
    takes: Any = op_of(op).arguments
    op(takes(**arguments))
