"""Edits of a flat YAML file: change some values, and keep all other text."""

import json
import re
from collections.abc import Mapping

import yaml

from scenarios.strict_yaml import OLD_BOOLEANS
from scenarios.visible import is_visible

# A value that needs no quotes: a word, a date or a URL.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|[0-9]{4}-[0-9]{2}-[0-9]{2}|https?://[!-\"$-~]+")


def with_values(text: str, changes: Mapping[str, str | None]) -> str:
    """Return a flat mapping's text with some values changed; None removes a key.

    New keys are appended.
    The caller has read the text with `strict_yaml`. Comments, order and the notation of other values do not change.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "it is a mapping"
    found = {key.value: (key, value) for key, value in root.value}
    for name, (key, value) in reversed(found.items()):
        if name not in changes:
            continue
        wanted, begin, end = changes[name], value.start_mark.index, value.end_mark.index
        if wanted is None:
            line_end = text.find("\n", max(begin, end - 1))
            text = text[: key.start_mark.index] + ("" if line_end < 0 else text[line_end + 1 :])
        else:
            # The end mark of a block scalar is on the line after it, so the replaced text ends with a line break.
            space = "" if begin > 0 and text[begin - 1].isspace() else " "
            text = f"{text[:begin]}{space}{scalar(wanted)}{_tail(text[begin:end])}{text[end:]}"
    new = [f"{name}: {scalar(value)}\n" for name, value in changes.items() if name not in found and value is not None]
    return (f"{text}\n" if text and new and not text.endswith("\n") else text) + "".join(new)


def scalar(value: str) -> str:
    """Return a value as a one-line scalar, quoted unless it is a plain word."""
    if _PLAIN.fullmatch(value) and value.lower() not in (*OLD_BOOLEANS, "null"):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if is_visible(char) else f"\\U{ord(char):08x}" for char in quoted)


def _tail(replaced: str) -> str:
    """Return the trailing white space of a text that is replaced."""
    return replaced[len(replaced.rstrip()) :]
