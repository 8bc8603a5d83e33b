"""Visible text: escape characters that a reader cannot see, or that reorder text.

Verifies: characters in hidden categories of `unicodedata`, or with Unicode's property Default_Ignorable_Code_Point.
Does not verify: that two different letters look different.
"""

import re
from typing import TypeVar
from unicodedata import category

_SUSPECT = re.compile(r"[^\n -~]")
# Control, format (including text direction), surrogate, private-use and unassigned characters; separators but " ".
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
# Characters displayed as nothing: Default_Ignorable_Code_Point outside `_HIDDEN`, and the Braille blank.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

Data = TypeVar("Data")


def is_visible(text: str) -> bool:
    """Return whether a text is one line in which every character is visible as it is."""
    return "\n" not in text and all(_is_seen(match[0]) for match in _SUSPECT.finditer(text))


def visible_text(text: str) -> str:
    """Return a text with hidden characters as escapes; line breaks stay."""
    return _SUSPECT.sub(lambda match: match[0] if _is_seen(match[0]) else _escape(match[0]), text)


def visible_line(text: str) -> str:
    """Return a text as one line, with line breaks and hidden characters as escapes."""
    return visible_text(text).replace("\n", "\\n")


def visible_json(text: str) -> str:
    """Return a JSON document of equal values with hidden characters as JSON escapes."""
    return _SUSPECT.sub(lambda match: match[0] if _is_seen(match[0]) else _json_escape(match[0]), text)


def visible_data(data: Data) -> Data:
    """Return nested lists and dicts with `visible_text` applied to every string and every key."""
    match data:
        case str():
            return visible_text(data)  # type: ignore[return-value]  # a str is returned for a str
        case dict():
            return {visible_data(key): visible_data(value) for key, value in data.items()}  # type: ignore[return-value]
        case list():
            return [visible_data(each) for each in data]  # type: ignore[return-value]
        case _:
            return data


def _is_seen(char: str) -> bool:
    return category(char) not in _HIDDEN and _BLANK.match(char) is None


def _escape(char: str) -> str:
    if char.isprintable():
        return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
    return char.encode("unicode_escape", "surrogatepass").decode()


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
