"""Reference drafters, one class each: they compute the expected KV entries and draft tokens.

A *word* is a 64-bit integer in place of a vector: the model is an integer model, compared exactly.

`words` is the drafter's KV cache at all positions, as long as every position is followed by its true next token;
`follow` extends it. `drafts` returns the computed values and draft tokens after the last kept token (`kept` tokens of
`ModelValues`).
"""

from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple, Protocol

from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.oracle.random_sampling import Proposal, cuts_of, propose
from workers.record import model

NO_DRAFT = -1
NGRAM_MAX = 3
SUFFIX_MAX = 4


class TargetValues(Protocol):
    """The target model's values by position: tokens, KV entries, recurrent and hidden states."""

    tokens: list[int]
    kv: list[int]
    states: list[int]
    hidden: list[int]

    def window(self, end: int) -> list[int]:
        """Return the last W - 1 inputs of the recurrent layer before position `end`."""

    def argmax(self, hidden: int) -> int:
        """Return the token with the largest logit for a hidden state (one 64-bit integer)."""

    def scores(self, hidden: int) -> list[int]:
        """Return all logits for a hidden state (one 64-bit integer)."""


class Drafts(NamedTuple):
    """Draft tokens after a position, the drafter's hidden states, and its predictions.

    `drawn` has the distributions that sampled draft tokens were sampled from.
    """

    proposed: tuple[int, ...]
    raw: tuple[int, ...] = ()
    own: tuple[int, ...] = ()
    drawn: tuple[Proposal, ...] = ()


class ProposalRequest(NamedTuple):
    """Request for a proposal: `k_step` draft tokens after the first `kept` tokens of a request.

    `num_drafts` of them are below max_model_len.

    `deltas` has the drafter's KV entries that differ from `kv`, by position. With `params`, draft tokens are
    sampled.
    """

    kept: int
    k_step: int
    num_drafts: int
    script: Sequence[int]
    deltas: Mapping[int, int]
    params: SamplingParams | None


class DrafterTruth:
    """Expected KV entries of a drafter, and its draft tokens, for one request."""

    def __init__(self, model_values: TargetValues, spec: EngineSpec) -> None:
        self.words: list[int] = []
        self.sums: list[tuple[int, int]] = []
        self._values = model_values
        self._spec = spec
        self._known: dict[tuple[object, ...], Drafts] = {}
        self._sum = self._sum_position = 0

    def follow(self, position: int) -> None:
        """Append the drafter's KV entry at a position; its token and the next token are known.

        By default nothing is cached.
        """

    def chunk_end(self, position: int, next_token: int) -> int:
        """Return the KV entry at the end of a prefill chunk; the next token is a guess there."""
        return self.words[position]

    def drafts(
        self,
        kept: int,
        k_step: int,
        num_drafts: int,
        script: Sequence[int],
        deltas: Mapping[int, int],
        params: SamplingParams | None,
    ) -> Drafts:
        """Return the draft tokens after `kept` tokens; see `ProposalRequest` for the arguments."""
        limit = self._spec.drafter_max_len
        if limit and kept + 1 + k_step > limit:
            return Drafts((NO_DRAFT,) * num_drafts)
        # All requests that share these values have the same sampling parameters.
        key = kept, k_step, params is None, *script[kept + 1 : kept + 1 + num_drafts], *deltas.items()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._drafts(ProposalRequest(kept, k_step, num_drafts, script, deltas, params))
        return found

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        raise NotImplementedError

    def _append(self, word: int) -> None:
        position = len(self.words)
        self.words.append(word)
        self._sum = (self._sum + word) & model.MASK
        self._sum_position = (self._sum_position + word * position) & model.MASK
        self.sums.append((self._sum, self._sum_position))


def _scripted(ask: ProposalRequest) -> tuple[int, ...]:
    return tuple(ask.script[ask.kept + 1 : ask.kept + 1 + ask.num_drafts])


class Eagle(DrafterTruth):
    """EAGLE drafter: its input is the target's hidden state with the next token, then its own."""

    def follow(self, position: int) -> None:
        vector = model.draft_hidden(self._values.hidden[position], self._values.tokens[position + 1])
        self._append(model.kv_entry(vector, position, model.DRAFTER_LAYER))

    def chunk_end(self, position: int, next_token: int) -> int:
        """Return the KV entry at the end of a prefill chunk, computed with a guessed next token."""
        vector = model.draft_hidden(self._values.hidden[position], next_token)
        return model.kv_entry(vector, position, model.DRAFTER_LAYER)

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        position, proposed = ask.kept - 1, _scripted(ask)
        sums, sums_position = self.sums[position]
        for at, word in ask.deltas.items():
            if at <= position:
                sums += word - self.words[at]
                sums_position += (word - self.words[at]) * at
        vector = model.draft_hidden(self._values.hidden[position], self._values.tokens[position + 1])
        found: list[int] = []
        for index in range(ask.num_drafts):
            if index:
                position += 1
                vector = model.draft_hidden(found[-1], proposed[index - 1])
                word = model.kv_entry(vector, position, model.DRAFTER_LAYER)
                sums += word
                sums_position += word * position
            found.append(model.mix((vector + model.attention(sums, sums_position, position)) & model.MASK))
        return Drafts(proposed, tuple(found))


class DraftModel(DrafterTruth):
    """Draft model with the target's weights: a KV cache of its own, with equal values."""

    def __init__(self, model_values: TargetValues, spec: EngineSpec) -> None:
        super().__init__(model_values, spec)
        self.words = model_values.kv

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        model_values, kept = self._values, ask.kept
        sums = sum(model_values.kv[:kept])
        sums_position = sum(map(mul, model_values.kv, range(kept)))
        is_hybrid = self._spec.layers == "hybrid"
        state, window = (model_values.states[kept - 1], model_values.window(kept)) if is_hybrid else (0, [])
        token = model_values.tokens[kept]
        raw: list[int] = []
        own: list[int] = []
        proposed: list[int] = []
        drawn: list[Proposal] = []
        for position in range(kept, kept + ask.num_drafts):
            hidden = model.embed(token)
            word = model.kv_entry(hidden, position, 0)
            sums += word
            sums_position += word * position
            hidden = model.after_attention(hidden, model.attention(sums, sums_position, position))
            if is_hybrid:
                state = model.advance(state, [*window, hidden])
                window = [*window[1:], hidden]
                hidden = model.after_recurrent(hidden, state)
            raw.append(hidden)
            is_wrong = ask.script[position + 1]
            if ask.params is None:
                own.append(model_values.argmax(hidden))
                token = (own[-1] + is_wrong) % self._spec.vocab_size
            else:
                # A draft token sampled from the logits of another hidden state is likely to be rejected.
                word = model.mix((hidden + 1) & model.MASK) if is_wrong else hidden
                own.append(model_values.argmax(word))
                drawn.append(propose(model_values.scores(word), ask.params, kept + 1, len(drawn), cuts_of(self._spec)))
                token = drawn[-1].token
            proposed.append(token)
        return Drafts(tuple(proposed), tuple(raw), tuple(own), tuple(drawn))


class Mtp(DrafterTruth):
    """MTP drafter: its layer reads a token and a hidden state, first the target's, then its own."""

    def follow(self, position: int) -> None:
        before = self._values.hidden[position - 1] if position else 0
        vector = model.draft_hidden(before, self._values.tokens[position])
        self._append(model.kv_entry(vector, position, model.DRAFTER_LAYER))

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        proposed = _scripted(ask)
        before, token = self._values.hidden[ask.kept - 1], self._values.tokens[ask.kept]
        sums, sums_position = self.sums[ask.kept - 1]
        found: list[int] = []
        for index in range(ask.num_drafts):
            position = ask.kept + index
            vector = model.draft_hidden(before, token)
            word = model.kv_entry(vector, position, model.DRAFTER_LAYER)
            sums += word
            sums_position += word * position
            found.append(model.mix((vector + model.attention(sums, sums_position, position)) & model.MASK))
            before, token = found[-1], proposed[index]
        return Drafts(proposed, tuple(found))


class Dflash(DrafterTruth):
    """Block drafter: attends to target hidden states; predicts all mask tokens at once."""

    def follow(self, position: int) -> None:
        self._append(model.kv_entry(self._values.hidden[position], position, model.DRAFTER_LAYER))

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        kept, mask = ask.kept, self._spec.vocab_size
        sums, sums_position = self.sums[kept - 1]
        ids = [self._values.tokens[kept]] + [mask] * ask.k_step
        vectors = [model.draft_hidden(self._values.hidden[kept - 1], token) for token in ids]
        block = [model.kv_entry(vector, kept + at, model.DRAFTER_LAYER) for at, vector in enumerate(vectors)]
        found = []
        for at in range(1, 1 + ask.num_drafts):
            seen = model.attention(sums, sums_position, kept + at)
            seen += sum(word * (2 * abs(at - other) + 1) for other, word in enumerate(block))
            found.append(model.mix((vectors[at] + seen) & model.MASK))
        return Drafts(_scripted(ask), tuple(found))


class HiddenStates(DrafterTruth):
    """Hidden-state extraction: caches target hidden states; proposes the sampled token."""

    def __init__(self, model_values: TargetValues, spec: EngineSpec) -> None:
        super().__init__(model_values, spec)
        self.words = model_values.hidden

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        return Drafts((self._values.tokens[ask.kept],) * ask.num_drafts)


class History(DrafterTruth):
    """N-gram drafter: proposes the tokens after the longest earlier match of the last tokens."""

    def __init__(self, model_values: TargetValues, spec: EngineSpec) -> None:
        super().__init__(model_values, spec)
        self.words = model_values.tokens

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        history = self._values.tokens[: ask.kept + 1]
        for length in range(min(NGRAM_MAX, len(history) - 1), 0, -1):
            last = history[-length:]
            # The rightmost of equally long matches is used.
            for end in range(len(history) - 1, length - 1, -1):
                if history[end - length : end] == last:
                    found = history[end : end + ask.num_drafts]
                    return Drafts((*found, *(NO_DRAFT for _ in range(ask.num_drafts - len(found)))))
        return Drafts((NO_DRAFT,) * ask.num_drafts)


class Suffix(History):
    """Suffix drafter: proposes the most frequent continuation of the longest matching suffix."""

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        history = self._values.tokens[: ask.kept + 1]
        for length in range(min(SUFFIX_MAX, len(history) - 1), 0, -1):
            ends = [end for end in range(length, len(history)) if history[end - length : end] == history[-length:]]
            if ends:
                return Drafts(self._most_frequent(history, ends, ask.num_drafts))
        return Drafts((NO_DRAFT,) * ask.num_drafts)

    @staticmethod
    def _most_frequent(history: list[int], ends: list[int], num_drafts: int) -> tuple[int, ...]:
        """Return draft tokens; each is the most frequent next token among the matches so far.

        Equally frequent: the lowest id.
        """
        found: list[int] = []
        while len(found) < num_drafts:
            places = [end + len(found) for end in ends if end + len(found) < len(history)]
            follows = [history[place] for place in places]
            if not follows:
                break
            found.append(max(sorted(set(follows)), key=follows.count))
            ends = [place - len(found) + 1 for place in places if history[place] == found[-1]]
        return (*found, *(NO_DRAFT for _ in range(num_drafts - len(found))))


class Medusa(HiddenStates):
    """Medusa heads: each predicts from the hidden state of the last kept token; no KV cache."""

    def _drafts(self, ask: ProposalRequest) -> Drafts:
        hidden = self._values.hidden[ask.kept - 1]
        return Drafts(_scripted(ask), tuple(model.draft_hidden(hidden, head) for head in range(ask.num_drafts)))


TRUTHS: Mapping[str, type[DrafterTruth]] = {
    "eagle": Eagle,
    "draft_model": DraftModel,
    "mtp": Mtp,
    "dflash": Dflash,
    "extract_hidden_states": HiddenStates,
    "ngram_gpu": History,
    "suffix": Suffix,
    "ngram": History,
    "medusa": Medusa,
}
