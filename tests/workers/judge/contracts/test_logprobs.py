"""Contracts on logprobs: correct logprobs keep all of them, each change breaks one."""

from math import exp, inf, log, nan
from typing import Any

import pytest

from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from tests.workers.judge.contracts.outputs import SPEC, broken, judged, submit_of
from workers.record.words import shown_text

PROCESSED = SPEC.model_copy(update={"logprobs_mode": "processed"})
# Logits of eight tokens; the most likely are 7, 6, 5 and so on.
LOGITS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)


def logprobs_of(token: int, count: int, logits: tuple[float, ...] = LOGITS) -> tuple[int | float, ...]:
    """Return `count` token ids with logprobs: first the given token, then the most likely."""
    total = log(sum(map(exp, logits)))
    likeliest = sorted(range(len(logits)), key=lambda each: (-logits[each], each))
    return tuple(value for each in (token, *likeliest[: count - 1]) for value in (each, logits[each] - total))


def reported(*tokens: int, count: int = 3, logits: tuple[float, ...] = LOGITS) -> Output:
    return Output(tokens, "length", tuple(value for token in tokens for value in logprobs_of(token, count, logits)))


def found(tokens: tuple[int, ...], spec: EngineSpec = SPEC, count: int = 3, **asked: Any) -> object:
    """Return the violated contract and position for greedy tokens with equal logits; or None."""
    submit = submit_of(max_tokens=len(tokens), num_logprobs=count, **asked)
    return broken(submit, reported(*tokens, count=count), spec)


def test_correct_logprobs_keep_every_contract() -> None:
    assert found((7, 7)) is None
    assert found((7, 7), PROCESSED) is None
    assert found((7, 7), count=1) is None
    assert found((7, 7), count=2) is None


def changed(at: int, value: float, count: int = 3) -> tuple[str, int | None] | None:
    """Return the contract that is violated if one logprob of the second token is changed."""
    output = reported(7, 7, count=count)
    values = list(output.logprobs)
    values[2 * count + at] = value
    return broken(submit_of(max_tokens=2, num_logprobs=count), Output(output.tokens, "length", tuple(values)))


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, 6, ("logprobs", 1)),
        (1, -2.0, ("logprob_ranks", 1)),
        (1, nan, ("logprob_ranks", 1)),
        (2, 6, ("logprob_ranks", 1)),
        (2, 8, ("logprob_ranks", 1)),
        (2, -1, ("logprob_ranks", 1)),
        (3, -1.6, ("logprob_ranks", 1)),
        (3, nan, ("logprob_ranks", 1)),
        (5, -0.3, ("logprob_ranks", 1)),
        (5, -9.0, ("logprob_sum", 1)),
        (5, nan, ("logprob_ranks", 1)),
    ],
)
def test_one_changed_logprob_breaks_a_contract(at: int, value: float, expected: tuple[str, int]) -> None:
    assert changed(at, value) == expected


def test_missing_or_extra_logprobs_break_a_contract() -> None:
    submit, output = submit_of(max_tokens=2, num_logprobs=3), reported(7, 7)
    for values in (output.logprobs[:-2], output.logprobs[:6], (), (*output.logprobs, 1, -1.0)):
        assert broken(submit, Output(output.tokens, "length", values)) == ("logprobs", None)
    assert broken(submit, reported(7, 7, count=2)) == ("logprobs", None)
    assert broken(submit, reported(7, 7, count=4)) is None, "an engine may show more than it was asked for"
    assert broken(submit_of(max_tokens=2), reported(7, 7)) is None
    assert broken(submit_of(max_tokens=2), Output((7, 7), "length")) is None


def test_number_of_logprobs_is_limited_by_vocabulary() -> None:
    spec, logits = SPEC.model_copy(update={"vocab_size": 3}), LOGITS[:3]
    output = reported(2, 2, count=4, logits=logits)
    assert broken(submit_of(max_tokens=2, num_logprobs=6), output, spec) is None
    less = reported(2, 2, count=3, logits=logits)
    assert broken(submit_of(max_tokens=2, num_logprobs=6), less, spec) == ("logprobs", None)


def test_output_without_tokens_has_no_logprobs() -> None:
    submit = submit_of(num_logprobs=2, allowed_tokens=(2,), bad_words=((2,),))
    assert broken(submit, Output((), "error")) is None
    assert broken(submit, Output((), "error", (1, -1.0))) == ("logprobs", None)


def test_unlisted_token_above_listed_ones_breaks_ranks() -> None:
    submit = submit_of(max_tokens=1, num_logprobs=2, temperature=1.0)
    assert broken(submit, Output((3,), "length", (3, log(0.4), 7, log(0.4)))) is None
    assert broken(submit, Output((3,), "length", (3, log(0.41), 7, log(0.4)))) == ("logprob_ranks", 0)


@pytest.mark.parametrize(("shift", "contract"), [(-0.01, "logprob_sum"), (0.01, "logprob_sum"), (0.00005, None)])
def test_probabilities_must_be_able_to_sum_to_1(shift: float, contract: str | None) -> None:
    spec = EngineSpec(vocab_size=3, max_model_len=16)
    output = reported(2, count=4, logits=LOGITS[:3])
    moved = tuple(value + shift if isinstance(value, float) else value for value in output.logprobs)
    found = broken(submit_of(max_tokens=1, num_logprobs=4), Output((2,), "length", moved), spec)
    assert found == (contract and (contract, 0))


def test_raw_logits_as_logprobs_break_sum() -> None:
    values = tuple(value for token in (7, 7, 6) for value in (token, LOGITS[token]))
    assert broken(submit_of(max_tokens=1, num_logprobs=3), Output((7,), "length", values)) == ("logprob_sum", 0)
    alone = Output((7,), "length", (7, 0.5))
    assert broken(submit_of(max_tokens=1, num_logprobs=1), alone) == ("logprob_sum", 0)


def test_extreme_logprobs_are_checked() -> None:
    drawn = submit_of(max_tokens=1, num_logprobs=1, temperature=1.0)
    assert broken(drawn, Output((3,), "length", (3, 800.0))) == ("logprob_sum", 0)
    assert broken(drawn, Output((3,), "length", (3, -0.1, 7, 800.0))) == ("logprob_sum", 0)


@pytest.mark.parametrize("likeliest", [(7, 6, 6), (7, 6, 9), (7, 6, -1)])
def test_listed_tokens_must_differ_and_be_in_vocabulary(likeliest: tuple[int, ...]) -> None:
    values = logprobs_of(7, 4)
    changed_ids = [value for token, each in zip(likeliest, values[3::2], strict=True) for value in (token, each)]
    submit = submit_of(max_tokens=1, num_logprobs=4)
    assert broken(submit, Output((7,), "length", values)) is None
    assert broken(submit, Output((7,), "length", (*values[:2], *changed_ids))) == ("logprob_ranks", 0)


def test_two_tokens_with_probability_above_1_break_sum() -> None:
    drawn = submit_of(max_tokens=1, num_logprobs=2, temperature=1.0)
    assert broken(drawn, Output((3,), "length", (3, log(0.6), 7, log(0.6)))) == ("logprob_sum", 0)
    assert broken(drawn, Output((3,), "length", (3, log(0.4), 7, log(0.6)))) is None


def test_delivered_token_with_probability_0_breaks_sum() -> None:
    submit = submit_of(max_tokens=1, num_logprobs=2, temperature=1.0)
    output = Output((3,), "length", (3, -inf, *logprobs_of(7, 2)[2:]))
    assert broken(submit, output) == ("logprob_sum", 0)
    synthetic = SPEC.model_copy(update={"sampling": "synthetic", "synthetic_rates": (0.5,)})
    assert broken(submit, output, synthetic) is None
    everything = reported(1, count=4, logits=(0.0, -inf, 1.0))
    small = synthetic.model_copy(update={"vocab_size": 3})
    assert broken(submit_of(max_tokens=1, num_logprobs=4), everything, small) is None


def test_greedy_token_must_be_most_likely_listed_token() -> None:
    assert found((6, 7)) == ("greedy", 0)
    assert found((7, 5), PROCESSED) == ("greedy", 1)
    assert found((6, 7), count=1) is None, "nothing else is reported"
    assert found((6, 7), temperature=1.0) is None
    assert found((6, 7), SPEC.model_copy(update={"sampling": "synthetic", "synthetic_rates": (0.5,)})) is None


def test_greedy_tie_allows_both_tokens() -> None:
    tie = (*LOGITS[:6], 3.0, 3.0)
    submit = submit_of(max_tokens=2, num_logprobs=3)
    assert broken(submit, reported(6, 7, logits=tie)) is None
    near = (*LOGITS[:6], 2.9, 3.0)
    assert broken(submit, reported(6, 7, logits=near)) == ("greedy", 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"allowed_tokens": (5, 6)},
        {"bad_words": ((7,),)},
        {"grammar": (((6, 0), (5, 0)),)},
        {"min_tokens": 9, "stop": (7,)},
    ],
)
def test_masked_token_has_no_processed_probability(asked: dict[str, Any]) -> None:
    contract = next(iter(asked))
    assert found((6, 6), **asked) is None
    assert found((5, 6), **asked) == ("greedy", 0)
    assert found((6, 6), PROCESSED, **asked) == (contract, 0), "token 7 is reported with a probability"
    masked = (*LOGITS[:7], -inf)
    submit = submit_of(max_tokens=2, num_logprobs=3, **asked)
    assert broken(submit, reported(6, 6, logits=masked), PROCESSED) is None


def test_bad_word_forbids_its_last_token_only() -> None:
    assert found((7, 6, 7), bad_words=((7, 7),)) is None
    assert found((6, 7, 6), bad_words=((7, 7),)) == ("greedy", 0)


def test_greedy_with_penalties_counts_output_tokens() -> None:
    # The logit of token 7 is 1 above token 6's and 2 above token 5's.
    assert found((7, 7, 6, 7), frequency_penalty=0.75) is None
    assert found((7, 7, 6, 6), frequency_penalty=0.75) == ("penalties", 3)
    assert found((7, 7, 7), frequency_penalty=0.75) == ("penalties", 2)
    assert found((7, 6, 7, 5), frequency_penalty=1.25, count=4) is None
    assert found((7, 6, 7, 6), frequency_penalty=1.25, count=4) == ("penalties", 3)
    assert found((7, 6, 7, 6), frequency_penalty=1.25) is None, "token 5 is not reported"
    assert found((7, 6, 5), presence_penalty=1.25) == ("penalties", 2)
    assert found((7, 6, 7, 7), presence_penalty=1.25) is None
    assert found((7, 7), presence_penalty=1.25) == ("penalties", 1)
    assert found((7, 6), presence_penalty=0.75) == ("penalties", 1)
    assert found((6, 6), presence_penalty=-1.5) == ("penalties", 0)


def test_presence_and_frequency_penalties_ignore_prompt() -> None:
    assert found((7,), prompt=(7, 7), presence_penalty=2.0) is None
    assert found((6,), prompt=(7, 7), presence_penalty=2.0) == ("penalties", 0)


def test_greedy_with_logit_bias_uses_delivered_logprobs() -> None:
    assert found((6, 7), logit_bias=((6, 1.5),)) == ("logit_bias", 1)
    assert found((6, 6), logit_bias=((6, 1.5),)) is None
    assert found((7, 7), logit_bias=((6, 0.5),)) is None
    assert found((7, 6), logit_bias=((7, -1.5),)) == ("logit_bias", 0)
    assert found((7, 7), PROCESSED, logit_bias=((6, 1.5),)) is None
    assert found((6, 7), logit_bias=((6, 1.5),), presence_penalty=1.0) is None
    assert found((6, 6), logit_bias=((6, 1.5),), presence_penalty=1.0) == ("penalties", 1)
    assert found((6, 7), prompt=(6, 7), logit_bias=((6, 1.5),), repetition_penalty=2.0) == ("penalties", 1)
    assert found((6, 5), top_k=2, temperature=1.0, logit_bias=((5, 3.0),)) is None, "the logprobs are raw"
    assert found((6, 6), logit_bias=((7, -100.0),)) is None
    assert found((6, 6), PROCESSED, logit_bias=((7, -100.0),)) is None, "its probability is not none"
    breach = judged(submit_of(max_tokens=2, num_logprobs=3, logit_bias=((6, 1.5),)), reported(6, 7))
    assert breach is not None
    assert shown_text(breach.expected) == "token 6 with logprob -1.4583 more 1.5"


def test_sampled_token_below_min_p_is_a_breach() -> None:
    # The logit of token 6 is 1 below token 7's, token 5's is 2 below.
    e = 2.71828
    assert found((7, 6), temperature=1.0, min_p=1 / e) is None
    assert found((7, 6), temperature=1.0, min_p=1.001 / e) == ("min_p", 1)
    assert found((7, 6), temperature=2.0, min_p=1.001 / e) is None, "a temperature brings them nearer"
    assert found((7, 5), temperature=2.0, min_p=1.001 / e) == ("min_p", 1)
    assert found((7, 5), temperature=1.0) is None
    assert found((7, 5), PROCESSED, temperature=1.0, min_p=0.9) is None, "processed ones are of what is left"
    assert found((6, 6), temperature=1.0, min_p=0.9, logit_bias=((6, 1.5),)) is None, "the logprobs are not biased"


def test_processed_logprobs_include_penalties() -> None:
    assert found((7, 7), PROCESSED, presence_penalty=1.25) is None
    assert found((7, 6), PROCESSED, presence_penalty=1.25) == ("greedy", 1)


@pytest.mark.parametrize(
    ("prompt", "token", "repetition", "is_broken"),
    [
        # The amount by which a repetition penalty changes a logit is unknown, the direction is known.
        ((1,), 7, 2.0, False),
        ((1,), 6, 2.0, True),
        ((7,), 6, 2.0, False),
        ((6,), 6, 2.0, True),
        ((7, 6), 6, 2.0, True),
        ((7, 6), 7, 2.0, False),
        ((7,), 6, 0.5, True),
        ((6,), 6, 0.5, False),
        ((7, 6), 6, 0.5, True),
        ((1,), 6, 0.5, True),
    ],
)
def test_repetition_penalty_impossible_effect_is_a_breach(
    prompt: tuple[int, ...], token: int, repetition: float, is_broken: bool
) -> None:
    expected = ("penalties", 0) if is_broken else None
    assert found((token,), prompt=prompt, repetition_penalty=repetition) == expected


def test_repetition_and_other_penalties_combined() -> None:
    assert found((7, 6, 6), presence_penalty=0.5, repetition_penalty=2.0) == ("penalties", 2)
    assert found((7, 7, 6, 6), frequency_penalty=0.5, repetition_penalty=2.0) is None
    assert found((7, 7), frequency_penalty=1.25, repetition_penalty=2.0) == ("penalties", 1)
    assert found((6, 7, 6), count=2, presence_penalty=0.5, repetition_penalty=2.0) == ("penalties", 0)
    assert found((7, 5, 5), count=3, presence_penalty=0.5, repetition_penalty=2.0) == ("penalties", 1)


def test_sampled_token_outside_top_k_is_a_breach() -> None:
    assert found((6, 7), top_k=2, temperature=1.0) is None
    assert found((6, 5), top_k=2, temperature=1.0) == ("top_k", 1)
    assert found((6, 5), PROCESSED, top_k=2, temperature=1.0) == ("top_k", 1)
    assert found((6, 5), top_k=3, temperature=1.0) is None, "k is above the number of logprobs"
    assert found((6, 5), top_k=2, temperature=1.0, presence_penalty=1.0) is None, "the logprobs are raw"
    assert found((6, 5), top_k=2, temperature=1.0, allowed_tokens=(5, 6)) is None
    assert found((6, 5), top_k=2, temperature=0.0) is not None


def test_sampled_token_outside_top_p_is_a_breach() -> None:
    # At temperature 1 token 7 has probability 0.632, and tokens 7 and 6 together have 0.865.
    assert found((6,), top_p=0.7, temperature=1.0, count=6) is None
    assert found((6,), top_p=0.6, temperature=1.0, count=6) == ("top_p", 0)
    assert found((6,), top_p=0.6, temperature=1.0, count=3) is None, "others may have more than is reported"
    assert found((7,), top_p=0.1, temperature=1.0, count=6) is None
    assert found((5,), top_p=0.8, temperature=1.0, count=6) == ("top_p", 0)
    assert found((5,), top_p=0.8, temperature=4.0, count=6) is None, "a high temperature makes it flat"
    assert found((5,), top_p=0.8, temperature=1.0, count=6, min_tokens=1, stop=(3,)) is None
    assert found((5,), top_p=0.8, temperature=1.0, count=6, stop=(3,)) == ("top_p", 0)
    assert found((5,), PROCESSED, top_p=0.8, temperature=1.0, count=6) is None


def test_breach_has_tokens_and_logprobs() -> None:
    breach = judged(
        submit_of(max_tokens=2, num_logprobs=3, presence_penalty=1.25), reported(7, 7), words_from_prompt=False
    )
    assert breach is not None
    assert shown_text(breach.expected) == "token 6 with logprob -1.4583"
    assert shown_text(breach.actual) == "token 7 with -0.4583 less 1.25"
