"""Sampling parameters: exact values are accepted, other values are refused with the allowed values."""

import pytest

from scenarios.codec import ScenarioError, dumps, loads
from scenarios.draw_params import METHODS, method_of, params_of, with_sampling
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.targets.specstorm import Specstorm

SUBMIT = "events:\n  - {{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 9, params: {{{params}}}}}\n"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ("presence_penalty: 0.3", "presence_penalty is 0.3; allowed are multiples of 1/64"),
        ("frequency_penalty: 2.5", "2.5; expected a number from -2 to 2"),
        ("repetition_penalty: 1.1", "repetition_penalty is 1.1; allowed are 0.125, 0.25, 0.5, 1, 2, 4, 8"),
        ("bad_words: [[1, 2], []]", "a list with at least one item"),
        ("bad_words: [[1, 2, 3, 4, 5, 6, 7, 8, 9]]", "a bad word of 9 tokens; at most 8 are allowed"),
        ("bad_words: [[1, 32]]", "token id 32; allowed are 0 to vocab_size - 1 = 31"),
        ("allowed_tokens: [32]", "token id 32; allowed are 0 to vocab_size - 1 = 31"),
        ("logit_bias: [[32, 1.0]]", "token id 32; allowed are 0 to vocab_size - 1 = 31"),
        ("logit_bias: [[3, 1.0], [3, 2.0]]", "token id 3 has two biases; it has one"),
        ("logit_bias: [[3, 101]]", "101; expected a number from -100 to 100"),
        ("temperature: 0.05", "temperature is 0.05; allowed are 0 and 0.0625 to 8"),
        ("temperature: 9", "9; expected a number from 0 to 8"),
        ("top_p: 0.0", "top_p is 0.0; allowed are numbers above 0 and at most 1"),
        ("top_k: -1", "expected an integer from 0 to 1000000"),
        ("min_tokens: -1", "expected an integer from 0 to 1000000"),
        ("min_token: 1", "did you mean min_tokens?"),
    ],
)
def test_inexact_or_invalid_params_are_refused_with_allowed_values(params: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        loads(SUBMIT.format(params=params), "a.yaml")
    assert str(refused.value).startswith("a.yaml:2: ")
    assert words in str(refused.value)


def test_params_are_kept_in_yaml_and_defaults_not_written() -> None:
    text = SUBMIT.format(params="bad_words: [[1, 2], [3]], presence_penalty: -0.5")
    trace = loads(text, "a.yaml")
    assert loads(dumps(trace), "b.yaml") == trace
    assert "params" not in dumps(
        loads(text.replace(", params: {bad_words: [[1, 2], [3]], presence_penalty: -0.5}", ""), "a")
    )


@pytest.mark.parametrize("vocab_size", [2, 32])
def test_params_of_any_number_are_allowed_and_all_kinds_occur(vocab_size: int) -> None:
    spec = EngineSpec(vocab_size=vocab_size)
    found = [with_sampling(params_of(number, spec), number, spec) for number in range(1024)]
    assert found[0] == SamplingParams()
    for params in found:
        assert [*params.problems(vocab_size)] == []
    for key, default in SamplingParams():
        # Parameters that our own engine does not support are added only in situations of other engines.
        is_ours = key in Specstorm.capabilities.features
        assert any(getattr(params, key) != default for params in found) is is_ours, key


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sampling: synthetic", "synthetic_rates has 0 rates; sampling synthetic needs at least one rate"),
        ("synthetic_rates: [0.5]", "synthetic_rates has 1 rates; sampling strict needs none"),
        ("sampling: synthetic, synthetic_rates: [0.5, 0.3]", "rate 0.3; allowed are multiples of 1/64"),
        ("sampling: synthetic, synthetic_rates: [1.5]", "1.5; expected a number from 0 to 1"),
        ("sampling: typical", "expected one of strict, standard, synthetic, block"),
    ],
)
def test_synthetic_rates_require_synthetic_sampling(spec: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        loads(f"spec: {{{spec}}}\n" + SUBMIT.format(params=""), "a.yaml")
    assert words in str(refused.value)


def test_rates_repeat_last_and_drop_excess() -> None:
    given = {"sampling": "synthetic", "synthetic_rates": (0.5, 0.25)}
    for k, rates in ((0, ()), (1, (0.5,)), (4, (0.5, 0.25, 0.25, 0.25))):
        assert EngineSpec.model_validate({**given, "num_speculative_tokens": k}).rates == rates
    assert EngineSpec().rates == ()


def test_method_of_any_number_has_allowed_rates() -> None:
    for number in (*range(600), len(METHODS) * 65 * 65 - 1):
        method, rates = method_of(number)
        assert all((rate * 64).is_integer() and 0 <= rate <= 1 for rate in rates)
        assert bool(rates) == (method == "synthetic")
    assert {method_of(number)[0] for number in range(4)} == set(METHODS)
