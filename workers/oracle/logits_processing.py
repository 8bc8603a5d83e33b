"""Reference logits processor: masks, penalties and grammar, computed logit by logit."""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from operator import mul
from typing import TypeAlias

from scenarios.events import Submit
from scenarios.sampling import Grammar, SamplingParams
from workers.oracle.derived import changes_logits

# A logit of 1.0, in the integers of `model.logit`.
ONE = 1 << 20

# The allowed tokens of each grammar state, each with the next state.
Edges: TypeAlias = Sequence[Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Rules:
    """Sampling parameters that decide the next token; requests with equal ones share values."""

    params: SamplingParams
    stop: frozenset[int]


def rules_of(event: Submit) -> Rules | None:
    """Return a request's sampling rules; None for plain greedy sampling."""
    if not changes_logits(event.params) and not event.params.temperature:
        return None
    return Rules(event.params, frozenset(event.stop) if event.params.min_tokens else frozenset())


def processed_logits(
    logits: Sequence[int], rules: Rules, tokens: Sequence[int], num_prompt: int, edges: Edges = ()
) -> list[float]:
    """Return the float32 logits after `tokens`, with penalties, masks and grammar applied.

    `edges` are those of the rules' grammar, if any.
    """
    params = rules.params
    found = [*map(float, logits)]
    if not changes_logits(params):
        return found
    _penalize(found, params, tokens, num_prompt)
    assert bool(edges) == bool(params.grammar), f"{len(edges)} grammar states, expected {len(params.grammar)}"
    if params.allowed_tokens:
        found = _only(params.allowed_tokens, found)
    following = edges_after(edges, tokens[num_prompt:]) if edges else None
    if following is not None:
        found = _only(following, found)
    for token in _banned(rules, tokens, num_prompt):
        found[token] = -inf
    return found


def _only(tokens: Iterable[int], logits: Sequence[float]) -> list[float]:
    """Return the logits with all but the given tokens set to -inf."""
    found = [-inf] * len(logits)
    for token in tokens:
        found[token] = logits[token]
    return found


def _penalize(logits: list[float], params: SamplingParams, tokens: Sequence[int], num_prompt: int) -> None:
    repetition, presence, frequency = params.repetition_penalty, params.presence_penalty, params.frequency_penalty
    if repetition == 1 and presence == frequency == 0:
        return
    times = Counter(tokens[num_prompt:])
    for token in set(tokens):
        logit = logits[token]
        logit = logit / repetition if logit > 0 else logit * repetition
        if times[token]:
            logit -= ONE * (presence + frequency * times[token])
        # Everything is exact in 64 bits; the only rounding is here.
        (logits[token],) = struct.unpack("f", struct.pack("f", logit))


def _banned(rules: Rules, tokens: Sequence[int], num_prompt: int) -> set[int]:
    """Return the banned tokens: stop tokens before min_tokens, and last tokens of bad words."""
    params = rules.params
    banned = {*rules.stop} if len(tokens) - num_prompt < params.min_tokens else set()
    for word in params.bad_words:
        before = len(tokens) - len(word) + 1
        if before >= 0 and tuple(tokens[before:]) == word[:-1]:
            banned.add(word[-1])
    return banned


def edges_of(grammar: Grammar) -> Edges:
    """Return, for each grammar state, the allowed tokens with the states they lead to."""
    return tuple([{edge[0]: edge[1] for edge in state} for state in grammar])


def edges_after(edges: Edges, output: Sequence[int]) -> Mapping[int, int] | None:
    """Return the allowed tokens after `output`, with next states; None after the end."""
    following = edges[0]
    for token in output:
        if token not in following:
            return None
        following = edges[following[token]]
        if not following:
            return None
    return following


def cut_off(edges: Edges, output: Sequence[int], drafts: Sequence[int], no_draft: int) -> list[int]:
    """Return the draft tokens up to the first that the grammar forbids, padded with `no_draft`."""
    kept: list[int] = []
    for draft in drafts:
        following = edges_after(edges, [*output, *kept])
        if following is None or draft not in following:
            break
        kept.append(draft)
    return kept + [no_draft] * (len(drafts) - len(kept))


def hash_of(logits: Sequence[float]) -> int:
    """Return a 64-bit hash: the sum of float32 bits times 1, 3, 5 ..."""
    bits = struct.unpack(f"{len(logits)}I", struct.pack(f"{len(logits)}f", *logits))
    total: int = sum(map(mul, bits, range(1, 2 * len(bits), 2)))
    return total % (1 << 64)


def logprobs_of(logits: Sequence[float], token: int, count: int) -> tuple[int | float, ...]:
    """Return flat (id, logprob) pairs: the given token, then the most likely tokens.

    Equally likely tokens are ordered by id.
    """
    largest = max(logits) / ONE
    total = largest + log(sum([exp(logit / ONE - largest) for logit in logits]))
    # A stable sort keeps equal logits in id order, also when reversed.
    ids = [token, *sorted(range(len(logits)), key=logits.__getitem__, reverse=True)[: count - 1]]
    return tuple([value for token in ids[:count] for value in (token, logits[token] / ONE - total)])
