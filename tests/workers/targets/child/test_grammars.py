"""Grammars as xgrammar takes them: the text of one."""

from scenarios.codec import loads
from workers.targets.child.inside.grammars import text_of
from workers.targets.child.inside.tokenizer import character_of

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


def test_a_state_that_stops_may_end_and_a_stop_token_is_no_character() -> None:
    one, two, three = map(character_of, (1, 2, 3))
    root, *states = text_of(loads(TRACE, "x").submits()[0]).splitlines()
    assert root == "root ::= s0"
    assert states == [f's0 ::= "{one}" s0 | "{two}" s1', f's1 ::= "{three}" s0 | ""', 's2 ::= ""']
