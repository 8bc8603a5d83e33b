"""Tokenizer of a model: every token is one character."""

import json

from workers.targets.child.inside.tokenizer import tokenizer_files


def test_every_token_of_a_tokenizer_is_a_character_of_its_own() -> None:
    files = tokenizer_files(130)
    vocabulary = json.loads(files["tokenizer.json"])["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(130))
    assert all(len(character) == 1 for character in vocabulary)
