"""Expected model values (tokens, KV entries, hidden states, logits) of a request, by position.

`ModelValues` holds the values at all positions of a prompt and its continuation under a request's rules, greedy or
sampled with the noise of each position; they are computed once and looked up later. It ignores stop conditions, so that
steps after a stop can be compared too.
"""

from itertools import compress, cycle
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.spec import EngineSpec
from workers.oracle.derived import changes_logits, length_limit
from workers.oracle.drafters import TRUTHS
from workers.oracle.logits_processing import Edges, Rules, edges_after, edges_of, hash_of, logprobs_of, processed_logits
from workers.oracle.random_sampling import choose, cuts_of
from workers.record import model

NEVER = 1 << 62
_TOKEN_LIMIT = 400_000
_SHIFTS = (np.uint64(23), np.uint64(47))
_MULTIPLIER = np.uint64(0x2127599BF4325C37)
_LOGIT_SHIFT = np.uint64(model.LOGIT_SHIFT)


class SpoiledLogit(NamedTuple):
    """A logit that an event sets to NaN or infinity: (column in the row, token, value)."""

    column: int
    token: int
    value: float


class ModelValues:
    """A request's tokens, KV entries, recurrent states and logits at each position.

    - `tokens` has one token more than there are computed positions.
    - `hidden` is the last hidden state, `inputs` the input of the recurrent layer, `drafter` the reference drafter.
    - `logits`: hashes of processed logits after each position, from the last prompt token on, if rules change logits.
    - `end`: the position where no token can be sampled, because all logits are -inf; later tokens are never accepted.
    - `final`: the number of tokens at which the grammar (`edges`) ends.
    - `ambiguous`: positions of tokens sampled so close to a border that an engine may sample others.
    """

    def __init__(self, prompt: tuple[int, ...], spec: EngineSpec, rules: Rules | None = None) -> None:
        self.tokens = list(prompt)
        self.logits: list[int] = []
        self._first_logits = len(prompt) - 1
        self.end = self.final = NEVER
        self.ambiguous: set[int] = set()
        self._rules = rules
        self.edges: Edges = edges_of(rules.params.grammar) if rules is not None else ()
        self._cuts = cuts_of(spec)
        self.kv: list[int] = []
        self.attention: list[int] = []
        self.inputs: list[int] = []
        self.states: list[int] = []
        self.hidden: list[int] = []
        self._logprobs: dict[tuple[int, int, str], tuple[int | float, ...]] = {}
        self._hybrid = spec.layers == "hybrid"
        self._width = spec.conv_width
        self._vocabulary = (np.arange(spec.vocab_size, dtype=np.uint64) + np.uint64(1)) * np.uint64(model.VOCABULARY)
        self._sum_kv = self._sum_kv_position = 0
        self.drafter = TRUTHS[spec.drafter](self, spec)

    def extend(self, length: int) -> None:
        """Compute the values of all positions below `length`."""
        while len(self.kv) < length:
            self._next()

    def window(self, end: int) -> list[int]:
        """Return the last W - 1 recurrent-layer inputs before position `end`, zero-padded."""
        count = self._width - 1
        return self.inputs[end - count : end] if end >= count else [0] * (count - end) + self.inputs[:end]

    def logits_at(self, position: int, count: int) -> list[int]:
        """Return the hashes of the logits at `count` positions, the first at `position`."""
        first = position - self._first_logits
        return self.logits[first : first + count]

    def logprobs_after(self, position: int, count: int, mode: str) -> tuple[int | float, ...]:
        """Return the logprobs after a position: of the sampled and the `count` - 1 likeliest tokens."""
        found = self._logprobs.get((position, count, mode))
        if found is None:
            logits: list[float] = self._logits(self.hidden[position]).tolist()
            if mode == "processed" and self._rules is not None:
                known = self.tokens[: position + 1]
                whole = [*map(int, logits)]
                logits = processed_logits(whole, self._rules, known, self._first_logits + 1, self.edges)
            found = self._logprobs[position, count, mode] = logprobs_of(logits, self.tokens[position + 1], count)
        return found

    def line_at(self, position: int, spoiled: SpoiledLogit | None = None) -> list[float]:
        """Return the processed logits after a position, with a corrupted one if `spoiled` is given."""
        logits = self._logits(self.hidden[position]).tolist()
        if spoiled is not None:
            logits[spoiled.token] = spoiled.value
        if self._rules is None:
            return [*map(float, logits)]
        return processed_logits(logits, self._rules, self.tokens[: position + 1], self._first_logits + 1, self.edges)

    def _next(self) -> None:
        position, hidden = len(self.kv), self._compute()
        if position + 1 == len(self.tokens):
            self.tokens.append(self.argmax(hidden) if self._rules is None else self._choose(hidden, self._rules))
        self.drafter.follow(position)

    def _compute(self) -> int:
        """Run the target model at the next position; return its last hidden state."""
        position = len(self.kv)
        hidden = model.embed(self.tokens[position])
        word = model.kv_entry(hidden, position, 0)
        self._sum_kv += word
        self._sum_kv_position += word * position
        output = model.attention(self._sum_kv, self._sum_kv_position, position)
        hidden = model.after_attention(hidden, output)
        self.kv.append(word)
        self.attention.append(output)
        if self._hybrid:
            self.inputs.append(hidden)
            # Zeros before the first input add nothing.
            state = model.advance(self.states[-1] if position else 0, self.inputs[-self._width :])
            self.states.append(state)
            hidden = model.after_recurrent(hidden, state)
        self.hidden.append(hidden)
        return hidden

    def argmax(self, hidden: int) -> int:
        """Return the token with the largest logit for a hidden state; the lowest id on a tie."""
        return int(self._logits(hidden).argmax())

    def scores(self, hidden: int) -> list[int]:
        found: list[int] = self._logits(hidden).tolist()
        return found

    def _choose(self, hidden: int, rules: Rules) -> int:
        """Return the next token: argmax, or sampled with the noise of its position."""
        logits = processed_logits(self._logits(hidden).tolist(), rules, self.tokens, self._first_logits + 1, self.edges)
        if changes_logits(rules.params):
            self.logits.append(hash_of(logits))
        largest, position = max(logits), len(self.tokens)
        token = logits.index(largest)
        if largest == -inf:
            self.end = min(self.end, position)
        elif rules.params.temperature:
            drawn = choose(logits, rules.params, position, self._cuts)
            assert drawn.token is not None, "no token was sampled although some logit is above -inf"
            token = drawn.token
            if drawn.is_ambiguous:
                self.ambiguous.add(position)
        self._follow_grammar(token)
        return token

    def _follow_grammar(self, token: int) -> None:
        if not self.edges or self.final != NEVER:
            return
        if edges_after(self.edges, [*self.tokens[self._first_logits + 1 :], token]) is None:
            self.final = len(self.tokens) + 1

    def _logits(self, hidden: int) -> NDArray[np.uint64]:
        """Return the logits of all tokens for a hidden state."""
        x: NDArray[np.uint64] = self._vocabulary + np.uint64(hidden)
        x ^= x >> _SHIFTS[0]
        x *= _MULTIPLIER
        x ^= x >> _SHIFTS[1]
        x >>= _LOGIT_SHIFT
        return x


class ModelValueCache:
    """Bounded cache of `ModelValues`, by prompt and sampling rules."""

    def __init__(self) -> None:
        self._value_cache: dict[tuple[object, ...], ModelValues] = {}
        self._num_tokens = 0

    def model_values(
        self, prompt: tuple[int, ...], spec: EngineSpec, length: int, rules: Rules | None = None
    ) -> ModelValues:
        """Return a prompt's model values under sampling rules, at all positions below `length`.

        Never longer values, though it would serve a correct engine: the verdict on a faulty engine must not depend on
        earlier runs.
        """
        shape = (spec.layers, spec.vocab_size, spec.conv_width, spec.drafter, spec.drafter_max_len)
        key = (prompt, length, *shape, cuts_of(spec), rules)
        found = self._value_cache.get(key)
        if found is None:
            if self._num_tokens > _TOKEN_LIMIT:
                self._value_cache.clear()
                self._num_tokens = 0
            found = self._value_cache[key] = ModelValues(prompt, spec, rules)
            self._num_tokens += length
        found.extend(length)
        return found


def max_positions(num_prompt: int, max_tokens: int, spec: EngineSpec) -> int:
    """Return the number of positions a request can reach, with draft tokens in flight."""
    return length_limit(spec, num_prompt, max_tokens) + max(3, 1 + spec.depth) * (1 + spec.num_speculative_tokens)


def script(model_values: ModelValues, num_prompt: int, bits: str, spec: EngineSpec) -> list[int]:
    """Return the scripted draft token by position: right for bit 1, wrong for bit 0."""
    tokens, vocab_size = model_values.tokens[: spec.max_model_len], spec.vocab_size
    for position in compress(range(num_prompt, len(tokens)), map("0".__eq__, cycle(bits))):
        tokens[position] = (tokens[position] + 1) % vocab_size
    return tokens + [0] * (spec.max_model_len - len(tokens))
