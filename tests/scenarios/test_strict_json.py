"""Strict JSON: text that two parsers could read differently is refused."""

import pytest

from scenarios.strict_json import TwiceError, read_json


def test_read_json_returns_the_value() -> None:
    assert read_json(b'{"a": [1, 2.5, null, "\\ud83d\\ude00"], "b": {"a": true}}') == {
        "a": [1, 2.5, None, "\U0001f600"],
        "b": {"a": True},
    }


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '[{"b": 0, "c": {"a": 1, "b": 2, "a": 3}}]', '{"a":1,"\\u0061":2}']
)
def test_read_json_refuses_a_key_that_appears_twice(text: str) -> None:
    with pytest.raises(TwiceError, match='key "a" appears twice; each key goes once'):
        read_json(text.encode())


@pytest.mark.parametrize(
    "content", [b"", b"{", b'"\\ud800"', b'"\xff"', b"[" * 100_000, b"1" * 5000, "{}".encode("utf-16")]
)
def test_read_json_refuses_other_content(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(content)
