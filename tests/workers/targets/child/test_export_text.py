"""Text from a finding cannot become code in an exported test."""

import ast

import pytest

from workers.targets.child.export.text import comment, docstring, identifier, literal

HOSTILE = (
    '"""; import os; os.system("x"); """',
    '"\\""" + run() + """',
    "\\",
    'ends in a quote"',
    'two ""',
    "a\rimport os",
    "a\nimport os",
    "a\u2028import os\x0cimport os\x00",
    "\\N{BULLET} \\x00 \\",
    '""""""""',
)


@pytest.mark.parametrize("text", HOSTILE)
def test_docstring_of_any_text_is_one_string(text: str) -> None:
    module = ast.parse(docstring(text, "Fails.", f"From {text}."))
    (statement,) = module.body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Constant)
    assert isinstance(statement.value.value, str)


@pytest.mark.parametrize("text", HOSTILE)
def test_comment_and_literal_of_any_text_are_one_line(text: str) -> None:
    assert ast.parse(comment(text)).body == []
    assert literal(text).isprintable()
    assert ast.literal_eval(literal(text)) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_identifier_of_any_name_is_one_word(text: str) -> None:
    assert f"test_{identifier(text, 'vllm_')}".isidentifier()


def test_plain_text_is_unchanged() -> None:
    assert docstring("A title", 'Of "words".') == '"""A title\n\nOf "words".\n"""'
    assert identifier("vllm_min_tokens-bonus", "vllm_") == "min_tokens_bonus"
