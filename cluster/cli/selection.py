"""Selection of scenarios by name: words joined by `and`, `or`, `not` and parentheses, as test runners have it."""

import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias

Matcher: TypeAlias = Callable[[str], bool]


class SelectionError(ValueError):
    """An expression of words cannot be read."""


_PART = re.compile(r"\s*(?:([()])|([^\s()]+))")


def matcher(text: str) -> Matcher:
    """Return a predicate of names from an expression; a word matches names that contain it, whatever the case.

    Raises:
        SelectionError: the text is no such expression.
    """
    parts = [bracket or word for bracket, word in _PART.findall(text)]
    _Reading(text, parts, "").value()
    return lambda name: _Reading(text, parts, name.lower()).value()


class _Reading:
    """Value of an expression for a name, by recursive descent: `or` binds least, then `and`, then `not`."""

    def __init__(self, text: str, parts: list[str], name: str) -> None:
        self._text = text
        self._left = parts[::-1]
        self._name = name

    def value(self) -> bool:
        found = self._either()
        return found if not self._left else self._fail()

    def _fail(self) -> NoReturn:
        seen = repr(self._left[-1]) if self._left else "its end"
        raise SelectionError(
            f"-k is {self._text!r}: {seen} is unexpected; wanted words joined by and, or, not, ( and )"
        )

    def _takes(self, wanted: str) -> bool:
        """Take the next part if it is this one."""
        is_next = self._left[-1:] == [wanted]
        if is_next:
            self._left.pop()
        return is_next

    def _either(self) -> bool:
        found = self._both()
        while self._takes("or"):
            found |= self._both()
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._takes("and"):
            found &= self._one()
        return found

    def _one(self) -> bool:
        if self._takes("not"):
            return not self._one()
        if self._takes("("):
            found = self._either()
            return found if self._takes(")") else self._fail()
        if not self._left or self._left[-1] in ("and", "or", ")"):
            self._fail()
        return self._left.pop().lower() in self._name
