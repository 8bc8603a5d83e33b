"""Sampling parameters of a request, each declared once; the output of a request.

The type of a field is the type and range of the parameter; its `Feature` declares the rest. Validation, the JSON
schema, random traces, shrinking and the capabilities of engines use both.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from scenarios.draw import below
from scenarios.spec import EngineSpec, Index, Value

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
MIN_PS = (0.0, 0.01, 0.1, 0.5, 1.0)
BIASES = (-BIAS_MAX, BIAS_MAX, -2.0, -0.5, 1.0, 3.0)
STOP_WORDS_DRAWN = 8
# Bits of a request's number; each sets one parameter.
MIN_TOKENS, BAD_WORDS, ALLOWED_TOKENS, PRESENCE, FREQUENCY, REPETITION, GRAMMAR = (1 << bit for bit in range(7))

Bias: TypeAlias = Annotated[float, Field(strict=True, ge=-BIAS_MAX, le=BIAS_MAX)]
PenaltyValue: TypeAlias = Annotated[float, Field(strict=True, ge=-2.0, le=2.0)]
Tokens: TypeAlias = tuple[Index, ...]
Word: TypeAlias = Annotated[Tokens, Field(min_length=1)]
# For each state its edges [token, next state]; a state without edges is an end.
Grammar: TypeAlias = tuple[tuple[Tokens, ...], ...]
# A path of keys and indexes, and a message.
Refused: TypeAlias = tuple[tuple[str | int, ...], str]


class Number(NamedTuple):
    """An integer that encodes sampling parameters: its low bits say which ones are set."""

    number: int
    site: str
    spec: EngineSpec

    def has(self, bit: int) -> bool:
        """Return whether a bit is 1."""
        return bool(self.number & bit)

    def pick(self, what: str, bound: int, index: int = 0) -> int:
        """Return an integer below `bound` as a function of the label (number, site, what, index)."""
        return below(bound, self.number, self.site, what, index)


class Addition(NamedTuple):
    """A generated request to which situations add parameters that not all engines have."""

    params: "SamplingParams"
    spec: EngineSpec
    seed: int
    request_index: int

    def pick(self, what: str, bound: int, number: int = 0) -> int:
        """Return an integer below `bound` that depends on the seed, the request and the labels."""
        return below(bound, self.seed, "extension", f"{what} of {self.request_index}", number)


def _nothing_refused(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    yield from ()


def _nothing_added(to: Addition) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class Feature:
    """Declaration of a sampling parameter: feature flags, generator and checks.

    - `contracts`: names of the contracts that judge it.
    - `allowed`: a predicate on values, and a phrase for the allowed values.
    - `refused`: yields further values that no engine supports, as paths in the value, each with a message.
    - `drawn`: decodes its value in the random traces of all engines, from the number of `site`.
    - `added`: returns parameters of a request in traces with the situation of the feature's name, for engines with it.
    - `plain`: values with no effect, in addition to the default.
    """

    contracts: tuple[str, ...] = ()
    allowed: tuple[Callable[[Any], bool], str] | None = None
    refused: Callable[["SamplingParams", Any, int], Iterator[Refused]] = _nothing_refused
    drawn: Callable[[Number], object] | None = None
    site: str = "params"
    added: Callable[[Addition], Mapping[str, object]] = _nothing_added
    plain: tuple[object, ...] = ()


def declared_features(model: type[BaseModel]) -> Mapping[str, Feature]:
    """Return the `Feature` declarations of a model's fields, by field name."""
    fields = model.model_fields.items()
    return {name: each for name, field in fields for each in field.metadata if isinstance(each, Feature)}


def _vocabulary(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    """Yield path and message of each token id outside the vocabulary, in a list or nested lists."""
    for place, each in enumerate(value):
        if isinstance(each, tuple):
            yield from (((place, *path), message) for path, message in _vocabulary(params, each, vocab_size))
        elif each >= vocab_size:
            yield (place,), _not_in_vocabulary(each, vocab_size)


def _not_in_vocabulary(token: int, vocab_size: int) -> str:
    return f"token id {token}; allowed are 0 to vocab_size - 1 = {vocab_size - 1}"


def _long_bad_words(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    for index, word in enumerate(value):
        if len(word) > BAD_WORD_LENGTH_MAX:
            yield (index,), f"a bad word of {len(word)} tokens; at most {BAD_WORD_LENGTH_MAX} are allowed"
    yield from _vocabulary(params, value, vocab_size)


def _penalty(name: str, bit: int) -> Feature:
    """Declare a presence or frequency penalty, which is subtracted from logits."""

    def drawn(number: Number) -> float:
        steps = number.pick(name, 4 * PENALTY_STEPS + 1) - 2 * PENALTY_STEPS
        return steps / PENALTY_STEPS if number.has(bit) else 0.0

    allowed = f"multiples of 1/{PENALTY_STEPS}, which are exact"
    return Feature(("penalties",), (lambda penalty: (penalty * PENALTY_STEPS).is_integer(), allowed), drawn=drawn)


def _refused_biases(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    biased = [token for token, _ in value]
    for place, token in enumerate(biased):
        if token >= vocab_size:
            yield (place, 0), _not_in_vocabulary(token, vocab_size)
        if token in biased[:place]:
            yield (place, 0), f"token id {token} has two biases; it has one"


def _refused_logprob_tokens(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    if value and params.num_logprobs:
        yield (), "logprob_tokens with num_logprobs; only one of them may select the logprobs to deliver"
    if len(set(value)) < len(value):
        yield (), "a token id appears twice; each may appear once"
    yield from _vocabulary(params, value, vocab_size)


def _refused_broken_grammar(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    if params.grammar and value:
        yield (), "broken_grammar with grammar; a request may have one of them"


def _refused_grammar(params: "SamplingParams", value: Any, vocab_size: int) -> Iterator[Refused]:
    if value and not value[0]:
        yield (0,), "state 0 has no edges; an output has at least one token"
    for state, edges in enumerate(value):
        led: set[int] = set()
        for place, edge in enumerate(edges):
            where = (state, place)
            if len(edge) != 2:
                yield where, f"an edge of {len(edge)} numbers; an edge is [token, next state]"
            elif edge[0] >= vocab_size:
                yield where, _not_in_vocabulary(edge[0], vocab_size)
            elif edge[1] >= len(value):
                yield where, f"next state {edge[1]}; allowed are 0 to {len(value) - 1}"
            elif edge[0] in led:
                yield where, f"token id {edge[0]} leads from state {state} to two states; each leads to one"
            led.update(edge[:1])


def _drawn_grammar(number: Number) -> Grammar:
    """Generate a grammar of 2 to 5 states with 1 to 8 edges each; in half, the last is final."""
    if not number.has(GRAMMAR):
        return ()
    num_states, vocab_size = 2 + number.pick("states", 4), number.spec.vocab_size
    states = []
    for state in range(num_states):
        tokens = {number.pick(f"edge {state}", vocab_size, at) for at in range(1 + number.pick("edges", 8, state))}
        states.append(tuple((token, number.pick(f"to {state}", num_states, token)) for token in sorted(tokens)))
    if number.pick("free", 2) == 0:
        # The first state allows every token, and a third of them may lead to another state.
        states[0] = tuple(
            (token, 0 if number.pick("off", 3, token) else number.pick("to 0", num_states, token))
            for token in range(vocab_size)
        )
    return (*states[:-1], () if number.pick("end", 2) else states[-1])


def _has_few_tokens(number: Number) -> bool:
    """Return whether few tokens are allowed, so that bad words of several tokens occur."""
    return number.has(BAD_WORDS) and number.pick("few", 3) > 0


def _drawn_tokens(number: Number, what: str, count: int) -> Tokens:
    return tuple(number.pick(what, number.spec.vocab_size, index) for index in range(count))


def _drawn_allowed_tokens(number: Number) -> Tokens:
    is_few = _has_few_tokens(number)
    count = 2 + number.pick("how few", 2) if is_few else 1 + number.pick("allowed", 6)
    return _drawn_tokens(number, "allowed", count) if is_few or number.has(ALLOWED_TOKENS) else ()


def _drawn_bad_words(number: Number) -> tuple[Tokens, ...]:
    """Generate bad words of allowed tokens; one word in four has at least 4 tokens."""
    if not number.has(BAD_WORDS):
        return ()
    allowed, words = _drawn_allowed_tokens(number), []
    for index in range(1 + number.pick("words", 4 if _has_few_tokens(number) else 8)):
        is_long = number.pick("is_long", 4, index) == 0
        long = 4 + number.pick("long", BAD_WORD_LENGTH_MAX - 3, index)
        length = long if is_long else 1 + number.pick("length", 3, index)
        # Bad words of one token would ban too many of the few allowed tokens.
        found = _drawn_tokens(number, f"word {index}", max(2, length) if allowed else length)
        words.append(tuple(allowed[token % len(allowed)] for token in found) if allowed else found)
    return tuple(words)


def _added_logprobs(to: Addition) -> Mapping[str, object]:
    # Deliver logits for both: logits of prompt tokens are compared with logits of output tokens.
    return {} if to.params.num_logprobs else {"num_logprobs": 1 + to.pick("logits", 3)}


def _added_prompt_logprobs(to: Addition) -> Mapping[str, object]:
    return {"num_prompt_logprobs": 1 + to.pick("prompt", 6)} if to.pick("has prompt", 3) else {}


def _added_biases(to: Addition) -> Mapping[str, object]:
    if not to.pick("has biases", 2):
        return {}
    tokens = sorted({to.pick("token", to.spec.vocab_size, number) for number in range(1 + to.pick("biases", 4))})
    return {"logit_bias": tuple((token, BIASES[to.pick("bias", len(BIASES), token)]) for token in tokens)}


def _added_logprob_tokens(to: Addition) -> Mapping[str, object]:
    if not to.pick("has named", 2):
        return {}
    named = dict.fromkeys(to.pick("named", to.spec.vocab_size, number) for number in range(1 + to.pick("names", 5)))
    return {"logprob_tokens": tuple(named), "num_logprobs": 0}


def _added_stop_words(to: Addition) -> Mapping[str, object]:
    if not to.pick("has words", 3):
        return {}
    among = to.params.allowed_tokens or tuple(range(to.spec.vocab_size))
    words = (
        tuple(among[to.pick(f"word {word}", len(among), place)] for place in range(1 + to.pick("length", 4, word) // 3))
        for word in range(1 + to.pick("words", STOP_WORDS_DRAWN))
    )
    return {"stop_words": tuple(words)}


def _added_stop_strings(to: Addition) -> Mapping[str, object]:
    return {"include_stop_str_in_output": False} if to.pick("without stop string", 2) else {}


def _added_no_repeats(to: Addition) -> Mapping[str, object]:
    return {"no_repeats": True} if to.pick("no repeats", 2) else {}


def _added_broken_grammar(to: Addition) -> Mapping[str, object]:
    return {} if to.params.grammar or to.pick("has broken grammar", 3) else {"broken_grammar": True}


def _added_min_p(to: Addition) -> Mapping[str, object]:
    return {"min_p": MIN_PS[to.pick("min_p", len(MIN_PS))]} if to.params.temperature else {}


_MIN_TOKENS = Feature(
    ("min_tokens",), drawn=lambda number: 1 + number.pick("min_tokens", 12) if number.has(MIN_TOKENS) else 0
)
_BAD_WORDS = Feature(("bad_words",), refused=_long_bad_words, drawn=_drawn_bad_words)
_NO_REPEATS = Feature(("no_repeats",), added=_added_no_repeats)
_STOP_WORDS = Feature(("stop_words",), refused=_vocabulary, added=_added_stop_words)
_STOP_STRINGS = Feature(("text", "stop_reason"), added=_added_stop_strings)
_ALLOWED_TOKENS = Feature(("allowed_tokens",), refused=_vocabulary, drawn=_drawn_allowed_tokens)
_REPETITION = Feature(
    ("penalties",),
    (REPETITION_PENALTIES.__contains__, ", ".join(f"{penalty:g}" for penalty in REPETITION_PENALTIES)),
    drawn=lambda number: REPETITION_PENALTIES[number.pick("repetition", 7)] if number.has(REPETITION) else 1.0,
)
_LOGIT_BIAS = Feature(("logit_bias",), refused=_refused_biases, added=_added_biases)
_NUM_LOGPROBS = Feature(
    ("logprobs", "logprob_ranks", "logprob_sum", "same_context"),
    drawn=lambda number: number.pick("logprobs", 7) if number.pick("has_logprobs", 3) else 0,
    added=_added_logprobs,
)
_PROMPT_LOGPROBS = Feature(("prompt_logprobs", "same_context"), added=_added_prompt_logprobs)
_LOGPROB_TOKENS = Feature(("logprob_tokens",), refused=_refused_logprob_tokens, added=_added_logprob_tokens)
_GRAMMAR = Feature(("grammar",), refused=_refused_grammar, drawn=_drawn_grammar)
_BROKEN_GRAMMAR = Feature(("broken_grammar",), refused=_refused_broken_grammar, added=_added_broken_grammar)
_TEMPERATURE = Feature(
    ("greedy",),
    (lambda value: not 0 < value < TEMPERATURE_MIN, f"0 and {TEMPERATURE_MIN} to 8"),
    # Logits are below 16: at the middle temperatures the likeliest of 32 tokens has probability one half.
    drawn=lambda number: (0.0625, 0.5, 0.7, 1.0, 1.0, 2.0, 4.0, 8.0)[number.pick("temperature", 8)],
    site="chance",
)
_TOP_K = Feature(
    ("top_k",),
    drawn=lambda number: 0 if number.pick("has_top_k", 3) else 1 + number.pick("top_k", min(number.spec.vocab_size, 8)),
    site="chance",
)
_TOP_P = Feature(
    ("top_p",),
    (lambda value: value > 0, "numbers above 0 and at most 1"),
    drawn=lambda number: 1.0 if number.pick("has_top_p", 3) else (1 + number.pick("top_p", 99)) / 100,
    site="chance",
)
_MIN_P = Feature(("min_p",), added=_added_min_p)
_SEED = Feature(drawn=lambda number: number.pick("seed", 1 << 62) if number.pick("has_seed", 4) else 0, site="chance")


class SamplingParams(Value):
    """Sampling parameters of a request; by default the token with the largest logit is chosen.

    - `min_tokens`: no stop token is chosen among the first `min_tokens` output tokens, and no stop word ends them.
    - `bad_words`, `allowed_tokens`: no token completes a bad word; if set, only allowed tokens are chosen.
    - `logit_bias`: added to the token's logit first. A token with bias -100 is chosen only if no other token may be;
      if a token with bias 100 may be chosen, only such tokens are.
    - `repetition_penalty`: the logit of each prompt and output token is divided by it (multiplied if negative).
      `presence_penalty` once, and `frequency_penalty` for each occurrence, are subtracted for output tokens.
    - `num_logprobs`: logprobs of each output token: its own, then the likeliest tokens. `num_prompt_logprobs`: the
      same for each prompt token but the first. `logprob_tokens` replaces the likeliest tokens, in its order.
    - `no_repeats`: no output token follows itself.
    - `stop_words`: the output ends with reason `stop` when its text contains one. `include_stop_str_in_output`: the
      text includes the stop token or stop word at its end; the output tokens always include it.
    - `grammar`: a token must be on an edge of the current state, beginning with state 0; the output ends in a state
      without edges. With `broken_grammar` the grammar does not compile: the request ends with reason `error`.
    - `temperature` above 0: the token is sampled from the tokens at least `min_p` times as probable as the likeliest,
      of these the `top_k` largest logits (0: all), and of these the fewest with a total probability of `top_p`. The
      random numbers are a function of `seed` and the token's position.

    Penalties are multiples of 1/64 or powers of two, so a logit is exact up to one final rounding.
    """

    min_tokens: Annotated[int, Field(strict=True, ge=0, le=1_000_000), _MIN_TOKENS] = 0
    bad_words: Annotated[tuple[Word, ...], Field(max_length=BAD_WORDS_MAX), _BAD_WORDS] = ()
    no_repeats: Annotated[bool, Field(strict=True), _NO_REPEATS] = False
    stop_words: Annotated[tuple[Word, ...], Field(max_length=BAD_WORDS_MAX), _STOP_WORDS] = ()
    include_stop_str_in_output: Annotated[bool, Field(strict=True), _STOP_STRINGS] = True
    allowed_tokens: Annotated[Tokens, _ALLOWED_TOKENS] = ()
    presence_penalty: Annotated[PenaltyValue, _penalty("presence", PRESENCE)] = 0.0
    frequency_penalty: Annotated[PenaltyValue, _penalty("frequency", FREQUENCY)] = 0.0
    repetition_penalty: Annotated[float, Field(strict=True, ge=0.125, le=8.0), _REPETITION] = 1.0
    logit_bias: Annotated[tuple[tuple[Index, Bias], ...], Field(max_length=BIASES_MAX), _LOGIT_BIAS] = ()
    num_logprobs: Annotated[int, Field(strict=True, ge=0, le=6), _NUM_LOGPROBS] = 0
    num_prompt_logprobs: Annotated[int, Field(strict=True, ge=0, le=6), _PROMPT_LOGPROBS] = 0
    logprob_tokens: Annotated[Tokens, Field(max_length=LOGPROB_TOKENS_MAX), _LOGPROB_TOKENS] = ()
    grammar: Annotated[Grammar, _GRAMMAR] = ()
    broken_grammar: Annotated[bool, Field(strict=True), _BROKEN_GRAMMAR] = False
    temperature: Annotated[float, Field(strict=True, ge=0.0, le=TEMPERATURE_MAX), _TEMPERATURE] = 0.0
    top_k: Annotated[int, Field(strict=True, ge=0, le=1_000_000), _TOP_K] = 0
    top_p: Annotated[float, Field(strict=True, ge=0.0, le=1.0), _TOP_P] = 1.0
    min_p: Annotated[float, Field(strict=True, ge=0.0, le=1.0), _MIN_P] = 0.0
    seed: Annotated[Index, _SEED] = 0

    @property
    def changes_logits(self) -> bool:
        """Return whether masks or penalties change the logits of this request."""
        masks = self.bad_words or self.allowed_tokens or self.grammar
        return self.min_tokens > 0 or bool(masks) or self.has_penalties

    @property
    def logprobs_width(self) -> int:
        """Number of logprobs delivered with each output token."""
        return 1 + len(self.logprob_tokens) if self.logprob_tokens else self.num_logprobs

    @property
    def has_penalties(self) -> bool:
        """Return whether the request has a presence, frequency or repetition penalty."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1.0

    def problems(self, vocab_size: int) -> Iterator[Refused]:
        """Yield path and message of each value that no engine supports."""
        for name, feature in PARAMS.items():
            value = getattr(self, name)
            if feature.allowed is not None and not feature.allowed[0](value):
                yield (name,), f"{name} is {value}; allowed are {feature.allowed[1]}"
            for path, message in feature.refused(self, value, vocab_size):
                yield (name, *path), message


# The request features that are sampling parameters.
PARAMS = declared_features(SamplingParams)


class Output(NamedTuple):
    """What the client of one request has received so far: tokens, logprobs, finish reason.

    `logprobs` and `prompt_logprobs` are flat lists of token id and logprob; `prompt_logprobs` has all prompt tokens
    after the first, if requested. `stop_reason` is the stop token, or the tokens of the stop word, that ended the
    output; empty for any other end. `text` has one token id for each character. `stop_reason` and `text` are None in
    an engine that does not deliver them.
    """

    tokens: tuple[int, ...]
    finish_reason: str | None
    logprobs: tuple[int | float, ...] = ()
    prompt_logprobs: tuple[int | float, ...] = ()
    stop_reason: int | tuple[int, ...] | None = None
    text: tuple[int, ...] | None = None

    def with_more(self, more: "Output") -> "Output":
        """Return this output followed by the next delivery."""
        return Output(
            tokens=self.tokens + more.tokens,
            finish_reason=more.finish_reason or self.finish_reason,
            logprobs=self.logprobs + more.logprobs,
            prompt_logprobs=self.prompt_logprobs + more.prompt_logprobs,
            stop_reason=more.stop_reason if more.stop_reason is not None else self.stop_reason,
            text=(self.text or ()) + more.text if more.text is not None else self.text,
        )
