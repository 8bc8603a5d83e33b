"""Output rules (contracts) on logprobs: they agree with each other and with the tokens.

Verifies:
- `logprobs`, `logprob_tokens`, `logprob_ranks`, `logprob_sum`, and `prompt_logprobs` for prompt tokens;
- by means of the logprobs, the sampled tokens: `greedy`, `penalties`, `logit_bias`, `top_k`, `min_p` and `top_p`;
- for logprobs of processed logits: tokens that a mask forbids have probability 0.
Logits returned instead of logprobs are checked in the same way, except for their sums.

Does not verify:
- that logprobs are the model's (the oracle does for our own engine; for a prompt the comparison with another run does);
- the exact effect of a repetition penalty, which depends on logits: only impossible effects are found.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import compress
from math import exp, inf, log
from typing import NamedTuple, TypeAlias

from scenarios.events import Submit
from workers.judge.contracts.bans import Bans, bans_of, has_penalties
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Delivery, Terms
from workers.record.evidence import Fact, fact
from workers.record.observation import logprobs_per_token

# Logprobs are sums of float32 exponentials.
TOLERANCE = 1e-4
# The rule of each contract.
CONTRACTS: Mapping[str, str] = {
    "logprobs": "each output token has the requested number of logprobs, its own first",
    "logprob_tokens": "after its own logprob, each output token has the named tokens' logprobs, in the request's order",
    "prompt_logprobs": "with the first output token, each prompt token except the first has the requested number of "
    "logprobs: its own first, then the most likely tokens in order; their probabilities can sum to 1",
    "logprob_ranks": "the most likely tokens come in order, and a token that is listed twice has the same logprob",
    "logprob_sum": "probabilities are at most 1 and can sum to 1 over the vocabulary; an output token has more than 0",
    "greedy": "at temperature 0, no allowed token with a reported logprob is more likely than the output token",
    "penalties": "at temperature 0, the same holds after penalties and biases are applied to the reported logprobs",
    "top_k": "a sampled token is one of the k most likely tokens",
    "min_p": "a sampled token is at least p times as probable as the most likely token",
    "top_p": "a sampled token is in the smallest set of most likely tokens with total probability p",
}

# The name of a broken contract, the expected fact, and the actual fact.
Wrong: TypeAlias = tuple[str, Fact, Fact]


class PositionLogprobs(NamedTuple):
    """Logprobs reported at one position: the output token's and the listed tokens'."""

    token: int
    own: float
    ids: tuple[int, ...]
    top: tuple[float, ...]


def logprob_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first broken rule in the logprobs of an output, or None."""
    submit, output = given.submit, given.output
    asked = submit.params.logprobs_width
    if output is None or not (asked or output.logprobs):
        return None
    name, tokens = submit.request, output.tokens
    width = logprobs_per_token(output.logprobs, len(tokens))
    least = min(asked, 1 + terms.vocab_size) if tokens else 0
    if width is None or width < least:
        due = fact("logprobs_each", width=least, count=len(tokens))
        return Breach("logprobs", name, None, due, fact("num_logprobs", count=len(output.logprobs) // 2))
    if not width:
        return None
    judged = _Judged(submit, terms)
    flat = output.logprobs
    for position, token in enumerate(tokens):
        first = position * 2 * width
        if flat[first] != token:
            own, other = fact("own_first", token=token), fact("of_token", token=flat[first])
            return Breach("logprobs", name, position, own, other)
        values = flat[first + 1 : first + 2 * width : 2]
        ids = tuple(int(each) for each in flat[first + 2 : first + 2 * width : 2])
        found = judged.breach(PositionLogprobs(token, values[0], ids, values[1:]))
        if found is not None:
            return Breach(found[0], name, position, found[1], found[2])
        judged.follow(token)
    return None


def prompt_logprob_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first broken rule in the prompt logprobs of a request, or None."""
    submit, output = given.submit, given.output
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    if output is None:
        return None
    name, flat, behind_first = submit.request, output.prompt_logprobs, submit.prompt[1:]
    width = submit.params.num_prompt_logprobs
    # Prompt logprobs are delivered with the first output token: an output without tokens has none.
    due = 2 * width * len(behind_first) if output.tokens else 0
    if len(flat) != due:
        each = fact("logprobs_of_prompt", width=width, count=len(behind_first))
        return Breach(
            "prompt_logprobs", name, None, each if due else fact("nothing"), fact("num_logprobs", count=len(flat) // 2)
        )
    for place, token in enumerate(behind_first) if due else ():
        row = flat[2 * width * place : 2 * width * (place + 1)]
        if row[0] != token:
            first = fact("own_first_in_prompt", token=token, place=place + 1)
            return Breach("prompt_logprobs", name, None, first, fact("of_token", token=row[0]))
        reported = PositionLogprobs(token, row[1], tuple(int(each) for each in row[2::2]), row[3::2])
        wrong = rank_breach(reported, terms.vocab_size)
        if wrong is None and not terms.are_logits:
            wrong = sum_breach(reported, terms.vocab_size)
        if wrong is not None:
            return Breach("prompt_logprobs", name, None, fact("in_prompt", what=wrong[1], place=place + 1), wrong[2])
    return None


class _Judged:
    """Checks the output tokens of one request in order, with their reported logprobs."""

    def __init__(self, submit: Submit, terms: Terms) -> None:
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        params = submit.params
        self._params = params
        self._vocab_size = terms.vocab_size
        self._binds = terms.masks_bind
        self._is_processed, self._are_logits = terms.is_processed, terms.are_logits
        self._bans: Bans | None = bans_of(submit, terms.words_from_prompt, terms.vocab_size, terms.reasoning_end)
        self._known = set(submit.prompt)
        self._times: Counter[int] = Counter()
        self._biases = dict(params.logit_bias)
        # Raw logprobs are not those that the sampler uses if penalties or biases change the logits.
        self._is_changed = not self._is_processed and (has_penalties(params) or bool(self._biases))
        self._is_law = self._bans is None and not self._is_changed and not self._is_processed

    def follow(self, token: int) -> None:
        """Append the next token of the output."""
        self._known.add(token)
        self._times[token] += 1
        if self._bans is not None:
            self._bans.follow(token)

    def breach(self, reported: PositionLogprobs) -> Wrong | None:
        """Return (broken rule, expected, actual) for the next token, or None."""
        named = self._params.logprob_tokens
        of_shown = _named_breach(reported, named) if named else rank_breach(reported, self._vocab_size)
        of_sum = None if self._are_logits else sum_breach(reported, 0 if named else self._vocab_size)
        found = of_shown or of_sum
        if found is not None or not self._binds:
            return found
        if reported.own == -inf:
            return "logprob_sum", fact("has_probability"), fact("impossible_token", token=reported.token)
        if self._is_processed and self._bans is not None:
            for token, logprob in zip(reported.ids, reported.top, strict=True):
                contract = self._bans.mask_on(token) if logprob > -inf else None
                if contract is not None:
                    seen = fact("token_logprob", token=token, logprob=logprob)
                    return contract, self._bans.requirement(contract), seen
        if self._params.temperature > 0:
            # Logprobs of named tokens do not say which tokens are the most likely.
            return None if named else self._drawn(reported)
        return self._likeliest(reported)

    def _likeliest(self, reported: PositionLogprobs) -> Wrong | None:
        """Return the broken rule if an allowed token is likelier than the greedy token, or None."""
        for token, logprob in zip(reported.ids, reported.top, strict=True):
            if token == reported.token or not self._beats(token, logprob, reported):
                continue
            if self._bans is not None and self._bans.ban_on(token) is not None:
                continue
            changed = "penalties" if has_penalties(self._params) else "logit_bias"
            contract = changed if self._is_changed else "greedy"
            due = fact("likelier_token", token=token, logprob=logprob, change=self._change(token))
            seen = fact(
                "token_changed", token=reported.token, logprob=reported.own, change=self._change(reported.token)
            )
            return contract, due, seen
        return None

    def _beats(self, token: int, logprob: float, reported: PositionLogprobs) -> bool:
        """Return whether a token is certainly likelier than the output token, despite rounding.

        A repetition penalty above 1 lowers the logits of tokens that occur in the prompt or the output, one below 1
        raises them, both by an unknown amount. It keeps the order of two such tokens.
        """
        if not self._is_changed:
            return logprob > reported.own + TOLERANCE
        repetition = self._params.repetition_penalty
        is_known, is_own_known = token in self._known, reported.token in self._known
        other, own = logprob + self._biased(token), reported.own + self._biased(reported.token)
        alike = other - own
        other, own = other - self._subtracted(token), own - self._subtracted(reported.token)
        if repetition == 1 or (not is_known and not is_own_known):
            return other > own + TOLERANCE
        if is_known and is_own_known:
            return self._subtracted(token) == self._subtracted(reported.token) and alike > TOLERANCE
        is_certain = repetition > 1 if is_own_known else repetition < 1
        return is_certain and other > own + TOLERANCE

    def _subtracted(self, token: int) -> float:
        """Return the amount that presence and frequency penalties subtract from a token's logit."""
        times = self._times[token]
        return self._params.presence_penalty + self._params.frequency_penalty * times if times else 0.0

    def _biased(self, token: int) -> float:
        """Return the bias that is added to a token's logit before penalties."""
        return self._biases.get(token, 0.0)

    def _change(self, token: int) -> Fact:
        """Return the message that gives the change of a token's logit by bias and penalties."""
        change = self._biased(token) - self._subtracted(token) if self._is_changed else 0.0
        if not change:
            return fact("unchanged")
        return fact("more", by=change) if change > 0 else fact("less", by=-change)

    def _drawn(self, reported: PositionLogprobs) -> Wrong | None:
        """Return the rule (top-k, min-p or top-p) that a sampled token breaks, or None."""
        params = self._params
        if 0 < params.top_k <= len(reported.top) and (self._is_law or self._is_processed):
            least = reported.top[params.top_k - 1]
            if reported.own < least - TOLERANCE:
                due = fact("likeliest_of_k", k=params.top_k, least=least)
                return "top_k", due, fact("token_with", token=reported.token, logprob=reported.own)
        if params.min_p > 0 and reported.top and self._is_law:
            least = reported.top[0] + params.temperature * log(params.min_p)
            if reported.own < least - TOLERANCE:
                due = fact("at_least_p", p=params.min_p, least=least)
                return "min_p", due, fact("token_with", token=reported.token, logprob=reported.own)
        if params.top_p < 1 and reported.top and self._is_law:
            before = _mass_before(reported, params.temperature, self._vocab_size)
            if before > params.top_p + TOLERANCE:
                due = fact("fewest_of_p", p=params.top_p)
                return "top_p", due, fact("likelier_mass", token=reported.token, mass=before)
        return None


def _named_breach(reported: PositionLogprobs, named: tuple[int, ...]) -> Wrong | None:
    """Return the broken rule unless the requested token ids are listed, in their order."""
    if reported.ids[: len(named)] != named:
        return "logprob_tokens", fact("these_tokens", tokens=named), fact("these_tokens", tokens=reported.ids)
    return _repeated_breach(reported)


def rank_breach(reported: PositionLogprobs, vocab_size: int) -> Wrong | None:
    """Return the broken rule if the reported tokens or their rank order are wrong, or None."""
    if len(set(reported.ids)) < len(reported.ids) or not all(0 <= token < vocab_size for token in reported.ids):
        return "logprob_ranks", fact("different_tokens", last=vocab_size - 1), fact("these_tokens", tokens=reported.ids)
    # NaN compares false with any number.
    if not all(value <= before for before, value in zip(reported.top, reported.top[1:], strict=False)):
        return "logprob_ranks", fact("falling_logprobs"), fact("these_logprobs", logprobs=reported.top)
    if reported.token in reported.ids:
        return _repeated_breach(reported)
    if reported.top and not reported.own <= reported.top[-1] + TOLERANCE:
        due = fact("none_above_least", least=reported.top[-1])
        return "logprob_ranks", due, fact("token_with", token=reported.token, logprob=reported.own)
    return None


def _repeated_breach(reported: PositionLogprobs) -> Wrong | None:
    """Return the broken rule if a token is listed twice with different logprobs, or None."""
    again = reported.top[reported.ids.index(reported.token)] if reported.token in reported.ids else reported.own
    if again == reported.own or abs(again - reported.own) <= TOLERANCE:
        return None
    due = fact("logprob_as_before", token=reported.token, logprob=reported.own)
    return "logprob_ranks", due, fact("with_logprob", logprob=again)


def sum_breach(reported: PositionLogprobs, vocab_size: int) -> Wrong | None:
    """Return the broken rule if the reported probabilities cannot sum to 1, or None.

    Tokens that are not listed are at most as probable as the last listed one. With `vocab_size` 0 this is unknown.
    """
    if not (reported.own <= TOLERANCE and all(value <= TOLERANCE for value in reported.top)):
        seen = fact("these_logprobs", logprobs=(reported.own, *reported.top))
        return "logprob_sum", fact("no_certainty"), seen
    total = sum(map(exp, reported.top)) + (exp(reported.own) if reported.token not in reported.ids else 0.0)
    if total > 1 + TOLERANCE:
        return "logprob_sum", fact("at_most_one"), fact("mass", mass=total)
    if reported.top and vocab_size:
        # No other token is likelier than the last one reported.
        most = sum(map(exp, reported.top)) + (vocab_size - len(reported.top)) * exp(reported.top[-1])
        if most < 1 - TOLERANCE:
            return "logprob_sum", fact("mass_of_vocabulary", size=vocab_size), fact("at_most_mass", mass=most)
    return None


def _mass_before(reported: PositionLogprobs, temperature: float, vocab_size: int) -> float:
    """Return a lower bound of the total probability of tokens more likely than the sampled one."""
    weights = [exp((logprob - reported.top[0]) / temperature) for logprob in reported.top]
    total = sum(weights) + (vocab_size - len(weights)) * weights[-1]
    likelier = (logprob > reported.own + TOLERANCE for logprob in reported.top)
    return sum(compress(weights, likelier)) / total
