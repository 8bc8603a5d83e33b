"""Selection of scenarios by name: words joined by `and`, `or`, `not` and parentheses."""

import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias

Matcher: TypeAlias = Callable[[str], bool]


class SelectionError(ValueError):
    """A selection expression is invalid."""


_PART = re.compile(r"\s*(?:([()])|([^\s()]+))")


def matcher(text: str) -> Matcher:
    """Return a predicate on names; words in the expression match substrings, ignoring case.

    Raises:
        SelectionError: the text is not such an expression.
    """
    parts = [bracket or word for bracket, word in _PART.findall(text)]
    _Reading(text, parts, "").value()
    return lambda name: _Reading(text, parts, name.lower()).value()


class _Reading:
    """Parser that evaluates a selection expression for one scenario name.

    By recursive descent: `or`, then `and`, then `not`.
    """

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
            f"-k is {self._text!r}: {seen} is unexpected; expected words joined by and, or, not, ( and )"
        )

    def _takes(self, wanted: str) -> bool:
        """If the next token is `wanted`, consume it and return True; else return False."""
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
