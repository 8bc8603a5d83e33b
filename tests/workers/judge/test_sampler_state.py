"""Sampler state: each row stores the parameters, tokens and counts of its own request."""

from typing import Any

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from tests.workers.judge.histories import Part, opened, shown, step_of
from workers.judge.history import History
from workers.judge.judge import End
from workers.judge.sampler_state import SamplerState
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference

PROMPT = (3, 5, 3)
PARAMS = SamplingParams(temperature=0.7, seed=9, top_k=4, frequency_penalty=0.3, bad_words=((2, 6),))
SUBMIT = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=4, params=PARAMS)
STORED = {
    "temperature": 0.699999988079071,
    "top_k": 4,
    "top_p": 1.0,
    "min_p": 0.0,
    "seed": 9,
    "frequency_penalty": 0.30000001192092896,
    "bad_words": [[2, 6]],
    "num_prompt_tokens": 3,
}
# A step after 7 was sampled.
LATER = {"tokens": [3, 5, 3, 7], "output_counts": [(7, 1)]}
LOST = shown("transfer", 0, [0], phase="ends", blocks=[1], lost=[0], is_synchronous=True)


def sampler(step: int, **stored: Any) -> EngineRecord:
    return shown("sampler", step, [0], rows=[{**STORED, **stored}])


def judged(*more: EngineRecord, submit: Submit = SUBMIT, **sizes: Any) -> Difference | None:
    """Return the judge's first difference in a run of two steps: prefill, then decode."""
    first = step_of(0, Part(0, 0, PROMPT, [1], begun=PROMPT))
    second = step_of(1, Part(0, 3, [7], [1]))
    seen = [opened(**sizes), *first, shown("processed", 0, [0], sampled=[[7]]), *second, *more]
    end = End(2, {}, history=History.of(seen), submits=[submit])
    return next(SamplerState().differences(end), None)


def test_row_with_state_of_its_request_agrees() -> None:
    assert judged(sampler(0, tokens=[3, 5, 3], output_counts=[]), sampler(1, **LATER)) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("top_k", 5),
        ("top_p", 0.9),
        ("min_p", 0.1),
        ("seed", 8),
        ("frequency_penalty", 0.0),
        ("bad_words", []),
        ("num_prompt_tokens", 4),
        ("tokens", [3, 5, 3]),
        ("output_counts", []),
    ],
)
def test_wrong_value_is_reported_in_its_step(name: str, value: object) -> None:
    found = judged(sampler(1, **{**LATER, name: value}))
    assert found is not None
    assert (found.plane, found.variable, found.step) == ("sampler", name, 1)


def test_tokens_are_not_checked_after_a_lost_synchronous_load() -> None:
    wrong = sampler(1, tokens=[3, 5, 3], output_counts=[])
    assert judged(wrong) is not None
    assert judged(LOST, wrong) is None


def test_parameters_are_checked_after_a_lost_synchronous_load() -> None:
    found = judged(LOST, sampler(1, tokens=[3, 5, 3], top_k=5))
    assert found is not None
    assert found.variable == "top_k"


@pytest.mark.parametrize(
    ("params", "stored", "wrong"),
    [
        (SamplingParams(top_p=0.5), {"temperature": 1.0, "top_k": 1, "top_p": 0.5}, {"top_k": 32}),
        (SamplingParams(presence_penalty=0.5), {"presence_tokens": [7]}, {"presence_tokens": []}),
        (SamplingParams(repetition_penalty=2.0), {"repetition_tokens": [7]}, {"repetition_tokens": [3, 7]}),
        (
            SamplingParams(min_tokens=2),
            {"min_tokens": 2, "stop": [4], "num_output_tokens": 1},
            {"num_output_tokens": 2},
        ),
        (SamplingParams(logit_bias=((5, 1.0), (2, 0.0))), {"logit_bias": [(5, 1.0)]}, {"logit_bias": [(2, 1.0)]}),
    ],
)
def test_state_of_penalizers_and_greedy_rows(
    params: SamplingParams, stored: dict[str, Any], wrong: dict[str, Any]
) -> None:
    submit = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=4, stop=(4,), params=params)
    row = {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0, **stored}
    assert judged(shown("sampler", 1, [0], rows=[row]), submit=submit, greedy_is_top_1=True) is None
    found = judged(shown("sampler", 1, [0], rows=[{**row, **wrong}]), submit=submit, greedy_is_top_1=True)
    assert found is not None
    assert found.variable == next(iter(wrong))
