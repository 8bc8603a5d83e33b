"""Contracts on logprobs: consistency of those delivered with each other and with the delivered tokens.

Verifies: `logprobs`, `logprob_tokens`, `logprob_ranks`, `logprob_sum`, and of the prompt `prompt_logprobs`; by them
`greedy`, `penalties`, `logit_bias`, `top_k`, `min_p` and `top_p`; and that a token which a mask forbids has no
probability, where logprobs are those of processed logits. Logits in their place are judged alike, but for their sums.
Does not verify: that they are the model's, which only a model can say (of our own engine the oracle does, of a prompt
another run). The effect of a repetition penalty depends on the logit, not on its logprob: it is judged by what it
cannot do.
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
from workers.record.observation import width_of

# Logprobs are sums of float32 exponentials.
TOLERANCE = 1e-4
# What each contract demands.
CONTRACTS: Mapping[str, str] = {
    "logprobs": "as many logprobs of each token as were asked for, its own first",
    "logprob_tokens": "logprobs of the tokens that a request names, in its order, behind a token's own",
    "prompt_logprobs": "with the first token as many logprobs of each token of the prompt behind its first as were "
    "asked for, its own first, in order, of probabilities that are 1 all together",
    "logprob_ranks": "the likeliest tokens come in order, and a token has one logprob wherever it is named",
    "logprob_sum": "probabilities of a vocabulary: none above 1, all together 1, none 0 of what was delivered",
    "greedy": "at temperature 0 nothing that may come and is shown is likelier than the token delivered",
    "penalties": "so it is once the logprobs shown are penalised by what the prompt and the output before hold",
    "top_k": "a token that is drawn is one of the k likeliest",
    "min_p": "a token that is drawn is at least p times as probable as the likeliest",
    "top_p": "a token that is drawn is among the fewest that have p of all probability",
}

# A broken contract, its demand, and what was delivered.
Wrong: TypeAlias = tuple[str, Fact, Fact]


class Shown(NamedTuple):
    """The logprobs of one delivered token: its own, and the likeliest tokens with theirs."""

    token: int
    own: float
    ids: tuple[int, ...]
    top: tuple[float, ...]


def logprob_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first breach among the logprobs of an output, or None."""
    submit, output = given.submit, given.output
    asked = submit.params.logprobs_width
    if output is None or not (asked or output.logprobs):
        return None
    name, tokens = submit.request, output.tokens
    width = width_of(output.logprobs, len(tokens))
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
        found = judged.breach(Shown(token, values[0], ids, values[1:]))
        if found is not None:
            return Breach(found[0], name, position, found[1], found[2])
        judged.follow(token)
    return None


def prompt_logprob_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first breach among the logprobs of the prompt of a request, or None."""
    submit, output = given.submit, given.output
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    if output is None:
        return None
    name, flat, behind_first = submit.request, output.prompt_logprobs, submit.prompt[1:]
    width = submit.params.num_prompt_logprobs
    # They are delivered with the first token: an output without tokens has none.
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
        shown = Shown(token, row[1], tuple(int(each) for each in row[2::2]), row[3::2])
        wrong = rank_breach(shown, terms.vocab_size)
        if wrong is None and not terms.are_logits:
            wrong = sum_breach(shown, terms.vocab_size)
        if wrong is not None:
            return Breach("prompt_logprobs", name, None, fact("in_prompt", what=wrong[1], place=place + 1), wrong[2])
    return None


class _Judged:
    """Judge of one request's tokens, one after the other, by their logprobs and the history."""

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
        # Raw logprobs are not those by which a token is chosen, if anything comes between.
        self._is_changed = not self._is_processed and (has_penalties(params) or bool(self._biases))
        self._is_law = self._bans is None and not self._is_changed and not self._is_processed

    def follow(self, token: int) -> None:
        self._known.add(token)
        self._times[token] += 1
        if self._bans is not None:
            self._bans.follow(token)

    def breach(self, shown: Shown) -> Wrong | None:
        """Return the contract that a token breaks, with its demand and what was delivered; or None."""
        named = self._params.logprob_tokens
        of_shown = _named_breach(shown, named) if named else rank_breach(shown, self._vocab_size)
        of_sum = None if self._are_logits else sum_breach(shown, 0 if named else self._vocab_size)
        found = of_shown or of_sum
        if found is not None or not self._binds:
            return found
        if shown.own == -inf:
            return "logprob_sum", fact("has_probability"), fact("impossible_token", token=shown.token)
        if self._is_processed and self._bans is not None:
            for token, logprob in zip(shown.ids, shown.top, strict=True):
                contract = self._bans.mask_on(token) if logprob > -inf else None
                if contract is not None:
                    seen = fact("token_logprob", token=token, logprob=logprob)
                    return contract, self._bans.demand(contract), seen
        if self._params.temperature > 0:
            # Of tokens that are named nothing says which are the likeliest.
            return None if named else self._drawn(shown)
        return self._likeliest(shown)

    def _likeliest(self, shown: Shown) -> Wrong | None:
        """Return the breach of a token that must be the likeliest of the allowed ones, or None."""
        for token, logprob in zip(shown.ids, shown.top, strict=True):
            if token == shown.token or not self._beats(token, logprob, shown):
                continue
            if self._bans is not None and self._bans.ban_on(token) is not None:
                continue
            changed = "penalties" if has_penalties(self._params) else "logit_bias"
            contract = changed if self._is_changed else "greedy"
            due = fact("likelier_token", token=token, logprob=logprob, change=self._change(token))
            seen = fact("token_changed", token=shown.token, logprob=shown.own, change=self._change(shown.token))
            return contract, due, seen
        return None

    def _beats(self, token: int, logprob: float, shown: Shown) -> bool:
        """Tell whether a token is likelier than the one delivered, whatever the logits behind their logprobs are.

        A repetition penalty above 1 lowers the logits of known tokens, one below 1 raises them, by an unknown amount;
        it keeps the order of two known tokens.
        """
        if not self._is_changed:
            return logprob > shown.own + TOLERANCE
        repetition = self._params.repetition_penalty
        is_known, is_own_known = token in self._known, shown.token in self._known
        other, own = logprob + self._biased(token), shown.own + self._biased(shown.token)
        alike = other - own
        other, own = other - self._subtracted(token), own - self._subtracted(shown.token)
        if repetition == 1 or (not is_known and not is_own_known):
            return other > own + TOLERANCE
        if is_known and is_own_known:
            return self._subtracted(token) == self._subtracted(shown.token) and alike > TOLERANCE
        is_certain = repetition > 1 if is_own_known else repetition < 1
        return is_certain and other > own + TOLERANCE

    def _subtracted(self, token: int) -> float:
        """Return what the presence and frequency penalties subtract from a token's logit."""
        times = self._times[token]
        return self._params.presence_penalty + self._params.frequency_penalty * times if times else 0.0

    def _biased(self, token: int) -> float:
        """Return the bias of a token, which is added to its logit first."""
        return self._biases.get(token, 0.0)

    def _change(self, token: int) -> Fact:
        """Return the change of a token's logit by its bias and penalties."""
        change = self._biased(token) - self._subtracted(token) if self._is_changed else 0.0
        if not change:
            return fact("unchanged")
        return fact("more", by=change) if change > 0 else fact("less", by=-change)

    def _drawn(self, shown: Shown) -> Wrong | None:
        """Return the breach of a token that top-k, min-p and top-p must keep, or None."""
        params = self._params
        if 0 < params.top_k <= len(shown.top) and (self._is_law or self._is_processed):
            least = shown.top[params.top_k - 1]
            if shown.own < least - TOLERANCE:
                due = fact("likeliest_of_k", k=params.top_k, least=least)
                return "top_k", due, fact("token_with", token=shown.token, logprob=shown.own)
        if params.min_p > 0 and shown.top and self._is_law:
            least = shown.top[0] + params.temperature * log(params.min_p)
            if shown.own < least - TOLERANCE:
                due = fact("at_least_p", p=params.min_p, least=least)
                return "min_p", due, fact("token_with", token=shown.token, logprob=shown.own)
        if params.top_p < 1 and shown.top and self._is_law:
            before = _mass_before(shown, params.temperature, self._vocab_size)
            if before > params.top_p + TOLERANCE:
                due = fact("fewest_of_p", p=params.top_p)
                return "top_p", due, fact("likelier_mass", token=shown.token, mass=before)
        return None


def _named_breach(shown: Shown, named: tuple[int, ...]) -> Wrong | None:
    """Return the breach of logprobs that are those of named tokens, in order, behind the token's own; or None."""
    if shown.ids[: len(named)] != named:
        return "logprob_tokens", fact("these_tokens", tokens=named), fact("these_tokens", tokens=shown.ids)
    return _repeated_breach(shown)


def rank_breach(shown: Shown, vocab_size: int) -> Wrong | None:
    """Return the breach of the shown tokens and their order, or None."""
    if len(set(shown.ids)) < len(shown.ids) or not all(0 <= token < vocab_size for token in shown.ids):
        return "logprob_ranks", fact("different_tokens", last=vocab_size - 1), fact("these_tokens", tokens=shown.ids)
    # NaN compares false with any number.
    if not all(value <= before for before, value in zip(shown.top, shown.top[1:], strict=False)):
        return "logprob_ranks", fact("falling_logprobs"), fact("these_logprobs", logprobs=shown.top)
    if shown.token in shown.ids:
        return _repeated_breach(shown)
    if shown.top and not shown.own <= shown.top[-1] + TOLERANCE:
        due = fact("none_above_least", least=shown.top[-1])
        return "logprob_ranks", due, fact("token_with", token=shown.token, logprob=shown.own)
    return None


def _repeated_breach(shown: Shown) -> Wrong | None:
    """Return the breach of a token that has another logprob where it is named again, or None."""
    again = shown.top[shown.ids.index(shown.token)] if shown.token in shown.ids else shown.own
    if again == shown.own or abs(again - shown.own) <= TOLERANCE:
        return None
    due = fact("logprob_as_before", token=shown.token, logprob=shown.own)
    return "logprob_ranks", due, fact("with_logprob", logprob=again)


def sum_breach(shown: Shown, vocab_size: int) -> Wrong | None:
    """Return the breach of the sum of probabilities, shown and bounded, or None.

    With a vocabulary of 0 tokens nothing is known of those that are not shown.
    """
    if not (shown.own <= TOLERANCE and all(value <= TOLERANCE for value in shown.top)):
        seen = fact("these_logprobs", logprobs=(shown.own, *shown.top))
        return "logprob_sum", fact("no_certainty"), seen
    total = sum(map(exp, shown.top)) + (exp(shown.own) if shown.token not in shown.ids else 0.0)
    if total > 1 + TOLERANCE:
        return "logprob_sum", fact("at_most_one"), fact("mass", mass=total)
    if shown.top and vocab_size:
        # No other token is likelier than the last one shown.
        most = sum(map(exp, shown.top)) + (vocab_size - len(shown.top)) * exp(shown.top[-1])
        if most < 1 - TOLERANCE:
            return "logprob_sum", fact("mass_of_vocabulary", size=vocab_size), fact("at_most_mass", mass=most)
    return None


def _mass_before(shown: Shown, temperature: float, vocab_size: int) -> float:
    """Return a lower bound on the probability of the tokens likelier than the one drawn."""
    weights = [exp((logprob - shown.top[0]) / temperature) for logprob in shown.top]
    total = sum(weights) + (vocab_size - len(weights)) * weights[-1]
    likelier = (logprob > shown.own + TOLERANCE for logprob in shown.top)
    return sum(compress(weights, likelier)) / total
