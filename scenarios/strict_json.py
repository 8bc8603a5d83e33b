"""Strict JSON reader: refuses text that parsers could read in different ways."""

import json
from typing import Any

from pydantic_core import from_json


class TwiceError(ValueError):
    """A key appears twice in a JSON object, of which parsers keep different values."""


def read_json(content: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        TwiceError: a key appears twice in an object.
        ValueError: the text is not JSON, or is nested too deeply.
    """
    if b"\\ud" in content or b"\\uD" in content:
        # Python's own parser accepts half of a surrogate pair; pydantic's parser raises for it.
        from_json(content)
    try:
        return _DECODED(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TwiceError(f"key {_ENCODED(twice[:60])} appears twice; each key goes once")
    return values


# Created at import: an engine that patches the `json` module later changes no message.
_DECODED = json.JSONDecoder(object_pairs_hook=_object).decode
_ENCODED = json.JSONEncoder().encode
