"""Sampling parameters of one request: how its tokens follow from the target's logits."""

from collections.abc import Iterator
from typing import Annotated, TypeAlias

from pydantic import Field

from scenarios.spec import Index, Value

PENALTY_STEPS = 64
BAD_WORDS_MAX = 8
BAD_WORD_LENGTH_MAX = 8
BIASES_MAX = 64
LOGPROB_TOKENS_MAX = 8
# A bias of this size forces or bans a token, whatever its logit is.
BIAS_MAX = 100.0
TEMPERATURE_MIN = 1 / 16
TEMPERATURE_MAX = 8.0
REPETITION_PENALTIES = tuple(2.0**exponent for exponent in range(-3, 4))

Bias: TypeAlias = Annotated[float, Field(strict=True, ge=-BIAS_MAX, le=BIAS_MAX)]
Penalty: TypeAlias = Annotated[float, Field(strict=True, ge=-2.0, le=2.0)]
Tokens: TypeAlias = tuple[Index, ...]
# For each state its edges [token, next state]; a state without edges is an end.
Grammar: TypeAlias = tuple[tuple[Tokens, ...], ...]


class SamplingParams(Value):
    """Parameters by which a token is chosen from the target's logits; the defaults choose the largest.

    No stop token is chosen among the first `min_tokens` output tokens, no token that completes one of `bad_words`,
    and none outside `allowed_tokens`, if there are any. Every token of prompt and output has its logit divided by
    `repetition_penalty` (multiplied, where it is negative); from those of the output, `presence_penalty` and
    `frequency_penalty` for each occurrence are subtracted. Before that each token of `logit_bias` has its bias added: a
    token of bias -100 is never chosen while another may be, and while one of 100 may be, only such are.
    Each token comes with `num_logprobs` logprobs: its own, then those of the likeliest tokens. Each token of the prompt
    but the first comes with `num_prompt_logprobs` of them, which depend on the tokens before it alone. Instead of the
    likeliest tokens' it comes with those of `logprob_tokens`, if there are any, in their order.
    With `no_repeats` no token of the output comes directly behind itself.
    Behind the first `min_tokens` an output ends with reason `stop` where one of `stop_words` is complete, as a client
    finds in its text.
    With a `grammar`, a token must be on an edge of the current state; state 0 is the first, and the output ends in a
    state without edges. A `broken_grammar` is one that no engine makes sense of: the request ends with reason `error`.
    At a `temperature` above 0 the token is drawn: of those at least `min_p` times as probable as the likeliest, of the
    `top_k` largest logits (0: of all), and of those the fewest that have `top_p` of their probability, by numbers that
    follow from `seed` and the token's position.
    Penalties are multiples of 1/64 and powers of two, so that a logit is exact up to its one last rounding.
    """

    min_tokens: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    bad_words: Annotated[tuple[Annotated[Tokens, Field(min_length=1)], ...], Field(max_length=BAD_WORDS_MAX)] = ()
    no_repeats: Annotated[bool, Field(strict=True)] = False
    stop_words: Annotated[tuple[Annotated[Tokens, Field(min_length=1)], ...], Field(max_length=BAD_WORDS_MAX)] = ()
    allowed_tokens: Tokens = ()
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(strict=True, ge=0.125, le=8.0)] = 1.0
    logit_bias: Annotated[tuple[tuple[Index, Bias], ...], Field(max_length=BIASES_MAX)] = ()
    num_logprobs: Annotated[int, Field(strict=True, ge=0, le=6)] = 0
    num_prompt_logprobs: Annotated[int, Field(strict=True, ge=0, le=6)] = 0
    logprob_tokens: Annotated[Tokens, Field(max_length=LOGPROB_TOKENS_MAX)] = ()
    grammar: Grammar = ()
    broken_grammar: Annotated[bool, Field(strict=True)] = False
    temperature: Annotated[float, Field(strict=True, ge=0.0, le=TEMPERATURE_MAX)] = 0.0
    top_k: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    top_p: Annotated[float, Field(strict=True, ge=0.0, le=1.0)] = 1.0
    min_p: Annotated[float, Field(strict=True, ge=0.0, le=1.0)] = 0.0
    seed: Index = 0

    @property
    def changes_logits(self) -> bool:
        """Tell whether anything is done to the logits of this request."""
        masks = self.bad_words or self.allowed_tokens or self.grammar
        return self.min_tokens > 0 or bool(masks) or self.has_penalties

    @property
    def logprobs_width(self) -> int:
        """Number of logprobs that each token of the output comes with."""
        return 1 + len(self.logprob_tokens) if self.logprob_tokens else self.num_logprobs

    @property
    def is_limited(self) -> bool:
        """Tell whether tokens are drawn from the likely ones alone."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)

    @property
    def has_penalties(self) -> bool:
        """Tell whether logits depend on how often a token occurred."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1.0

    def problems(self, vocab_size: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each value that no engine supports: its path of keys and indexes, and a message."""
        for key in ("presence_penalty", "frequency_penalty"):
            penalty = getattr(self, key)
            if not (penalty * PENALTY_STEPS).is_integer():
                yield (key,), f"{key} is {penalty}; allowed are multiples of 1/{PENALTY_STEPS}, which are exact"
        if self.repetition_penalty not in REPETITION_PENALTIES:
            allowed = ", ".join(f"{penalty:g}" for penalty in REPETITION_PENALTIES)
            yield ("repetition_penalty",), f"repetition_penalty is {self.repetition_penalty}; allowed are {allowed}"
        if 0 < self.temperature < TEMPERATURE_MIN:
            yield ("temperature",), f"temperature is {self.temperature}; allowed are 0 and {TEMPERATURE_MIN} to 8"
        if self.top_p == 0:
            yield ("top_p",), f"top_p is {self.top_p}; allowed are numbers above 0 and at most 1"
        for index, word in enumerate(self.bad_words):
            if len(word) > BAD_WORD_LENGTH_MAX:
                message = f"a bad word of {len(word)} tokens; at most {BAD_WORD_LENGTH_MAX} are allowed"
                yield ("bad_words", index), message
        biased = [token for token, _ in self.logit_bias]
        for place, token in enumerate(biased):
            if token >= vocab_size:
                yield ("logit_bias", place, 0), f"token id {token}; allowed are 0 to vocab_size - 1 = {vocab_size - 1}"
            if token in biased[:place]:
                yield ("logit_bias", place, 0), f"token id {token} has two biases; it has one"
        if self.logprob_tokens and self.num_logprobs:
            yield ("logprob_tokens",), "tokens are named beside num_logprobs; either says which logprobs are delivered"
        if len(set(self.logprob_tokens)) < len(self.logprob_tokens):
            yield ("logprob_tokens",), "a token is named twice; each is named once"
        places = [(("allowed_tokens", place), token) for place, token in enumerate(self.allowed_tokens)]
        places += [(("logprob_tokens", place), token) for place, token in enumerate(self.logprob_tokens)]
        for index, word in enumerate(self.bad_words):
            places += [(("bad_words", index, place), token) for place, token in enumerate(word)]  # type: ignore[misc]
        for index, word in enumerate(self.stop_words):
            places += [(("stop_words", index, place), token) for place, token in enumerate(word)]  # type: ignore[misc]
        yield from self._grammar_problems(vocab_size)
        for where, token in places:
            if token >= vocab_size:
                yield where, f"token id {token}; allowed are 0 to vocab_size - 1 = {vocab_size - 1}"

    def _grammar_problems(self, vocab_size: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if self.grammar and self.broken_grammar:
            yield ("broken_grammar",), "a broken grammar beside a grammar; a request has one of them"
        if self.grammar and not self.grammar[0]:
            yield ("grammar", 0), "state 0 has no edges; an output has at least one token"
        for state, edges in enumerate(self.grammar):
            led: set[int] = set()
            for place, edge in enumerate(edges):
                where = ("grammar", state, place)
                if len(edge) != 2:
                    yield where, f"an edge of {len(edge)} numbers; an edge is [token, next state]"
                elif edge[0] >= vocab_size:
                    yield where, f"token id {edge[0]}; allowed are 0 to vocab_size - 1 = {vocab_size - 1}"
                elif edge[1] >= len(self.grammar):
                    yield where, f"next state {edge[1]}; allowed are 0 to {len(self.grammar) - 1}"
                elif edge[0] in led:
                    yield where, f"token id {edge[0]} leads from state {state} to two states; each leads to one"
                led.update(edge[:1])
