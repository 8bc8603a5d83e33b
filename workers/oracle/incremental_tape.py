"""Incremental tape: the values of a request whose tokens depend on its drafts, extended as rows are verified."""

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
from workers.oracle.random_sampling import Proposal, cuts_of, target_of
from workers.oracle.rejection_sampling import Verified, verify
from workers.oracle.tape import Spoil, Tape, Tapes, script, tape_length
from workers.oracle.truth import Truth


def depends_on_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Tell whether it depends on a request's drafts, and so on its schedule, which tokens it gets."""
    return spec.sampling == "synthetic" or (spec.sampling != "strict" and params.temperature > 0)


def script_of(event: Submit, spec: EngineSpec, tapes: Tapes) -> list[int]:
    """Return what a drafter proposes for a request at each position by its script; of a draft model, its corrections.

    Right is what the request goes on with. Where this depends on drafts, right is what it would go on with if the
    largest logit won: were a draft to follow from the noise that judges it, nothing would have the target's law.
    """
    assert isinstance(event.prompt, tuple), "the trace is explicit"
    assert isinstance(event.accept, str), "the trace is explicit"
    if TRAITS[spec.drafter].has_model:
        return corrections(len(event.prompt), event.accept, spec)
    rules = rules_of(event)
    if rules is not None and depends_on_drafts(event.params, spec):
        rules = replace(rules, params=event.params.model_copy(update={"temperature": 0.0, "seed": 0}))
    num_prompt = len(event.prompt)
    tape = tapes.tape(event.prompt, spec, tape_length(num_prompt, event.max_tokens, spec), rules)
    return script(tape, num_prompt, event.accept, spec)


def corrections(num_prompt: int, bits: str, spec: EngineSpec) -> list[int]:
    """Return what to add to a draft model's own prediction at each position: 0 where that is to be proposed."""
    behind_prompt = cycle([int(bit == "0") for bit in bits])
    return [*islice(chain(repeat(0, num_prompt), behind_prompt), spec.max_model_len)]


def draws_drafts(params: SamplingParams, spec: EngineSpec) -> bool:
    """Tell whether a request's drafts are drawn: not if the host may cut them off, which is no rejection."""
    return spec.draft_sampling == "probabilistic" and params.temperature > 0 and not params.grammar


class IncrementalTape(Tape):
    """The values at the positions of all known tokens, the last one too; the drafter is one position behind."""

    def __init__(self, prompt: tuple[int, ...], spec: EngineSpec, rules: Rules | None) -> None:
        super().__init__(prompt, spec, rules)
        self._prompt, self._spec = prompt, spec
        for position in range(len(prompt)):
            self._compute()
            if position + 1 < len(prompt):
                self.drafter.follow(position)

    def append(self, token: int, line: Sequence[float]) -> None:
        """Go on with a token that was chosen from the processed logits `line`."""
        if self._rules is not None:
            if changes_logits(self._rules.params):
                self.logits.append(hash_of(line))
            self._follow_grammar(token)
        self.tokens.append(token)
        self.drafter.follow(len(self.tokens) - 2)
        self._compute()

    def go_on(
        self, drafts: Sequence[int], params: SamplingParams, drawn: Sequence[Proposal], spoil: Spoil | None
    ) -> Verified:
        """Go on with the drafts that are kept, and the token that follows them."""
        spec, lines = self._spec, self.lines(drafts, spoil)
        found = verify(spec.sampling, lines, drafts, params, keep_rates(spec), len(self.tokens), drawn, cuts_of(spec))
        for token, line in zip(found.tokens, lines, strict=False):
            self.append(token, line)
        return found

    def lines(self, drafts: Sequence[int], spoil: Spoil | None = None) -> list[list[float]]:
        """Return the processed logits after the known tokens, then after each draft, up to the first that is none."""
        known, sums = len(self.tokens), (self._sum_kv, self._sum_kv_position)
        found = [self._line(spoil, 0)]
        for column, draft in enumerate(drafts, 1):
            if not 0 <= draft < self._spec.vocab_size:
                break
            self.tokens.append(draft)
            self._compute()
            found.append(self._line(spoil, column))
        for values in (self.tokens, self.kv, self.attention, self.inputs, self.states, self.hidden):
            del values[known:]
        self._sum_kv, self._sum_kv_position = sums
        return found

    def until(self, length: int) -> "IncrementalTape":
        """Return a tape of the first `length` tokens alone."""
        tape = IncrementalTape(self._prompt, self._spec, self._rules)
        for position in range(len(self._prompt), length):
            tape.append(self.tokens[position], tape.lines(())[0])
        return tape

    def _line(self, spoil: Spoil | None, column: int) -> list[float]:
        return self.line_at(len(self.tokens) - 1, spoil if spoil is not None and spoil.column == column else None)


class RowOutcome(NamedTuple):
    """How many tokens a row yields, how many were drawn, how many of those narrowly, and which probes it hits.

    Without a target it ends where a token should be chosen.
    """

    valid: int = 0
    num_drawn: int = 0
    num_ambiguous: int = 0
    happened: tuple[str, ...] = ()
    has_target: bool = True


def verify_row(
    truth: Truth, first: int, drafts: Sequence[int], drawn: Sequence[Proposal], spoil: Spoil | None = None
) -> RowOutcome:
    """Return what verifying a row comes to from position `first` on; an incremental tape goes on by its tokens.

    A logit that an event spoils leaves its column without a target.
    """
    tape = truth.tape
    if isinstance(tape, IncrementalTape):
        found = tape.go_on(drafts, truth.params, drawn, spoil)
        what = _of_drawn(drawn, len(found.tokens)) + found.happened
        return RowOutcome(len(found.tokens), len(found.tokens), int(found.is_ambiguous), what, found.has_target)
    tokens, right, usable = tape.tokens, 0, len(drafts)
    if drawn:
        usable = next((column for column, each in enumerate(drawn) if not each.masses), usable)
    while right < usable and drafts[right] == tokens[first + right]:
        right += 1
    has_target = first + right < tape.end
    valid = 1 + right if has_target else tape.end - first
    if spoil is not None and spoil.column < valid:
        # It matters unless the request's own rules forbid the token.
        line = tape.line_at(first - 1 + spoil.column, spoil)
        if target_of(line, truth.params) is None:
            valid, has_target = spoil.column, False
    if not truth.params.temperature:
        return RowOutcome(valid, has_target=has_target)
    narrow = tape.ambiguous.intersection(range(first, first + valid))
    return RowOutcome(valid, valid, len(narrow), _of_drawn(drawn, valid), has_target)


def _of_drawn(drawn: Sequence[Proposal], valid: int) -> tuple[str, ...]:
    """Return which probes a row with these drawn drafts hits by yielding so many tokens."""
    found = ("drawn_draft_accept",) if drawn and valid > 1 else ()
    return (*found, "drawn_draft_reject") if 0 < valid <= len(drawn) else found
