"""Bans: tokens that may not follow in a request's output, each with the output rule."""

from collections.abc import Sequence

from scenarios.events import Submit
from scenarios.sampling import BIAS_MAX, SamplingParams
from workers.record.evidence import Fact, fact

# The grammar state after a token without an edge. Only an engine that is not bound by masks may return such a token.
NO_STATE = -1


class Bans:
    """Banned next tokens of one request (masks, biases); `follow` appends an output token.

    - A mask gives a token probability 0. A bias of -100 (`banned_by_bias` tokens) allows a token only if no other is
      allowed; a bias of 100 (`forced_by_bias` tokens) forbids all other tokens.
    - A bad word may begin in the prompt if `words_from_prompt`.
    - A grammar applies after the first token `reasoning_end`, or from the start without such a token.
    """

    def __init__(
        self, submit: Submit, words_from_prompt: bool, vocab_size: int, reasoning_end: int | None = None
    ) -> None:
        assert isinstance(submit.prompt, tuple), "the trace is explicit"
        params = submit.params
        # Penalties may outweigh a bias, and a high temperature weakens it.
        biases = params.logit_bias if not has_penalties(params) and params.temperature <= 1 else ()
        self.banned_by_bias = frozenset(token for token, bias in biases if bias == -BIAS_MAX)
        self.forced_by_bias = frozenset(token for token, bias in biases if bias == BIAS_MAX)
        self.stop = frozenset(submit.stop)
        self.min_tokens = params.min_tokens
        self.allowed = frozenset(params.allowed_tokens)
        self.bad_words = params.bad_words
        self.repeated: int | None = None
        self._has_no_repeats = params.no_repeats
        self.edges = [{edge[0]: edge[1] for edge in edges} for edges in params.grammar]
        # The token after which the grammar applies; None once it applies.
        self.awaited_token = reasoning_end if reasoning_end not in submit.prompt else None
        self.vocab_size = vocab_size
        self.recent = list(submit.prompt) if words_from_prompt else []
        self.state = self.length = 0
        self._longest = max((len(word) for word in self.bad_words), default=0)

    def bans_anything(self) -> bool:
        """Return whether a mask or a bias of +-100 can ban any token at all."""
        masks = self.bad_words or self._has_no_repeats or self.allowed or self.edges or (self.min_tokens and self.stop)
        return bool(masks or self.banned_by_bias or self.forced_by_bias)

    def follow(self, token: int) -> None:
        """Append the next token of the output."""
        self.length += 1
        if self._has_no_repeats:
            self.repeated = token
        if self.bad_words:
            self.recent.append(token)
            del self.recent[: -self._longest]
        if self.awaited_token is not None:
            self.awaited_token = None if token == self.awaited_token else self.awaited_token
        elif self.edges and self.state != NO_STATE:
            self.state = self.edges[self.state].get(token, NO_STATE)

    def ban_on(self, token: int) -> str | None:
        """Return the name of the mask or bias rule that forbids `token` next, or None."""
        contract = self.mask_on(token)
        if contract is not None:
            return contract
        if self.forced_by_bias and token not in self.forced_by_bias:
            is_forbidden = any(self.mask_on(each) is None for each in self.forced_by_bias)
        elif token in self.banned_by_bias:
            others = (each for each in range(self.vocab_size) if each not in self.banned_by_bias)
            is_forbidden = any(self.mask_on(each) is None for each in others)
        else:
            is_forbidden = False
        return "logit_bias" if is_forbidden else None

    def mask_on(self, token: int) -> str | None:
        """Return the name of the mask rule that forbids `token` next ("bad_words" ...), or None."""
        if self.length < self.min_tokens and token in self.stop:
            return "min_tokens"
        if self.allowed and token not in self.allowed:
            return "allowed_tokens"
        if any(word[-1] == token and self._ends_with(word[:-1]) for word in self.bad_words):
            return "bad_words"
        if token == self.repeated:
            return "no_repeats"
        if self.awaited_token is None and self.edges and self.state != NO_STATE and token not in self.edges[self.state]:
            return "grammar"
        return None

    def _ends_with(self, words: Sequence[int]) -> bool:
        return not words or tuple(self.recent[-len(words) :]) == tuple(words)

    def requirement(self, contract: str) -> Fact:
        """Return the message that says what this rule requires of the next token."""
        match contract:
            case "min_tokens":
                return fact("no_stop_among", count=self.min_tokens)
            case "allowed_tokens":
                return fact("one_allowed", count=len(self.allowed))
            case "logit_bias":
                return fact("a_pulled_token" if self.forced_by_bias else "no_pushed_token")
            case "no_repeats":
                return fact("another_token", token=self.repeated)
            case "bad_words":
                return fact("no_bad_word", behind=self.recent)
            case _:
                return fact("an_edge", count=len(self.edges[self.state]), state=self.state)


def has_penalties(params: SamplingParams) -> bool:
    """Return whether a request has a repetition, presence or frequency penalty."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def bans_of(submit: Submit, words_from_prompt: bool, vocab_size: int, reasoning_end: int | None = None) -> Bans | None:
    """Return the `Bans` of a request; None if it has no mask and no bias of +-100."""
    bans = Bans(submit, words_from_prompt, vocab_size, reasoning_end)
    return bans if bans.bans_anything() else None
