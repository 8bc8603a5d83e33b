"""Visible text: characters that cannot be seen, or that turn the direction of text around, are written out."""

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def visible_text(text: str) -> str:
    """Return a text with invisible characters as escapes, fit for HTML, XML and a terminal."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
