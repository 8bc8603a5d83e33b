"""Selection of scenarios by name: words joined by `and`, `or`, `not` and parentheses, as test runners have it."""

import re
from collections.abc import Callable
from typing import TypeAlias

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
    parser = _Parser(text, parts)
    found = parser.either()
    if parser.next() is not None:
        raise parser.error()
    return found


class _Parser:
    """Recursive descent: `or` binds least, then `and`, then `not`."""

    def __init__(self, text: str, parts: list[str]) -> None:
        self._text = text
        self._parts = parts
        self._at = 0

    def next(self) -> str | None:
        """Return the part that comes next, None at the end."""
        return self._parts[self._at] if self._at < len(self._parts) else None

    def error(self) -> SelectionError:
        """Return the error at the next part."""
        seen = "its end" if self.next() is None else repr(self.next())
        return SelectionError(
            f"-k is {self._text!r}: {seen} is unexpected; wanted words joined by and, or, not, ( and )"
        )

    def either(self) -> Matcher:
        """Parse alternatives, joined by `or`."""
        found = self._both()
        while self.next() == "or":
            self._at += 1
            found = _either(found, self._both())
        return found

    def _both(self) -> Matcher:
        found = self._one()
        while self.next() == "and":
            self._at += 1
            found = _both(found, self._one())
        return found

    def _one(self) -> Matcher:
        part = self.next()
        if part in (None, "and", "or", ")"):
            raise self.error()
        assert part is not None
        self._at += 1
        if part == "not":
            inner = self._one()
            return lambda name: not inner(name)
        if part == "(":
            inner = self.either()
            if self.next() != ")":
                raise self.error()
            self._at += 1
            return inner
        return lambda name: part.lower() in name.lower()


def _either(first: Matcher, second: Matcher) -> Matcher:
    return lambda name: first(name) or second(name)


def _both(first: Matcher, second: Matcher) -> Matcher:
    return lambda name: first(name) and second(name)
