"""Functions and blocks of a source, and the differences between two versions."""

import pytest

from workers.edits.functions import MODULE, edits_of, functions_of

SOURCE = '''
import os

LIMIT = 1

class Scheduler:
    """A docstring."""

    def schedule(self, requests):
        """Another docstring."""
        if requests:
            first = 1
        else:
            first = 2
        for request in requests:
            first += 1

        def order(request):
            return request

        return order(first)

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        pass


@triton.jit
def kernel(pointer):
    pass


@numba.njit(cache=True)
def looked_up(tokens):
    return tokens
'''


def test_functions_of_nested_and_repeated_names_are_distinct() -> None:
    functions = functions_of(SOURCE)
    assert list(functions) == [
        "Scheduler.schedule",
        "Scheduler.schedule.<locals>.order",
        "Scheduler.size",
        "Scheduler.size#2",
        "kernel",
        "looked_up",
    ]
    assert [len(each.blocks) for each in functions.values()] == [4, 1, 1, 1, 1, 1]
    compiled = {name: (bool(each.compiled_by), each.is_kernel) for name, each in functions.items() if each.compiled_by}
    assert compiled == {"kernel": (True, True), "looked_up": (True, False)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("first = 2", "first = 3", {"Scheduler.schedule": {2}}),
        ("first = 2", "first = 2\n            first = 3", {"Scheduler.schedule": {2}}),
        ("first = 2", "first = 2\n        last = 3", {"Scheduler.schedule": {0}}),
        ("if requests:", "if not requests:", {"Scheduler.schedule": {0}}),
        (
            "            first += 1\n",
            "            if first:\n                first += 1\n",
            {"Scheduler.schedule": {3}},
        ),
        ("(self, requests)", "(self, requests=())", {"Scheduler.schedule": {0}}),
        ("return request\n", "return -request\n", {"Scheduler.schedule.<locals>.order": {0}}),
        ("        pass\n\n\n@triton", "        self.n = 1\n\n\n@triton", {"Scheduler.size#2": {0}}),
        ("LIMIT = 1", "LIMIT = 2", {MODULE: {0}}),
        ("class Scheduler:", "class Scheduler:\n    depth: int = 2", {MODULE: {0}}),
        ("    @property", "    def more(self):\n        pass\n\n    @property", {"Scheduler.more": {0}}),
        ('"""Another docstring."""', '"""The same."""  # a comment', {}),
    ],
)
def test_edit_names_its_function_and_its_blocks(before: str, after: str, expected: dict[str, set[int]]) -> None:
    assert SOURCE.count(before) == 1
    edits = edits_of("a.py", SOURCE, SOURCE.replace(before, after))
    assert {edit.function: set(edit.blocks) for edit in edits} == expected


def test_renamed_function_is_gone_and_new() -> None:
    without = SOURCE.replace("def looked_up", "def found")
    assert [(edit.function, edit.change, edit.is_compiled) for edit in edits_of("a.py", SOURCE, without)] == [
        ("looked_up", "gone", False),
        ("found", "new", True),
    ]
    assert {edit.change for edit in edits_of("a.py", None, SOURCE)} == {"new", "changed"}
    assert {edit.change for edit in edits_of("a.py", SOURCE, None)} == {"gone", "changed"}


@pytest.mark.parametrize("wrong", ["def (", "a = 1\x00"])
def test_source_that_is_not_python_differs_as_a_whole(wrong: str) -> None:
    assert [edit.function for edit in edits_of("a.py", SOURCE, wrong)] == [MODULE]
