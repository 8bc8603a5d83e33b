"""Visible text: all output functions escape the same characters, those that a reader cannot see."""

import json
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.visible import is_visible, visible_data, visible_json, visible_line, visible_text

# Unicode 15, DerivedCoreProperties.txt: Default_Ignorable_Code_Point, as ranges.
IGNORABLE = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
# Explicit marks, embeddings, overrides and isolates of the bidirectional algorithm.
BIDIRECTIONAL = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("é 猫 → ─ 🐈", "é 猫 → ─ 🐈"),
        ("\x1b[2J\x07\r\x9b", r"\x1b[2J\x07\r\x9b"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("\u3164\u034f\U000e0041\u2800\ufe0f", r"\u3164\u034f\U000e0041\u2800\ufe0f"),
        ("\ud800\ufeff\u00a0\u2003", r"\ud800\ufeff\xa0\u2003"),
    ],
)
def test_visible_line_writes_hidden_characters_as_escapes(text: str, shown: str) -> None:
    assert visible_line(text) == visible_text(text) == shown
    assert is_visible(text) is (text == shown)


def test_visible_line_is_one_line_and_visible_text_keeps_lines() -> None:
    assert visible_line("a\nb\r\nc\u2028d\x85e") == r"a\nb\r\nc\u2028d\x85e"
    assert visible_text("a\nb\r\nc\u2028d") == "a\nb\\r\nc\\u2028d"
    assert not is_visible("a\nb")


def test_no_ignorable_or_bidirectional_character_is_visible() -> None:
    ignorable = [chr(code) for first, last in IGNORABLE for code in range(first, last + 1)]
    assert [char for char in [*ignorable, *map(chr, BIDIRECTIONAL)] if is_visible(char)] == []


def test_every_visible_character_is_printable_and_has_no_hidden_category() -> None:
    shown = [chr(code) for code in range(sys.maxunicode + 1) if is_visible(chr(code))]
    assert {category(char)[0] for char in shown} <= set("LMNPSZ")
    assert all(char.isprintable() for char in shown)
    assert all(is_visible(visible_line(char)) for char in map(chr, range(0x3000)))


@given(st.text())
def test_visible_json_keeps_values_and_hides_no_character(text: str) -> None:
    document = json.dumps({"value": text}, indent=2, ensure_ascii=False)
    escaped = visible_json(document)
    assert json.loads(escaped) == {"value": text}
    assert all(map(is_visible, escaped.split("\n")))


def test_visible_data_reaches_keys_and_nested_texts() -> None:
    assert visible_data({"a\x1b": [1, None, {"b": "\u202e"}]}) == {r"a\x1b": [1, None, {"b": r"\u202e"}]}
