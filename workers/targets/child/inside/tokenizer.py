"""Tokenizer with one character per token, and grammars of these characters for xgrammar."""

import json
from collections.abc import Mapping
from typing import Any

from scenarios.events import Submit

# Start of a Unicode range of letters: no white space, control or combining characters.
_FIRST = 0x4E00


def character_of(token: int) -> str:
    """Return the character of a token."""
    return chr(_FIRST + token)


def token_of(character: str) -> int:
    """Return the token of a character."""
    return ord(character) - _FIRST


def tokenizer_files(vocab_size: int) -> Mapping[str, str]:
    """Return the files of a tokenizer with one character for each token, by file name."""
    vocabulary = {character_of(token): token for token in range(vocab_size)}
    tokenizer: dict[str, Any] = {"version": "1.0", "added_tokens": []}
    tokenizer |= dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    # Without this decoder, decoded text would have spaces between tokens.
    tokenizer["decoder"] = {"type": "Fuse"}
    tokenizer["model"] = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {
        "tokenizer.json": json.dumps(tokenizer),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}),
    }


ROOT = "root"
# A grammar that does not compile: it refers to a rule that does not exist.
BROKEN = f"{ROOT} ::= nowhere"


def text_of(event: Submit) -> str:
    """Return a request's grammar as EBNF text for xgrammar, without edges of its stop tokens.

    In a state that allows a stop token the text may end; an engine then allows only stop tokens as the next output
    token.
    """
    rules = [f"{ROOT} ::= s0"]
    for state, edges in enumerate(event.params.grammar):
        continuing = [f'"{character_of(token)}" s{to}' for token, to in edges if token not in event.stop]
        ends = ['""'] if len(continuing) < len(edges) or not edges else []
        rules.append(f"s{state} ::= {' | '.join(continuing + ends)}")
    return "\n".join(rules)
