"""An edit of a YAML file changes only the given keys; comments, order and other values do not change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios import strict_yaml
from scenarios.yaml_edit import with_values

TEXT = """\
# Seen since June.
bug: counts accepted_read  # as the report gives it

note: >
  Folded,
  over two lines.
status: "suppressed"   # for now
until: 2027-01-31
# The end.
"""


def test_with_values_keeps_other_values_and_comments() -> None:
    assert with_values(TEXT, {}) == TEXT
    changed = with_values(TEXT, {"status": "assigned", "until": None, "to": "A. Person", "bug": "kv: b"})
    assert changed == TEXT.replace('"suppressed"   #', "assigned   #").replace("until: 2027-01-31\n", "").replace(
        "counts accepted_read ", '"kv: b" '
    ) + ('to: "A. Person"\n')


def test_with_values_replaces_or_removes_block_scalar() -> None:
    block = "note: >\n  Folded,\n  over two lines.\n"
    assert with_values(TEXT, {"note": "Short."}) == TEXT.replace(block, 'note: "Short."\n')
    assert with_values(TEXT, {"note": None}) == TEXT.replace(block, "")
    assert with_values("a: b", {"a": None, "c": "d"}) == "c: d\n"
    assert with_values("a: b", {"c": "d"}) == "a: b\nc: d\n"
    assert with_values("a:\nb: c\n", {"a": "d"}) == "a: d\nb: c\n"


@pytest.mark.parametrize(
    "value", ["yes", "null", "", "12", "a: b", "# no", "2027-01-31", "https://a/b?c=1", "two\nlines", "two  spaces"]
)
def test_scalar_is_read_back_as_text(value: str) -> None:
    data, _ = strict_yaml.read(with_values(TEXT, {"note": value, "new": value}), "x")
    assert isinstance(data, dict)
    assert data["note"] == data["new"] == value
    assert data["bug"] == "counts accepted_read"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_scalar_of_any_text_is_one_line_and_read_back(value: str) -> None:
    changed = with_values(TEXT, {"status": value})
    assert len(changed.splitlines()) == len(TEXT.splitlines())
    assert changed.replace("\n", "").isprintable()
    data, _ = strict_yaml.read(changed, "x")
    assert isinstance(data, dict)
    assert data["status"] == value
