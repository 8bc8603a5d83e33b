"""A fault replaces one part of an engine by a function with the part's signature."""

from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any, get_type_hints

import pytest

from workers.engine.functions import EngineFunctions
from workers.faults.registry import FAULTS
from workers.targets.devices import CLEAN


def taken_by(function: Any) -> list[Any]:
    """Return the types of a function's parameters, in order."""
    hints = get_type_hints(function)
    return [hints[name] for name in signature(function).parameters]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_fault_replaces_one_part_with_the_same_signature(name: str) -> None:
    faulty = FAULTS[name].apply(CLEAN, lambda: None)
    (replaced,) = (
        each.name for each in fields(EngineFunctions) if getattr(faulty, each.name) is not getattr(CLEAN, each.name)
    )
    made = getattr(faulty, replaced)
    taken = taken_by(made.func)[2:] if isinstance(made, partial) else taken_by(made)
    assert taken == taken_by(getattr(CLEAN, replaced))
