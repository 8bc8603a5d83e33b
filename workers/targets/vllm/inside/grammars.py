"""Grammars of requests as vLLM takes them: text over a vocabulary in which each token is one character.

So a grammar over characters is one over tokens, and the tokenizer that goes with a model says which is which.
"""

import json
from collections.abc import Mapping
from typing import Any

from scenarios.events import Submit

# A range of letters without white space, controls or what combines with its neighbour.
_FIRST = 0x4E00
ROOT = "root"
# A grammar that does not compile: its rule is of one that there is not.
BROKEN = f"{ROOT} ::= nowhere"


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


def text_of(event: Submit) -> str:
    """Return the grammar of a request as EBNF, in which the stop tokens of the request are no characters.

    Where one may come, the text may end: behind that vLLM lets stop tokens come, and nothing else end it.
    """
    rules = [f"{ROOT} ::= s0"]
    for state, edges in enumerate(event.params.grammar):
        going_on = [f'"{character_of(token)}" s{to}' for token, to in edges if token not in event.stop]
        ends = ['""'] if len(going_on) < len(edges) or not edges else []
        rules.append(f"s{state} ::= {' | '.join(going_on + ends)}")
    return "\n".join(rules)
