"""Contracts on tokens: each is kept up to its last token, and broken by the next."""

import pytest

from scenarios.events import Abort, NanLogits, Submit
from scenarios.sampling import Output
from tests.workers.judge.contracts.outputs import SPEC, broken, contracts_of, judged, submit_of
from workers.record.evidence import fact

# Two states; the second ends.
GRAMMAR = (((3, 0), (4, 1)), ())
Case = tuple[dict[str, object], tuple[int, ...], str | None, tuple[str, int | None] | None]
CASES: dict[str, Case] = {
    "as long as allowed": ({}, (0, 7, 0, 7), "length", None),
    "one token more": ({}, (0, 1, 2, 3, 4), "length", ("max_tokens", 4)),
    "one token less": ({}, (0, 1, 2), "length", ("max_tokens", 3)),
    "the model's length": ({"prompt": (1,) * 13}, (0, 1, 2), "length", None),
    "past the model's length": ({"prompt": (1,) * 13}, (0, 1, 2, 3), "length", ("max_tokens", 3)),
    "no output": ({}, (), "length", ("max_tokens", 0)),
    "no end": ({}, (0, 1, 2, 3), None, ("answer", None)),
    "the last of the vocabulary": ({}, (7, 7, 7, 7), "length", None),
    "past the vocabulary": ({}, (0, 8, 0, 0), "length", ("vocabulary", 1)),
    "a placeholder": ({}, (0, 0, -1, 0), "length", ("vocabulary", 2)),
    "a stop token": ({"stop": (5, 6)}, (0, 6), "stop", None),
    "a stop token and one more": ({"stop": (5, 6)}, (0, 6, 1), "stop", ("stop", 2)),
    "a stop token and all the rest": ({"stop": (5,)}, (0, 5, 1, 1), "length", ("stop", 2)),
    "a second stop token": ({"stop": (5, 6)}, (6, 5), "stop", ("stop", 1)),
    "a stop token in the prompt": ({"stop": (1,)}, (0, 0, 0, 0), "length", None),
    "a stop without a stop token": ({"stop": (5,)}, (0, 0), "stop", ("stop", 2)),
    "a stop token with reason length": ({"stop": (5,)}, (0, 5), "length", ("finish_reason", 1)),
    "a stop token where the length ends": ({"stop": (5,)}, (0, 0, 0, 5), "stop", None),
    "that with reason length": ({"stop": (5,)}, (0, 0, 0, 5), "length", ("finish_reason", 3)),
    "the length with reason stop": ({"stop": (5,)}, (0, 0, 0, 1), "stop", ("finish_reason", 3)),
    "nobody aborted": ({}, (0, 0), "abort", ("finish_reason", 2)),
    "no reason for an error": ({"bad_words": ((1,),)}, (0, 0), "error", ("finish_reason", 2)),
    "no reason for an error, no masks": ({}, (0, 0), "error", ("finish_reason", 2)),
    "an unheard reason": ({}, (0, 0, 0, 0), "tired", ("finish_reason", 3)),
    "a stop token after the first two": ({"stop": (5,), "min_tokens": 2}, (0, 0, 5), "stop", None),
    "a stop token among the first two": ({"stop": (5,), "min_tokens": 2}, (0, 5), "stop", ("min_tokens", 1)),
    "it does not stop there": ({"stop": (5,), "min_tokens": 2}, (0, 5, 0, 0), "length", ("min_tokens", 1)),
    "tokens that are allowed": ({"allowed_tokens": (3, 4)}, (3, 4, 4, 3), "length", None),
    "a token that is not allowed": ({"allowed_tokens": (3, 4)}, (3, 4, 5, 3), "length", ("allowed_tokens", 2)),
    "parts of a bad word": ({"bad_words": ((3, 4, 5),)}, (4, 5, 3, 4), "length", None),
    "a bad word": ({"bad_words": ((0,), (3, 4, 5))}, (7, 3, 4, 5), "length", ("bad_words", 3)),
    "a bad word of one token": ({"bad_words": ((3, 4), (6,))}, (7, 6, 4, 5), "length", ("bad_words", 1)),
    "a bad word from the prompt on": ({"bad_words": ((1, 2, 3),)}, (3, 0, 0, 0), "length", ("bad_words", 0)),
    "a bad word in the prompt": ({"bad_words": ((1, 2),)}, (3, 0, 0, 0), "length", None),
    "a token that is pushed away": ({"logit_bias": ((3, -100.0),)}, (0, 3, 0, 0), "length", ("logit_bias", 1)),
    "a smaller bias": ({"logit_bias": ((3, -99.0), (4, 99.0))}, (0, 3, 0, 0), "length", None),
    "every token that may come is pushed away": (
        {"logit_bias": ((3, -100.0),), "allowed_tokens": (3,)},
        (3, 3, 3, 3),
        "length",
        None,
    ),
    "tokens that are pulled": ({"logit_bias": ((3, 100.0), (4, 100.0))}, (3, 4, 3, 4), "length", None),
    "another than the one pulled": ({"logit_bias": ((3, 100.0),)}, (3, 3, 4, 3), "length", ("logit_bias", 2)),
    "a token that is pulled and may not come": (
        {"logit_bias": ((3, 100.0),), "bad_words": ((3, 3),)},
        (3, 5, 3, 6),
        "length",
        None,
    ),
    "a mask comes before a bias": (
        {"logit_bias": ((3, 100.0),), "allowed_tokens": (4,)},
        (4, 3, 4, 4),
        "length",
        ("allowed_tokens", 1),
    ),
    "penalties may come to as much": (
        {"logit_bias": ((3, 100.0),), "frequency_penalty": 2.0},
        (4,) * 4,
        "length",
        None,
    ),
    "so may a repetition": ({"logit_bias": ((3, -100.0),), "repetition_penalty": 0.125}, (3,) * 4, "length", None),
    "a high temperature": ({"logit_bias": ((3, 100.0),), "temperature": 8.0}, (4,) * 4, "length", None),
    "a temperature above 1": ({"logit_bias": ((3, 100.0),), "temperature": 1.5}, (4,) * 4, "length", None),
    "a low temperature": ({"logit_bias": ((3, 100.0),), "temperature": 1.0}, (4,) * 4, "length", ("logit_bias", 0)),
    "no token is allowed, with any bias": (
        {"logit_bias": ((4, -100.0),), "allowed_tokens": (3, 4), "bad_words": ((3,),)},
        (),
        "error",
        ("finish_reason", 0),
    ),
    "a grammar to its end": ({"grammar": GRAMMAR}, (3, 3, 4), "stop", None),
    "a grammar cut off": ({"grammar": GRAMMAR}, (3, 3, 3, 3), "length", None),
    "a grammar that ends where the length does": ({"grammar": GRAMMAR}, (3, 3, 3, 4), "stop", None),
    "that grammar with reason length": ({"grammar": GRAMMAR}, (3, 3, 3, 4), "length", ("finish_reason", 3)),
    "a grammar left": ({"grammar": GRAMMAR}, (3, 5, 4), "stop", ("grammar", 1)),
    "past the end of a grammar": ({"grammar": GRAMMAR}, (3, 4, 3), "stop", ("grammar", 2)),
    "a grammar that ends before min_tokens": ({"grammar": GRAMMAR, "min_tokens": 3}, (4,), "stop", None),
    "a stop word at the end": ({"stop_words": ((3, 4),)}, (0, 3, 4), "stop", None),
    "a stop word and one more": ({"stop_words": ((3, 4),)}, (3, 4, 5), "length", ("stop_words", 2)),
    "the second of the list is complete first": ({"stop_words": ((5,), (4,))}, (3, 4, 5), "stop", ("stop_words", 2)),
    "a stop word from the prompt on": ({"stop_words": ((2, 3),)}, (3, 0, 0, 0), "length", None),
    "a stop word among the first two": ({"stop_words": ((3, 4),), "min_tokens": 2}, (3, 4, 0, 0), "length", None),
    "a stop word over the minimum": ({"stop_words": ((3, 4),), "min_tokens": 2}, (0, 3, 4), "stop", None),
    "it does not end there": ({"stop_words": ((3, 4),)}, (0, 3), "stop", ("stop", 2)),
    "a grammar that does not compile": ({"broken_grammar": True}, (), "error", None),
    "a token in spite of it": ({"broken_grammar": True}, (3,), "error", ("broken_grammar", 0)),
    "another end": ({"broken_grammar": True}, (), "length", ("finish_reason", -1)),
    "nothing is left": ({"allowed_tokens": (3,), "bad_words": ((3, 3),)}, (3,), "error", None),
    "something is left": ({"allowed_tokens": (3, 4), "bad_words": ((3, 3),)}, (3,), "error", ("finish_reason", 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_contract_is_kept_or_broken_at_position(case: str) -> None:
    asked, tokens, reason, expected = CASES[case]
    assert broken(submit_of(**asked), Output(tokens, reason)) == expected  # type: ignore[arg-type]


def test_breach_has_expected_and_actual_fact() -> None:
    found = judged(submit_of(stop=(5,), min_tokens=2), Output((0, 5), "stop"))
    assert found is not None
    assert (found.expected, found.actual) == (fact("no_stop_among", count=2), fact("token", token=5))
    for bias, demand in ((100.0, "a_pulled_token"), (-100.0, "no_pushed_token")):
        found = judged(submit_of(logit_bias=((3, bias),)), Output((3 if bias < 0 else 4,), "length"))
        assert found is not None
        assert found.expected == fact(demand)
    found = judged(submit_of(), Output((0, 8), "stop"))
    assert found is not None
    assert (found.expected, found.actual) == (fact("of_vocabulary", last=7), fact("token", token=8))


def test_bad_word_begins_in_prompt_if_engine_says_so() -> None:
    submit, output = submit_of(bad_words=((2, 3),)), Output((3, 0, 2, 3), "length")
    first, later = (judged(submit, output, words_from_prompt=means) for means in (True, False))
    assert first is not None
    assert later is not None
    assert (first.position, later.position) == (0, 3)


def test_masks_do_not_apply_with_synthetic_acceptance() -> None:
    spec = SPEC.model_copy(update={"sampling": "synthetic", "synthetic_rates": (0.5,)})
    for asked in ({"allowed_tokens": (3,)}, {"bad_words": ((4,),)}, {"stop": (6,), "min_tokens": 3}):
        submit = submit_of(**asked)
        assert broken(submit, Output((4, 3, 3, 3), "length"), spec) is None
        assert broken(submit, Output((3, 3, 3, 8), "length"), spec) == ("vocabulary", 3)


@pytest.mark.parametrize(
    ("tokens", "reason", "expected"),
    [
        ((0,), "error", None),
        ((0,), "stop", ("stop", 1)),
        ((0, 0, 0, 0), "length", None),
        ((0, 0, 0, 0), "error", ("finish_reason", 3)),
    ],
)
def test_spoiled_logits_allow_only_reason_error(
    tokens: tuple[int, ...], reason: str, expected: tuple[str, int] | None
) -> None:
    submit = submit_of()
    contracts = contracts_of(submit, NanLogits(tick=1, request="a"))
    contracts.submitted(submit, None, None)
    found = contracts.first_breach({"a": Output(tokens, reason)})
    assert (None if found is None else (found.contract, found.position)) == expected


def given_up(had: Output, has: Output, max_tokens: int = 4) -> tuple[str, int | None] | None:
    """Return the contract that an aborted request violates, given its outputs at abort and end."""
    submit, contracts = submit_of(max_tokens=max_tokens, stop=(5,)), contracts_of()
    contracts.submitted(submit, None, None)
    contracts.aborted(Abort(tick=1, request="a"), had)
    found = contracts.first_breach({"a": has})
    return None if found is None else (found.contract, found.position)


def test_aborted_request_keeps_tokens_and_reason_abort() -> None:
    assert given_up(Output((0, 1), None), Output((0, 1), "abort")) is None
    assert given_up(Output((), None), Output((), "abort")) is None
    assert given_up(Output((0, 1), None), Output((0, 1, 2), "abort")) == ("abort", 2)
    assert given_up(Output((0, 1), None), Output((0,), "abort")) == ("abort", 2)
    assert given_up(Output((0, 1), None), Output((0, 1), "stop")) == ("abort", 2)
    assert given_up(Output((0,), None), Output((0, 5), "stop")) == ("abort", 1)
    assert given_up(Output((0,), None), Output((0, 1, 2, 3), "length")) == ("abort", 1)


def test_abort_after_end_keeps_reason() -> None:
    assert given_up(Output((0, 5), "stop"), Output((0, 5), "stop")) is None
    assert given_up(Output((0, 5), "stop"), Output((0, 5), "abort")) == ("finish_reason", 1)


def test_each_request_is_checked_with_its_own_parameters() -> None:
    one, other = submit_of(stop=(5,)), submit_of(stop=(6,)).model_copy(update={"request": "b"})
    contracts = contracts_of()
    for submit in (one, other):
        contracts.submitted(submit, None, None)
    found = contracts.first_breach({"a": Output((0, 5), "stop"), "b": Output((0, 5), "stop")})
    assert found is not None
    assert (found.contract, found.request) == ("stop", "b")


def test_missing_output_and_unknown_output_are_breaches() -> None:
    submit = submit_of()
    assert broken(submit, None) == ("answer", None)
    contracts = contracts_of()
    contracts.submitted(submit, None, None)
    outputs = {"a": Output((0, 0, 0, 0), "length"), "z": Output((), None)}
    found = contracts.first_breach(outputs)
    assert found is not None
    assert (found.contract, found.request) == ("answer", "z")


def test_contracts_require_explicit_prompt() -> None:
    assert isinstance(submit_of(), Submit)
    with pytest.raises(AssertionError, match="explicit"):
        judged(
            Submit.model_validate({"tick": 0, "request": "a", "prompt": {"tokens": 2}, "max_tokens": 1}),
            Output((0,), "length"),
        )


@pytest.mark.parametrize(
    ("prompt", "tokens", "reason", "expected"),
    [
        ((1, 2), (6, 4, 5, 3, 4), "stop", None),
        ((1, 2), (6, 4, 6, 4, 6, 4), "length", None),
        ((1, 2), (6, 5, 6, 4), "stop", ("grammar", 2)),
        ((1, 2), (5, 4), "stop", None),
        ((1, 2), (4, 5), "stop", ("stop", 2)),
        ((1, 5), (3, 4), "stop", None),
        ((1, 5), (6, 4), "stop", ("grammar", 0)),
        ((1, 2), (5, 3, 5), "length", ("grammar", 2)),
    ],
)
def test_grammar_applies_after_reasoning_end(
    prompt: tuple[int, ...], tokens: tuple[int, ...], reason: str, expected: tuple[str, int] | None
) -> None:
    spec = SPEC.model_copy(update={"reasoning_end": 5})
    submit = submit_of(prompt=prompt, max_tokens=6, grammar=GRAMMAR)
    assert broken(submit, Output(tokens, reason), spec) == expected


def test_no_repeats_forbids_equal_consecutive_tokens() -> None:
    submit = submit_of(prompt=(1, 2), no_repeats=True)
    assert broken(submit, Output((2, 3, 2, 3), "length")) is None
    assert broken(submit, Output((2, 3, 3, 2), "length")) == ("no_repeats", 2)
    assert broken(submit_of(), Output((2, 3, 3, 2), "length")) is None


STOPS: dict[str, tuple[dict[str, object], Output, str | None]] = {
    "the stop token": ({"stop": (5, 6)}, Output((0, 6), "stop", stop_reason=6), None),
    "another stop token": ({"stop": (5, 6)}, Output((0, 6), "stop", stop_reason=5), "stop_reason"),
    "no reason for a stop token": ({"stop": (5,)}, Output((0, 5), "stop", stop_reason=()), "stop_reason"),
    "none delivered": ({"stop": (5,)}, Output((0, 5), "stop"), None),
    "no stop": ({"stop": (5,)}, Output((0,) * 4, "length", stop_reason=()), None),
    "a stop token at the length": ({"stop": (5,)}, Output((0,) * 4, "length", stop_reason=5), "stop_reason"),
    "a stop word": ({"stop_words": ((7,), (3, 4))}, Output((0, 3, 4), "stop", stop_reason=(3, 4)), None),
    "another stop word": ({"stop_words": ((7,), (3, 4))}, Output((3, 4), "stop", stop_reason=(7,)), "stop_reason"),
    "a token for a word": ({"stop_words": ((4,),)}, Output((3, 4), "stop", stop_reason=4), "stop_reason"),
    "both": ({"stop": (4,), "stop_words": ((3, 4),)}, Output((3, 4), "stop", stop_reason=(3, 4)), None),
    "the end of a grammar": ({"grammar": GRAMMAR}, Output((3, 4), "stop", stop_reason=4), None),
    "all of the text": ({}, Output((0,) * 4, "length", text=(0,) * 4), None),
    "less text": ({}, Output((0,) * 4, "length", text=(0,) * 3), "text"),
    "other text": ({}, Output((0,) * 4, "length", text=(0, 0, 1, 0)), "text"),
    "text with the word": ({"stop_words": ((3, 4),)}, Output((0, 3, 4), "stop", text=(0, 3, 4)), None),
    "text without the word": ({"stop_words": ((3, 4),)}, Output((0, 3, 4), "stop", text=(0,)), "text"),
}
WITHOUT: dict[str, tuple[dict[str, object], Output, str | None]] = {
    "text without the word": ({"stop_words": ((3, 4),)}, Output((0, 3, 4), "stop", text=(0,)), None),
    "text with the word": ({"stop_words": ((3, 4),)}, Output((0, 3, 4), "stop", text=(0, 3, 4)), "text"),
    "text without the stop token": ({"stop": (5,)}, Output((0, 5), "stop", text=(0,)), None),
    "text with the stop token": ({"stop": (5,)}, Output((0, 5), "stop", text=(0, 5)), "text"),
    "no stop": ({"stop": (5,)}, Output((0,) * 4, "length", text=(0,) * 4), None),
}


@pytest.mark.parametrize("case", STOPS)
def test_stop_reason_and_text_follow_from_request_and_tokens(case: str) -> None:
    asked, output, contract = STOPS[case]
    assert getattr(judged(submit_of(**asked), output), "contract", None) == contract  # type: ignore[arg-type]


@pytest.mark.parametrize("case", WITHOUT)
def test_text_without_stop_string_lacks_final_stop_word(case: str) -> None:
    asked, output, contract = WITHOUT[case]
    submit = submit_of(include_stop_str_in_output=False, **asked)  # type: ignore[arg-type]
    assert getattr(judged(submit, output), "contract", None) == contract


def test_text_of_aborted_request_may_end_early() -> None:
    submit, before = submit_of(), Output((0, 1), None)
    for text, contract in (((0,), None), ((1,), "text")):
        contracts = contracts_of(submit)
        contracts.submitted(submit, None, before)
        contracts.aborted(Abort(tick=1, request="a"), before)
        found = contracts.first_breach({"a": Output((0, 1), "abort", text=text)})
        assert getattr(found, "contract", None) == contract


def test_output_with_more_keeps_stop_reason_and_joins_text() -> None:
    first, last = Output((1,), None, text=()), Output((2,), "stop", stop_reason=2, text=(1,))
    assert first.with_more(last) == Output((1, 2), "stop", stop_reason=2, text=(1,))
    assert last.with_more(Output((), None)) == last
