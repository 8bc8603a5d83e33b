"""Names of an engine that are replaced from outside, or hooked: a version that lacks one is refused by that name.

What is replaced for a reason must not silently run as it is, and what is hooked by a name that is gone would look like
a mistake of the engine's.
"""

import dis
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import CodeType
from typing import Any


class Unknown(Exception):
    """A version of an engine that lacks a name that we replace or hook."""


@dataclass(frozen=True, slots=True)
class Version:
    """A package that is installed, or sources of it laid `over` that version; and those that were seen to run.

    A checkout's `number` is no number.
    """

    package: str
    number: str
    known: tuple[str, ...]
    over: str = ""

    @property
    def text(self) -> str:
        """What runs: the version, and the one that its compiled code is of, if that is another."""
        return self.number if self.over in ("", self.number) else f"{self.number} over {self.over}"

    def has(self, since: str) -> bool:
        """Tell whether it is as new as a version; all are as new as none, and a checkout as new as any."""
        return not since or not _numbers(self.number) or _numbers(self.number) >= _numbers(since)

    def lacks(self, name: str) -> Unknown:
        """Return the refusal for a name."""
        return Unknown(f"{self.package} {self.text} has no {name}; known are {', '.join(self.known)}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """One name, `module` and a path of attributes in it: why it is replaced, and by what made of what it was.

    Versions before `since` have no such name, and nothing that it would be replaced for, or have it elsewhere; so do
    those from `until` on.
    """

    module: str
    name: str
    reason: str
    made: Callable[[Any], Any]
    since: str = ""
    until: str = ""

    def apply(self, version: Version) -> None:
        """Replace it in a version that is to have it.

        Raises:
            Unknown: the version lacks it.
        """
        if not version.has(self.since) or (self.until and version.has(self.until)):
            return
        *path, last = self.name.split(".")
        try:
            holder = import_module(self.module)
            for part in path:
                holder = getattr(holder, part)
            before = getattr(holder, last)
        except (ImportError, AttributeError) as error:
            raise version.lacks(f"{self.module}.{self.name}") from error
        setattr(holder, last, self.made(before))


@dataclass(frozen=True, slots=True)
class Hooks:
    """Names that are wrapped, overridden, called or read: those of a module, or of a class in it.

    `names` have spaces between them. Of a class they are its attributes, or those that one of its methods sets.
    Versions before `since` have no such names, and run without what is hooked by them.
    """

    module: str
    holder: str
    names: str
    since: str = ""

    def check(self, version: Version) -> None:
        """Check that every name is there in a version that is to have them.

        Raises:
            Unknown: the version lacks one.
        """
        if not version.has(self.since):
            return
        holder: Any
        try:
            holder = import_module(self.module)
        except ImportError as error:
            raise version.lacks(self.module) from error
        place = self.module
        if self.holder:
            place = f"{self.module}.{self.holder}"
            holder = getattr(holder, self.holder, None)
            if holder is None:
                raise version.lacks(place)
        for name in self.names.split():
            if not hasattr(holder, name) and not _sets(holder, name):
                raise version.lacks(f"{place}.{name}")


def _sets(holder: Any, name: str) -> bool:
    """Tell whether a class has a field of a name, or a method that sets an attribute of that name."""
    classes = getattr(holder, "__mro__", ())
    if any(name in vars(each).get("__annotations__", ()) for each in classes):
        return True
    functions = (inspect.unwrap(value) for each in classes for value in vars(each).values() if callable(value))
    return any(_stores(function.__code__, name) for function in functions if inspect.isfunction(function))


def _stores(code: CodeType, name: str) -> bool:
    """Tell whether a function sets an attribute of a name, of whatever object."""
    # Taking a function apart takes long beside looking for a name in it.
    if name not in code.co_names:
        return False
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(code))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
