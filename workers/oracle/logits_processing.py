"""Reference logits processor: masks, penalties and grammars of a request, applied one logit at a time."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

from scenarios.events import Submit
from scenarios.sampling import Grammar, SamplingParams
from workers.oracle.derived import changes_logits

# A logit of 1.0, in the integers of `model.logit`.
ONE = 1 << 20


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides, besides the logits, which token follows; equal rules make equal tapes of a prompt."""

    params: SamplingParams
    stop: frozenset[int]


def rules_of(event: Submit) -> Rules | None:
    """Return the rules of a request, or None if the largest logit wins."""
    if not changes_logits(event.params) and not event.params.temperature:
        return None
    return Rules(event.params, frozenset(event.stop) if event.params.min_tokens else frozenset())


def processed(logits: Sequence[int], rules: Rules, tokens: Sequence[int], num_prompt: int) -> list[float]:
    """Return the logits of the token that follows `tokens`, as its rules change them: float32 values."""
    params = rules.params
    found = [float(logit) for logit in logits]
    if not changes_logits(params):
        return found
    times = Counter(tokens[num_prompt:])
    for token in set(tokens):
        if found[token] > 0:
            found[token] /= params.repetition_penalty
        else:
            found[token] *= params.repetition_penalty
        if times[token]:
            found[token] -= ONE * (params.presence_penalty + params.frequency_penalty * times[token])
        # Everything is exact in 64 bits; the one rounding is here.
        (found[token],) = struct.unpack("f", struct.pack("f", found[token]))
    edges = edges_after(params.grammar, tokens[num_prompt:]) if params.grammar else None
    for token in range(len(found)):
        if is_forbidden(token, rules, tokens, num_prompt) or (edges is not None and token not in edges):
            found[token] = -inf
    return found


def edges_after(grammar: Grammar, output: Sequence[int]) -> dict[int, int] | None:
    """Return the tokens that may follow an output, each with its state; None where the grammar is over."""
    edges: dict[int, int] = {edge[0]: edge[1] for edge in grammar[0]}
    for token in output:
        if token not in edges:
            return None
        edges = {edge[0]: edge[1] for edge in grammar[edges[token]]}
        if not edges:
            return None
    return edges


def cut_off(grammar: Grammar, output: Sequence[int], drafts: Sequence[int], no_draft: int) -> list[int]:
    """Return the drafts that may follow an output one after the other, and `no_draft` for the rest."""
    kept: list[int] = []
    for draft in drafts:
        edges = edges_after(grammar, [*output, *kept])
        if edges is None or draft not in edges:
            break
        kept.append(draft)
    return kept + [no_draft] * (len(drafts) - len(kept))


def is_forbidden(token: int, rules: Rules, tokens: Sequence[int], num_prompt: int) -> bool:
    """Tell whether a token must not follow `tokens`."""
    params = rules.params
    if params.allowed_tokens and token not in params.allowed_tokens:
        return True
    if token in rules.stop and len(tokens) - num_prompt < params.min_tokens:
        return True
    return any(
        word[-1] == token and tuple(tokens[len(tokens) - len(word) + 1 :]) == word[:-1]
        for word in params.bad_words
        if len(word) <= len(tokens) + 1
    )


def hash_of(logits: Sequence[float]) -> int:
    """Return the sum of the bits of float32 values times the odd numbers 1, 3, 5, ..., modulo 2^64."""
    bits = struct.unpack(f"{len(logits)}I", struct.pack(f"{len(logits)}f", *logits))
    total: int = sum(word * (2 * index + 1) for index, word in enumerate(bits))
    return total % (1 << 64)


def logprobs_of(logits: Sequence[float], token: int, count: int) -> tuple[int | float, ...]:
    """Return `count` ids, each followed by its logprob: a token, then the likeliest ones, the lowest among equals."""
    largest = max(logits) / ONE
    total = largest + log(sum(exp(logit / ONE - largest) for logit in logits))
    ids = [token, *sorted(range(len(logits)), key=lambda token: (-logits[token], token))[: count - 1]]
    return tuple(value for token in ids[:count] for value in (token, logits[token] / ONE - total))
