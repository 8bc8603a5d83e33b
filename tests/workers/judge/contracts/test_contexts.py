"""Contract `same_context`: prompt logits equal output logits after the same tokens."""

import pytest

from scenarios.events import AnyEvent, LoadWeights, Submit
from scenarios.sampling import Output
from scenarios.trace import Trace
from tests.workers.judge.contracts.outputs import SPEC, submit_of
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Terms
from workers.judge.contracts.judge import Contracts
from workers.record.words import shown_text

LOGITS = SPEC.model_copy(update={"logprobs_mode": "raw_logits"})
FIRST = submit_of(prompt=(1, 2), max_tokens=2, num_logprobs=1)
# Its prompt is the first request's prompt and output.
SECOND = submit_of(prompt=(1, 2, 3, 4), max_tokens=1, num_prompt_logprobs=2).model_copy(update={"request": "b"})
# Logits of the prompt's tokens after its first, each followed by the most likely token.
OF_PROMPT = (2, 5.0, 6, 7.5, 3, 9.0, 3, 9.0, 4, 8.0, 4, 8.0)


def breach_of(
    of_prompt: tuple[int | float, ...], mode: str = "raw_logits", *more: AnyEvent, margin: float = 0.0
) -> Breach | None:
    spec = SPEC.model_copy(update={"logprobs_mode": mode})
    outputs = {"a": Output((3, 4), "length", (3, 9.0, 4, 8.0)), "b": Output((5,), "length", (), of_prompt)}
    contracts = Contracts(Terms(Trace(spec=spec, events=(FIRST, SECOND, *more)), True, margin))
    for submit in (FIRST, SECOND):
        contracts.submitted(submit, None, None)
    return contracts.first_breach(outputs)


def test_prompt_logits_equal_output_logits_of_same_context() -> None:
    assert breach_of(OF_PROMPT) is None
    assert breach_of((*OF_PROMPT[:9], 8.00005, *OF_PROMPT[10:11], 8.00005)) is None


@pytest.mark.parametrize(("margin", "is_found"), [(0.0, True), (1e-3, False)])
def test_prompt_logits_within_margin_agree(margin: float, is_found: bool) -> None:
    rounded = (*OF_PROMPT[:9], 8.0005, *OF_PROMPT[10:11], 8.0005)
    assert (breach_of(rounded, margin=margin) is not None) is is_found


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits"])
def test_same_context_logprobs_instead_of_logits_are_reported(mode: str) -> None:
    shifted = tuple(value - 10 if place % 2 else value for place, value in enumerate(OF_PROMPT))
    breach = breach_of(shifted, mode)
    assert breach is not None
    assert (breach.contract, breach.request) == ("same_context", "b")
    assert shown_text(breach.expected) == (
        "token 3 with 9.0000, as elsewhere after the same tokens at token 2 of the prompt"
    )
    assert shown_text(breach.actual) == "with -1.0000"


def test_same_context_is_not_checked_after_weight_load() -> None:
    assert breach_of((*OF_PROMPT[:5], 4.0, *OF_PROMPT[6:7], 4.0, *OF_PROMPT[8:])) is not None
    load = LoadWeights.model_validate({"tick": 1, "version": 1})
    assert breach_of((*OF_PROMPT[:5], 4.0, *OF_PROMPT[6:7], 4.0, *OF_PROMPT[8:]), "raw_logits", load) is None


def test_same_context_checks_only_unchanged_processed_logits() -> None:
    plain = SECOND.model_copy(update={"request": "a"})
    for asked, is_found in (({}, True), ({"presence_penalty": 0.5}, False), ({"temperature": 1.0}, False)):
        first = submit_of(prompt=(1, 2, 3), max_tokens=1, num_logprobs=1, **asked)
        spec = SPEC.model_copy(update={"logprobs_mode": "processed_logits"})
        outputs = {"a": Output((4,), "length", (4, 7.0)), "b": Output((5,), "length", (), OF_PROMPT)}
        second: Submit = plain.model_copy(update={"request": "b"})
        contracts = Contracts(Terms(Trace(spec=spec, events=(first, second)), True))
        for submit in (first, second):
            contracts.submitted(submit, None, None)
        assert (contracts.first_breach(outputs) is not None) == is_found
