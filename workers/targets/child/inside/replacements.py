"""Replace attributes of an engine's modules; check that the attributes we use exist.

An engine version that lacks one of these attributes is refused, and the message names it. Otherwise the original would
run silently in place of a replacement, and a missing hook would look like a bug of the engine's scheduler, model runner
or drafter.
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
    """The installed version of the engine lacks an attribute that we replace or wrap."""


@dataclass(frozen=True, slots=True)
class Version:
    """Version of an installed package or, with an overlay, of the overlaid sources.

    `known` are the versions that are supported. The `number` of a checkout has no digits.
    """

    package: str
    number: str
    known: tuple[str, ...]
    over: str = ""

    @property
    def text(self) -> str:
        """The version that runs; with an overlay, also the installed version."""
        return self.number if self.over in ("", self.number) else f"{self.number} over {self.over}"

    def is_at_least(self, since: str) -> bool:
        """Return whether the version is at least `since`.

        Every version is at least an empty one; a checkout is at least any version.
        """
        return not since or not _numbers(self.number) or _numbers(self.number) >= _numbers(since)

    def lacks(self, name: str) -> Unknown:
        """Return an error that says that this version lacks the attribute `name`."""
        return Unknown(f"{self.package} {self.text} has no {name}; supported versions: {', '.join(self.known)}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """One attribute of an engine's module that we replace, with the reason.

    `made` returns the new value, given the old one; `reason` says why. The attribute is replaced only in versions from
    `since` to before `until`: other versions do not need it, or have the attribute elsewhere.
    """

    module: str
    name: str
    reason: str
    made: Callable[[Any], Any]
    since: str = ""
    until: str = ""

    def apply(self, version: Version) -> None:
        """Replace the attribute, unless this version of the engine does not need it.

        Raises:
            Unknown: the version does not have it.
        """
        if not version.is_at_least(self.since) or (self.until and version.is_at_least(self.until)):
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
    """Attributes of a module, or of its class `holder`, that our code uses or wraps.

    `names` are separated by spaces. An attribute of a class may also be one that a method sets. Versions before `since`
    do not have these attributes, and run without the hooks.
    """

    module: str
    holder: str
    names: str
    since: str = ""

    def check(self, version: Version) -> None:
        """Raise if a version that is at least `since` lacks one of the attributes.

        Raises:
            Unknown: it does not have one.
        """
        if not version.is_at_least(self.since):
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
    """Return whether a class has a field `name`, or a method that assigns it."""
    classes = getattr(holder, "__mro__", ())
    if any(name in vars(each).get("__annotations__", ()) for each in classes):
        return True
    functions = (inspect.unwrap(value) for each in classes for value in vars(each).values() if callable(value))
    return any(_stores(function.__code__, name) for function in functions if inspect.isfunction(function))


def _stores(code: CodeType, name: str) -> bool:
    """Return whether a function assigns to an attribute of this name, on any object."""
    # Searching the names first is much faster than disassembling the function.
    if name not in code.co_names:
        return False
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(code))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
