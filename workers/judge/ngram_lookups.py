"""Check n-gram lookups: draft tokens must be copied from the request's own tokens.

Verifies: the draft tokens proposed after the known tokens of a request also follow an earlier token of the same request
that is equal to its last known token.

Does not verify:
- which of several matches is used, or the number of drafts;
- drafts after a step without the request, after a step without a plan, or so close to `max_model_len` that the engine
  does no lookup;
- drafts of an engine that pads them with other tokens;
- tokens of a stay while results of the stay before may still arrive.
"""

from collections.abc import Iterator, Sequence

from scenarios.drafters import TRAITS
from scenarios.spec import ENGINE
from workers.judge.history import EngineHistory, History, Step
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.evidence import Difference, fact

PLANE = "drafts"
PLANES = (PLANE,)


class NgramLookups(HistoryJudge):
    """Judge that checks n-gram drafts; a lookup proposes at most `drafts_max` draft tokens."""

    def __init__(self, drafts_max: int) -> None:
        self._drafts_max = drafts_max

    @classmethod
    def of(cls, case: Case) -> "NgramLookups | None":
        """Return the judge; None for an engine without an n-gram drafter."""
        spec = case.trace.spec
        looks_up = TRAITS[spec.drafter].is_lookup and spec.num_speculative_tokens > 0
        return cls(spec.num_speculative_tokens) if case.shows_steps and looks_up else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if any(True for _ in self._drafts(history)) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        for step, request, position, known, drafts in self._drafts(end.history):
            if not follows(known, drafts):
                yield mismatch(PLANE, "looked_up", request, (step, position), fact("found_earlier"), drafts)

    def _drafts(self, history: History) -> Iterator[tuple[int, int, int, Sequence[int], Sequence[int]]]:
        """Yield each lookup to check: (step, request, position, known tokens, draft tokens)."""
        own = history.engines.get(ENGINE)
        if own is None or own.sizes.lookups_filled_up:
            return
        for step in own.steps.values():
            before = own.steps.get(step.number - 1)
            if before is None or not step.plan.follows or self._is_near_end(own, before):
                continue
            for row in step.rows:
                turn, first = step.turns[row.request], len(row.positions) - row.num_drafts
                is_next = turn.last == before.number and bool(before.sampled.get(row.request))
                # A wrong position is a difference of `model_inputs`; the lookup cannot be checked then.
                if not (row.num_drafts and is_next and turn.stay.tokens_are_known):
                    continue
                if row.positions[first] == len(turn.known):
                    yield step.number, row.request, len(turn.known), turn.known, row.input_ids[first:]

    def _is_near_end(self, own: EngineHistory, step: Step) -> bool:
        """Return whether a step is too close to `max_model_len` for a lookup.

        True as well if its inputs were not reported.
        """
        if step.inputs is None:
            return True
        counts = {row.request: len(row.positions) for row in step.rows}
        longest = max(computed + counts.get(request, 0) for request, computed in step.computed.items())
        assert own.sizes.max_model_len is not None, "an engine with draft tokens reports its max_model_len"
        return longest + self._drafts_max > own.sizes.max_model_len


def follows(tokens: Sequence[int], drafts: Sequence[int]) -> bool:
    """Return whether `drafts` follow an earlier occurrence of the last token of `tokens`."""
    count = len(drafts)
    places = range(1, len(tokens) - count + 1)
    return any(tokens[at - 1] == tokens[-1] and list(tokens[at : at + count]) == list(drafts) for at in places)
