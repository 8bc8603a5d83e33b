"""Rule (contract) `same_context`: after equal tokens, a token has equal logits everywhere.

Verifies: `same_context`, for an engine that returns logits instead of logprobs.

Does not verify:
- logits that masks, biases, penalties or a temperature change before sampling;
- traces that load other weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from scenarios.events import Submit
from scenarios.sampling import Output
from workers.judge.contracts.bans import has_penalties
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Delivery, Terms
from workers.judge.contracts.logprobs import TOLERANCE
from workers.record.evidence import fact
from workers.record.observation import logprobs_per_token

# Logits, unlike logprobs, can be of any size, so their tolerance is also relative.
RELATIVE_TOLERANCE = 1e-5
CONTRACTS: Mapping[str, str] = {
    "same_context": "after the same tokens, a token has the same logit in every prompt and output",
}


def context_breach(deliveries: Sequence[Delivery], terms: Terms) -> Breach | None:
    """Return the first token with a logit that differs from an earlier equal context, or None."""
    if not (terms.are_logits and terms.weights_stay):
        return None
    contexts: dict[tuple[int, int], int] = {}
    known: dict[tuple[int, int], float] = {}
    for given in deliveries:
        submit, output = given.submit, given.output
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        # The prompt of a session part lacks the tokens of the parts before.
        if output is None or submit.session is not None:
            continue
        rows, context = dict(_rows(submit, output, terms)), 0
        for place, token in enumerate((*submit.prompt, *output.tokens)):
            for named, logit in rows.get(place, ()):
                before = known.setdefault((context, named), logit)
                if not _is_close(logit, before, max(TOLERANCE, terms.logit_margin)):
                    return _breach(given, place, named, before, logit)
            # Contexts are numbered in the order of their first occurrence.
            context = contexts.setdefault((context, token), 1 + len(contexts))
    return None


def _rows(submit: Submit, output: Output, terms: Terms) -> Iterator[tuple[int, list[tuple[int, float]]]]:
    """Yield (position, reported tokens with logits) where no sampling parameter changes logits."""
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    width = 2 * submit.params.num_prompt_logprobs
    for place in range(1, len(submit.prompt)) if width else ():
        yield place, _row(output.prompt_logprobs[width * (place - 1) : width * place])
    if terms.is_processed and _is_changed(submit):
        return
    width = 2 * (logprobs_per_token(output.logprobs, len(output.tokens)) or 0)
    for position in range(len(output.tokens)) if width else ():
        yield len(submit.prompt) + position, _row(output.logprobs[width * position : width * (position + 1)])


def _row(flat: Sequence[int | float]) -> list[tuple[int, float]]:
    return [(int(token), logit) for token, logit in zip(flat[::2], flat[1::2], strict=True) if isfinite(logit)]


def _is_changed(submit: Submit) -> bool:
    """Return whether masks, biases, penalties or a temperature change the target's logits."""
    asked = submit.params
    masks = asked.bad_words or asked.no_repeats or asked.allowed_tokens or asked.grammar or asked.min_tokens
    return bool(masks or asked.logit_bias) or asked.temperature > 0 or has_penalties(asked)


def _is_close(logit: float, before: float, tolerance: float) -> bool:
    return abs(logit - before) <= tolerance + RELATIVE_TOLERANCE * abs(before)


def _breach(given: Delivery, place: int, token: int, before: float, logit: float) -> Breach:
    """Return the breach of a token with a different logit; `place` includes prompt tokens."""
    due, seen = fact("logit_of_context", token=token, logit=before), fact("with_logprob", logprob=logit)
    behind = place - len(given.submit.prompt) if isinstance(given.submit.prompt, tuple) else 0
    if behind < 0:
        due = fact("in_prompt", what=due, place=place)
    return Breach("same_context", given.submit.request, None if behind < 0 else behind, due, seen)
