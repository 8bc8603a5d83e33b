"""Tokenizer that goes with a model: each of its tokens is one character."""

import json
from collections.abc import Mapping
from typing import Any

# A range of letters without white space, controls or what combines with its neighbour.
_FIRST = 0x4E00


def character_of(token: int) -> str:
    """Return the text of a token."""
    return chr(_FIRST + token)


def token_of(character: str) -> int:
    """Return the token whose text is a character."""
    return ord(character) - _FIRST


def tokenizer_files(vocab_size: int) -> Mapping[str, str]:
    """Return the files of a tokenizer that makes a token of each character, by name."""
    vocabulary = {character_of(token): token for token in range(vocab_size)}
    tokenizer: dict[str, Any] = {"version": "1.0", "added_tokens": []}
    tokenizer |= dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    # Without one there would be spaces between tokens.
    tokenizer["decoder"] = {"type": "Fuse"}
    tokenizer["model"] = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {
        "tokenizer.json": json.dumps(tokenizer),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}),
    }
