"""Grammars of requests as xgrammar takes them: text over a vocabulary in which each token is one character.

So a grammar over characters is one over tokens, and the tokenizer that goes with a model says which is which.
"""

from scenarios.events import Submit
from workers.targets.child.inside.tokenizer import character_of

ROOT = "root"
# A grammar that does not compile: its rule is of one that there is not.
BROKEN = f"{ROOT} ::= nowhere"


def text_of(event: Submit) -> str:
    """Return the grammar of a request as EBNF, in which the stop tokens of the request are no characters.

    Where one may come, the text may end: behind that an engine lets stop tokens come, and nothing else end it.
    """
    rules = [f"{ROOT} ::= s0"]
    for state, edges in enumerate(event.params.grammar):
        going_on = [f'"{character_of(token)}" s{to}' for token, to in edges if token not in event.stop]
        ends = ['""'] if len(going_on) < len(edges) or not edges else []
        rules.append(f"s{state} ::= {' | '.join(going_on + ends)}")
    return "\n".join(rules)
