"""Expected model values, by position, of a request whose tokens depend on its draft tokens."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, cycle, islice, repeat
from typing import NamedTuple

from scenarios.drafters import TRAITS
from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.oracle.derived import changes_logits, keep_rates
from workers.oracle.logits_processing import Rules, hash_of, rules_of
from workers.oracle.model_values import ModelValueCache, ModelValues, SpoiledLogit, max_positions, script
from workers.oracle.random_sampling import Proposal, cuts_of, target_of
from workers.oracle.rejection_sampling import VerifiedTokens, verify
from workers.oracle.truth import Truth


def depends_on_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Return whether a request's output tokens depend on its draft tokens."""
    return spec.sampling == "synthetic" or (spec.sampling != "strict" and params.temperature > 0)


def script_of(event: Submit, spec: EngineSpec, value_cache: ModelValueCache) -> list[int]:
    """Return the scripted draft token by position; for a draft model, the token's offset.

    A correct draft token is the request's next token. If tokens depend on draft tokens, it is the token of the largest
    logit: a draft token derived from the noise that verifies it would bias the output distribution.
    """
    assert isinstance(event.prompt, tuple), "the trace is explicit"
    assert isinstance(event.accept, str), "the trace is explicit"
    if TRAITS[spec.drafter].has_model:
        return corrections(len(event.prompt), event.accept, spec)
    rules = rules_of(event)
    if rules is not None and depends_on_drafts(event.params, spec):
        rules = replace(rules, params=event.params.model_copy(update={"temperature": 0.0, "seed": 0}))
    num_prompt = len(event.prompt)
    model_values = value_cache.model_values(
        event.prompt, spec, max_positions(num_prompt, event.max_tokens, spec), rules
    )
    return script(model_values, num_prompt, event.accept, spec)


def corrections(num_prompt: int, bits: str, spec: EngineSpec) -> list[int]:
    """Return by position what is added to the right draft token: 0, or 1 to make it wrong."""
    after_prompt = cycle([int(bit == "0") for bit in bits])
    return [*islice(chain(repeat(0, num_prompt), after_prompt), spec.max_model_len)]


def samples_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Return whether a request's draft tokens are sampled, not the drafter's argmax.

    Not with a grammar, which removes draft tokens without a rejection.
    """
    return spec.draft_sampling == "probabilistic" and params.temperature > 0 and not params.grammar


class IncrementalValues(ModelValues):
    """The model's values for the tokens of a request that are known so far; rows append more.

    The drafter's KV entries end one position earlier, because each of them also needs the next token.
    """

    def __init__(self, prompt: tuple[int, ...], spec: EngineSpec, rules: Rules | None) -> None:
        super().__init__(prompt, spec, rules)
        self._prompt, self._spec = prompt, spec
        for position in range(len(prompt)):
            self._compute()
            if position + 1 < len(prompt):
                self.drafter.follow(position)

    def append(self, token: int, line: Sequence[float]) -> None:
        """Append a sampled token with its logits, and compute the model's values for it."""
        if self._rules is not None:
            if changes_logits(self._rules.params):
                self.logits.append(hash_of(line))
            self._follow_grammar(token)
        self.tokens.append(token)
        self.drafter.follow(len(self.tokens) - 2)
        self._compute()

    def append_verified(
        self, drafts: Sequence[int], params: SamplingParams, drawn: Sequence[Proposal], spoiled: SpoiledLogit | None
    ) -> VerifiedTokens:
        """Verify draft tokens; append the accepted ones and the token that follows them."""
        spec, lines = self._spec, self.lines(drafts, spoiled)
        rates, cuts = keep_rates(spec), cuts_of(spec)
        found = verify(spec.sampling, lines, drafts, params, rates, len(self.tokens), proposals=drawn, cuts=cuts)
        for token, line in zip(found.tokens, lines, strict=False):
            self.append(token, line)
        return found

    def lines(self, drafts: Sequence[int], spoiled: SpoiledLogit | None = None) -> list[list[float]]:
        """Return the row's logits: after the known tokens, then after each valid draft token."""
        known, sums = len(self.tokens), (self._sum_kv, self._sum_kv_position)
        found = [self._line(spoiled, 0)]
        for column, draft in enumerate(drafts, 1):
            if not 0 <= draft < self._spec.vocab_size:
                break
            self.tokens.append(draft)
            self._compute()
            found.append(self._line(spoiled, column))
        for values in (self.tokens, self.kv, self.attention, self.inputs, self.states, self.hidden):
            del values[known:]
        self._sum_kv, self._sum_kv_position = sums
        return found

    def until(self, length: int) -> "IncrementalValues":
        """Return a copy with the values of the first `length` tokens only."""
        model_values = IncrementalValues(self._prompt, self._spec, self._rules)
        for position in range(len(self._prompt), length):
            model_values.append(self.tokens[position], model_values.lines(())[0])
        return model_values

    def _line(self, spoiled: SpoiledLogit | None, column: int) -> list[float]:
        return self.line_at(len(self.tokens) - 1, spoiled if spoiled is not None and spoiled.column == column else None)


class RowOutcome(NamedTuple):
    """Result of verifying a row's drafts: numbers of valid and of sampled tokens, and probes.

    Without a target distribution (`has_target` False), the request ends where a token should be sampled.
    """

    valid: int = 0
    num_drawn: int = 0
    num_ambiguous: int = 0
    happened: tuple[str, ...] = ()
    has_target: bool = True


def verify_row(
    truth: Truth, first: int, drafts: Sequence[int], drawn: Sequence[Proposal], spoiled: SpoiledLogit | None = None
) -> RowOutcome:
    """Verify a row's draft tokens from position `first` on; return the valid tokens' number.

    A logit that an event corrupts leaves its column without a target distribution.
    """
    model_values = truth.model_values
    if isinstance(model_values, IncrementalValues):
        found = model_values.append_verified(drafts, truth.params, drawn, spoiled)
        what = _of_drawn(drawn, len(found.tokens)) + found.happened
        return RowOutcome(len(found.tokens), len(found.tokens), int(found.is_ambiguous), what, found.has_target)
    tokens, right, usable = model_values.tokens, 0, len(drafts)
    if drawn:
        usable = next((column for column, each in enumerate(drawn) if not each.masses), usable)
    while right < usable and drafts[right] == tokens[first + right]:
        right += 1
    has_target = first + right < model_values.end
    valid = 1 + right if has_target else model_values.end - first
    if spoiled is not None and spoiled.column < valid:
        # It matters unless the request's own parameters forbid the token.
        line = model_values.line_at(first - 1 + spoiled.column, spoiled)
        if target_of(line, truth.params) is None:
            valid, has_target = spoiled.column, False
    if not truth.params.temperature:
        return RowOutcome(valid, has_target=has_target)
    narrow = model_values.ambiguous.intersection(range(first, first + valid))
    return RowOutcome(valid, valid, len(narrow), _of_drawn(drawn, valid), has_target)


def _of_drawn(drawn: Sequence[Proposal], valid: int) -> tuple[str, ...]:
    """Return the probes (situation counters) of a row whose draft tokens were sampled."""
    found = ("drawn_draft_accept",) if drawn and valid > 1 else ()
    return (*found, "drawn_draft_reject") if 0 < valid <= len(drawn) else found
