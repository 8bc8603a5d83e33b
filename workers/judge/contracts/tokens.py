"""Output rules (contracts) on tokens: allowed tokens, end of output, finish reason.

Verifies:
- `vocabulary`, and every mask of the request: `min_tokens`, `allowed_tokens`, `bad_words`, `no_repeats`, `logit_bias`,
  `grammar`;
- the end of an output: `max_tokens`, `stop`, `stop_words`, `broken_grammar`, `finish_reason`, `stop_reason`, `text`.

Does not verify: which of the allowed tokens is sampled (`logprobs` and the oracle do).
"""

from collections.abc import Iterator, Mapping, Sequence

from scenarios.events import Submit
from scenarios.sampling import Output
from workers.judge.contracts.bans import NO_STATE, Bans, bans_of
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Delivery, Terms
from workers.record.evidence import Fact, fact

# The rule of each contract.
CONTRACTS: Mapping[str, str] = {
    "vocabulary": "every output token is in the vocabulary",
    "max_tokens": "no more output tokens than max_tokens and max_model_len allow; reason length at that limit",
    "stop": "no output token after a stop token; reason stop if a stop token is the last one",
    "stop_words": "no output token after the first complete stop word; reason stop if a stop word ends the output",
    "finish_reason": "the reason fits the end: stop, length, abort after an abort, error if no token is allowed",
    "stop_reason": "the stop token or stop word that the last token completes; nothing if the output ends otherwise",
    "text": "the text spells the output tokens, without a final stop token or stop word unless these are included",
    "min_tokens": "no stop token among the first min_tokens output tokens",
    "allowed_tokens": "every output token is one of the allowed tokens",
    "bad_words": "no output token completes a bad word",
    "no_repeats": "no output token is equal to the one before",
    "logit_bias": "no token with a bias of -100 while another is allowed; only tokens with a bias of 100 while one is "
    "allowed; with logprobs, also the effect of smaller biases",
    "grammar": "every output token is an edge of the current grammar state; the output ends in a state without edges",
    "broken_grammar": "a request with a grammar that does not compile ends with reason error and without tokens",
}


def token_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first broken rule in a request's tokens, end or finish reason, or None."""
    submit, output = given.submit, given.output
    name = submit.request
    if output is None or output.finish_reason is None:
        actual = fact("nothing") if output is None else fact("tokens_open", count=len(output.tokens))
        return Breach("answer", name, None, fact("ended_output"), actual)
    tokens = output.tokens
    if tokens and not (min(tokens) >= 0 and max(tokens) < terms.vocab_size):
        position = next(at for at, token in enumerate(tokens) if not 0 <= token < terms.vocab_size)
        due = fact("of_vocabulary", last=terms.vocab_size - 1)
        return Breach("vocabulary", name, position, due, fact("token", token=tokens[position]))
    bans = bans_of(submit, terms.words_from_prompt, terms.vocab_size, terms.reasoning_end)
    if bans is not None:
        for position, token in enumerate(tokens):
            contract = bans.ban_on(token) if terms.masks_bind else None
            if contract is not None:
                return Breach(contract, name, position, bans.requirement(contract), fact("token", token=token))
            bans.follow(token)
    return (
        _end_breach(given, output, terms, bans) or _stop_reason_breach(submit, output) or _text_breach(submit, output)
    )


def _end_breach(given: Delivery, output: Output, terms: Terms, bans: Bans | None) -> Breach | None:
    """Return the broken rule of an output's end or finish reason, or None."""
    name, reason, num_tokens = given.submit.request, output.finish_reason, len(output.tokens)
    end, why, contract = _end_of(given.submit, output.tokens, terms)
    if end is not None and num_tokens > end:
        return Breach(contract, name, end, fact("an_end_behind", count=end), fact("tokens", count=num_tokens))
    if given.at_abort is not None:
        had = len(given.at_abort.tokens)
        if num_tokens != had:
            return Breach("abort", name, had, fact("kept_at_abort", count=had), fact("tokens", count=num_tokens))
        return None if reason == "abort" else Breach("abort", name, had, *_reasons("abort", reason))
    if end is not None:
        if reason == why:
            return None
        return Breach("finish_reason", name, end - 1, *_reasons(why, reason))
    if reason == "error" and (
        terms.loads_fail or name in terms.spoiled or (bans is not None and _bans_every_token(bans))
    ):
        return None
    contract = {"stop": "stop", "length": "max_tokens"}.get(str(reason), "finish_reason")
    return Breach(contract, name, num_tokens, fact("more_tokens", count=num_tokens), fact("reason", reason=reason))


def _stops(submit: Submit, output: Output) -> list[int | tuple[int, ...]]:
    """Return the stop token and stop words that the output's last token completes.

    A grammar may end an output at any token: then the result is that token, or nothing (an empty tuple).
    """
    if output.finish_reason != "stop":
        return [()]
    last = output.tokens[-1]
    words = [word for word in submit.params.stop_words if output.tokens[-len(word) :] == word]
    return [*([last] if last in submit.stop else ()), *words] or [last, ()]


def _stop_reason_breach(submit: Submit, output: Output) -> Breach | None:
    """Return the broken rule if the reported stop reason is wrong, or None."""
    stops, reason, num_tokens = _stops(submit, output), output.stop_reason, len(output.tokens)
    if reason is None or any(type(stop) is type(reason) and stop == reason for stop in stops):
        return None
    return Breach("stop_reason", submit.request, num_tokens - 1, *map(_stop_fact, (stops[0], reason)))


def _stop_fact(stop: int | tuple[int, ...]) -> Fact:
    if isinstance(stop, int):
        return fact("token", token=stop)
    return fact("these_tokens", tokens=stop) if stop else fact("nothing")


def _text_breach(submit: Submit, output: Output) -> Breach | None:
    """Return the broken rule if the detokenized text is wrong, or None.

    The text of an aborted request may be shorter.
    """
    text, tokens = output.text, output.tokens
    if text is None:
        return None
    cuts = [1 if isinstance(stop, int) else len(stop) for stop in _stops(submit, output)]
    ends = [0] if submit.params.include_stop_str_in_output else cuts
    due = [tokens[: len(tokens) - cut] for cut in ends]
    if text in due or (output.finish_reason == "abort" and text == tokens[: len(text)]):
        return None
    position = next((at for at, (one, other) in enumerate(zip(text, due[0], strict=False)) if one != other), None)
    return Breach("text", submit.request, position, *(fact("these_tokens", tokens=each) for each in (due[0], text)))


def _reasons(due: str, seen: str | None) -> tuple[Fact, Fact]:
    return fact("reason", reason=due), fact("reason", reason=seen)


def _end_of(submit: Submit, tokens: Sequence[int], terms: Terms) -> tuple[int | None, str, str]:
    """Return (number of tokens, finish reason, rule) at which the output must end.

    (None, "", "") if the tokens do not reach an end.
    """
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    ends = [(min(submit.max_tokens, terms.max_model_len - len(submit.prompt)), 1, "length", "max_tokens")]
    if submit.stop:
        stop = frozenset(submit.stop)
        ends += [(at + 1, 0, "stop", "stop") for at, token in enumerate(tokens) if token in stop][:1]
    ends += [(at, 0, "stop", "stop_words") for at in _ends_of_words(submit, tokens)][:1]
    if submit.params.broken_grammar:
        ends += [(0, 0, "error", "broken_grammar")]
    if submit.params.grammar:
        ends += [(at, 0, "stop", "grammar") for at in _ends_of_grammar(submit, tokens, terms.reasoning_end)]
    end, _, why, contract = min(ends)
    return (end, why, contract) if end <= len(tokens) else (None, "", "")


def _ends_of_words(submit: Submit, tokens: Sequence[int]) -> Iterator[int]:
    """Yield each output length (above `min_tokens`) at which a stop word is complete."""
    words = submit.params.stop_words
    for end in range(submit.params.min_tokens + 1, len(tokens) + 1) if words else ():
        if any(len(word) <= end and tuple(tokens[end - len(word) : end]) == word for word in words):
            yield end


def _ends_of_grammar(submit: Submit, tokens: Sequence[int], reasoning_end: int | None) -> Iterator[int]:
    """Yield the output length at which the request's grammar ends; nothing if it does not.

    It ends in a state without edges, or at a token without an edge.
    """
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    state, grammar = 0, submit.params.grammar
    is_reasoning = reasoning_end is not None and reasoning_end not in submit.prompt
    for place, token in enumerate(tokens):
        if is_reasoning:
            is_reasoning = token != reasoning_end
            continue
        state = next((edge[1] for edge in grammar[state] if edge[0] == token), NO_STATE)
        if state == NO_STATE or not grammar[state]:
            yield place + 1
            return


def _bans_every_token(bans: Bans) -> bool:
    """Return whether the masks ban every token as the next one."""
    return all(bans.mask_on(token) is not None for token in range(bans.vocab_size))
