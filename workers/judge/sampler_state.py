"""Check the sampler's state of each batch row: the stored parameters of its request.

A wrong value is found in the step that stores it, before a sampled token differs, and also if none ever does.

Verifies, for each batch row, that the state is its request's:
- sampling parameters: temperature, top-k, top-p, min-p, the seed if the temperature is not 0, penalties;
- logits processing: allowed tokens, logit biases, bad words, the minimum number of tokens and its stop tokens;
- the logprobs to return: their number, or the named tokens;
- the request's tokens, its prompt length, and, with a penalty, the count of each output token;
- with a minimum, the number of output tokens.

Does not verify:
- parts of sessions;
- tokens and counts of a stay while results of the stay before may still arrive, or after it lost a synchronously loaded
  block;
- grammars (contracts do).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from scenarios.events import Submit
from scenarios.spec import ENGINE
from workers.judge.history import EngineHistory, History, Turn
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.engine_records import OpenedValues, Sampler, SamplerRow
from workers.record.evidence import Difference

PLANE = "sampler"
# State that depends on the request's tokens; the other fields are its parameters.
_OF_TOKENS = ("tokens", "output_counts", "presence_tokens", "repetition_tokens", "num_output_tokens")


class SamplerState(HistoryJudge):
    """Judge that checks the parameters that a sampler stores for each batch row."""

    @classmethod
    def of(cls, case: Case) -> "SamplerState | None":
        """Return the judge; None for an engine that does not report its sampler's state."""
        return cls() if case.shows_steps and PLANE in case.capabilities.planes else None

    def compared(self, history: History) -> tuple[str, ...]:
        return (PLANE,) if any(isinstance(record, Sampler) for record in history.records) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        own = end.history.engines.get(ENGINE)
        for record in end.history.records if own is not None else ():
            if isinstance(record, Sampler) and record.of == ENGINE:
                assert own is not None, "the loop is empty without a history"
                yield from _of_step(record, own, end.submits)


def _of_step(record: Sampler, history: EngineHistory, submits: Sequence[Submit]) -> Iterator[Difference]:
    step = history.steps[record.step]
    for request, row in zip(record.requests, record.values.rows, strict=True):
        submit, turn = submits[request], step.turns[request]
        if submit.session is not None:
            continue
        expected = _expected(submit, turn, history.sizes)
        is_uncertain = turn.has_lost or not turn.stay.tokens_are_known
        for name, value in row:
            if is_uncertain and name in _OF_TOKENS:
                continue
            if value is not None and name in expected and value != expected[name]:
                yield mismatch(PLANE, name, request, (record.step, None), expected[name], value)


def _expected(submit: Submit, turn: Turn, sizes: OpenedValues) -> dict[str, object]:
    """Return the values that a sampler must store for a request, by field of `SamplerRow`."""
    params, prompt = submit.params, submit.prompt
    assert isinstance(prompt, tuple), "the trace is explicit"
    has_penalty = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) != (0.0, 0.0, 1.0)
    has_minimum = params.min_tokens > 0 and bool(submit.stop)
    is_top_1 = sizes.greedy_is_top_1 and params.temperature == 0
    output = turn.known[len(prompt) :]
    expected = SamplerRow(
        temperature=1.0 if is_top_1 else _single(params.temperature),
        top_k=1 if is_top_1 else params.top_k if 0 < params.top_k <= sizes.vocab_size else sizes.vocab_size,
        top_p=_single(params.top_p),
        min_p=_single(params.min_p),
        seed=params.seed if params.temperature else None,
        presence_penalty=_single(params.presence_penalty),
        frequency_penalty=_single(params.frequency_penalty),
        repetition_penalty=_single(params.repetition_penalty),
        num_logprobs=params.num_logprobs,
        logprob_tokens=list(params.logprob_tokens),
        allowed_tokens=list(params.allowed_tokens),
        logit_bias=sorted((token, _single(bias)) for token, bias in params.logit_bias if bias),
        min_tokens=params.min_tokens if has_minimum else 0,
        stop=sorted(set(submit.stop)) if has_minimum else [],
        bad_words=[list(word) for word in params.bad_words],
        num_prompt_tokens=len(prompt),
        tokens=list(turn.known),
        output_counts=sorted(Counter(output).items()) if has_penalty else None,
        prompt_tokens=sorted(set(prompt)) if has_penalty else None,
        presence_tokens=sorted(set(output)) if params.presence_penalty else None,
        repetition_tokens=sorted(set(output)) if params.repetition_penalty != 1 else None,
        num_output_tokens=len(output) if has_minimum else None,
    )
    return {name: value for name, value in expected if value is not None}


def _single(value: float) -> float:
    """Return a number rounded to single precision, as samplers store it."""
    return float(np.float32(value))
