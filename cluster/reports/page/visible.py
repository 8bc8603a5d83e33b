"""Visible text: characters that cannot be seen, or that turn the direction of text around, are written out."""

import re
from unicodedata import category

_SUSPECT = re.compile("[^\\t\\n -~]")
# Controls, formats, halves of characters, private and unassigned ones, breaks of lines and paragraphs.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Letters and marks that show nothing: joiners, fillers, selectors of variants.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")


def visible_text(text: str) -> str:
    """Return a text with invisible characters as escapes, fit for HTML, XML and a terminal."""
    return _SUSPECT.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    char = match[0]
    if category(char) not in _INVISIBLE and _BLANK.match(char) is None:
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
