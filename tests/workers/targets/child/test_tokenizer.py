"""Tokenizer with one character per token, also in the text of a grammar."""

import json

from scenarios.codec import loads
from workers.targets.child.inside.tokenizer import character_of, text_of, tokenizer_files

TRACE = """
events:
  - tick: 0
    do: submit
    request: a
    prompt: [1]
    max_tokens: 2
    stop: [7]
    params: {grammar: [[[1, 0], [2, 1]], [[3, 0], [7, 2]], []]}
"""


def test_each_token_has_its_own_character() -> None:
    files = tokenizer_files(130)
    vocabulary = json.loads(files["tokenizer.json"])["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(130))
    assert all(len(character) == 1 for character in vocabulary)


def test_state_with_a_stop_token_may_end_without_its_character() -> None:
    one, two, three = map(character_of, (1, 2, 3))
    root, *states = text_of(loads(TRACE, "x").submits()[0]).splitlines()
    assert root == "root ::= s0"
    assert states == [f's0 ::= "{one}" s0 | "{two}" s1', f's1 ::= "{three}" s0 | ""', 's2 ::= ""']
