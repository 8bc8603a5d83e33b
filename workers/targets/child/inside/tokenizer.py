"""Tokenizer of a model, each token of which is one character, and grammars over characters as xgrammar reads them."""

import json
from collections.abc import Mapping
from typing import Any

from scenarios.events import Submit

# A range of letters without white space, control characters and combining characters.
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


ROOT = "root"
# A grammar that does not compile: it refers to a rule that does not exist.
BROKEN = f"{ROOT} ::= nowhere"


def text_of(event: Submit) -> str:
    """Return the grammar of a request as EBNF, in which the stop tokens of the request are no characters.

    Where the grammar allows a stop token, the text may end; an engine then allows only stop tokens.
    """
    rules = [f"{ROOT} ::= s0"]
    for state, edges in enumerate(event.params.grammar):
        going_on = [f'"{character_of(token)}" s{to}' for token, to in edges if token not in event.stop]
        ends = ['""'] if len(going_on) < len(edges) or not edges else []
        rules.append(f"s{state} ::= {' | '.join(going_on + ends)}")
    return "\n".join(rules)
