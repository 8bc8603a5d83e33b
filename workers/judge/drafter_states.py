"""Check the hidden states that a drafter receives, and the draft logits that the rejection sampler reads.

An engine copies both from row to row, so each row must have the bytes that were computed for its request and position.

Verifies:
- first pass of a step, or the states that a parallel drafter stores: at each accepted position of a request, the hidden
  state that the target's model returned for it in this step, also where the accepted draft tokens are a path of a tree;
- every later pass: the hidden state that the drafter's model returned for the request in the pass before: at the last
  accepted position of the first pass, at the parent node of a draft tree;
- draft logits: the logits that the drafter computed for this request and draft token in the step that proposed it;
- every pass of a drafter that receives hidden states shows them, and every verification its draft logits.

Does not verify:
- rows of rejected drafts;
- which draft tokens of a pass over a tree are continued;
- draft logits of a request with temperature 0: the rejection sampler does not use them;
- which request a row is from, if two rows have the same bytes (equal tokens at equal positions);
- steps of a stay while results of the stay before may still arrive, or after it lost a synchronously loaded block.
"""

from collections.abc import Iterator, Mapping, Sequence

from scenarios.events import Submit
from scenarios.spec import ENGINE
from workers.judge.drafter_inputs import PLANE, PLANES, Row, row_of
from workers.judge.history import EngineHistory, History, Step
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.engine_records import Branches, Drafting
from workers.record.evidence import Difference, Fact, fact

# The request and position of a hidden state, by digest.
Owners = dict[int, tuple[int, int]]


class DrafterStates(HistoryJudge):
    """Judge that checks to which request and position each hidden state and each row of draft logits belongs."""

    @classmethod
    def of(cls, case: Case) -> "DrafterStates | None":
        """Return the judge; None for an engine that does not report its steps."""
        return cls() if case.shows_steps else None

    def compared(self, history: History) -> tuple[str, ...]:
        own = history.engines.get(ENGINE)
        is_shown = own is not None and (own.sizes.receives_hidden_states or own.sizes.keeps_draft_logits)
        return PLANES if own is not None and is_shown and any(step.passes for step in own.steps.values()) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        if not self.compared(end.history):
            return
        own = end.history.engines[ENGINE]
        for step in own.steps.values():
            if step.inputs is None:
                continue
            if own.sizes.keeps_draft_logits:
                yield from _draft_logits(step, own, end.submits)
            if own.sizes.receives_hidden_states:
                yield from _hidden_states(step)


def _hidden_states(step: Step) -> Iterator[Difference]:
    """Yield hidden states of a step's draft passes that are not the request's own."""
    target = step.hidden_states.get(None)
    receivers: list[Sequence[int]] = [each.values.hidden_states for each in step.passes]
    if step.context is not None:
        # A parallel drafter stores the states before its only pass, which receives none.
        receivers = [step.context.values.hidden_states]
    if receivers and (target is None or not all(receivers)):
        yield _not_shown(step, "hidden_states", fact("hidden_states_of_passes"))
        return
    if target is None or step.inputs is None:
        return
    owners: Owners = {}
    for row in step.rows:
        first = step.inputs.values.starts[step.inputs.requests.index(row.request)]
        for position, digest in zip(row.positions, target.values.hidden_states[first:], strict=False):
            owners.setdefault(digest, (row.request, position))
    rows = _checked_rows(step)
    if step.context is not None:
        starts = dict(zip(step.inputs.requests, step.inputs.values.starts, strict=False))
        yield from _from_target(step, rows, starts, step.context.values.hidden_states, owners)
    for record in step.passes if step.context is None else ():
        if record.values.index == 0:
            starts = dict(zip(record.requests, record.values.starts, strict=False))
            yield from _from_target(step, rows, starts, record.values.hidden_states, owners)
        else:
            yield from _from_drafter(step, rows, record, owners)
    for branches in step.branches:
        yield from _from_branches(step, rows, branches, owners)


def _checked_rows(step: Step) -> Mapping[int, Row]:
    rows = (row_of(step, row) for row in step.rows)
    return {row.request: row for row in rows if row.is_checked and not step.turns[row.request].has_lost}


def _from_target(
    step: Step, rows: Mapping[int, Row], starts: Mapping[int, int], given: Sequence[int], owners: Owners
) -> Iterator[Difference]:
    """Yield received hidden states that are not the target's at the request's own positions.

    `given` are digests by token; `starts` has the index of each request's first token.
    """
    assert step.inputs is not None, "the caller has checked it"
    target = step.hidden_states[None].values.hidden_states
    places = dict(zip(step.inputs.requests, step.inputs.values.starts, strict=False))
    for request, start in starts.items():
        row = rows.get(request)
        for place in range(row.end - row.first if row is not None else 0):
            assert row is not None, "the range is empty without a row"
            if given[start + place] != target[places[request] + place]:
                position = row.first + place
                expected = fact("hidden_state_of", request=request, position=position)
                actual = _owner(given[start + place], owners)
                yield mismatch(PLANE, "hidden_states", request, (step.number, position), expected, actual)


def _from_drafter(step: Step, rows: Mapping[int, Row], record: Drafting, owners: Owners) -> Iterator[Difference]:
    """Yield received hidden states of a later pass that the pass before did not return for the request."""
    for request, given in zip(record.requests, record.values.hidden_states, strict=False):
        if request in rows:
            yield from _passed_on(step, rows[request], record.values.index, (1, 0), given, owners)


def _from_branches(step: Step, rows: Mapping[int, Row], record: Branches, owners: Owners) -> Iterator[Difference]:
    """Yield received hidden states of branches that the pass before did not return for their parents."""
    values = record.values
    for place, (request, branches) in enumerate(zip(record.requests, values.hidden_states, strict=True)):
        # Before the first pass over branches, a request has one row.
        width, parents = (len(branches), values.parents[place]) if values.parents else (1, [0] * len(branches))
        for given, parent in zip(branches, parents, strict=True) if request in rows else ():
            yield from _passed_on(step, rows[request], values.index, (width, parent), given, owners)


def _passed_on(
    step: Step, row: Row, index: int, branch: tuple[int, int], given: int, owners: Owners
) -> Iterator[Difference]:
    """Yield the hidden state that pass `index` received, if the pass before did not return it for the request.

    `branch` has the number of rows of each request in the pass before, and the number of the one that is continued. If
    the first pass returned the states of all its tokens, that is the last accepted one.
    """
    returned = step.hidden_states.get(index - 1)
    if returned is None:
        yield _not_shown(step, "hidden_states", fact("hidden_states_of_passes"))
        return
    digests, starts = returned.values.hidden_states, step.passes[0].values.starts
    place = returned.requests.index(row.request) * branch[0] + branch[1]
    if index == 1 and len(digests) >= starts[-1]:
        place = starts[step.passes[0].requests.index(row.request)] + row.end - 1 - row.first
    if given != digests[place]:
        last, where = row.end - 2 + index, (step.number, row.end - 1 + index)
        expected = fact("drafter_state_of", request=row.request, position=last, index=index - 1)
        yield mismatch(PLANE, "hidden_states", row.request, where, expected, _owner(given, owners))


def _owner(digest: int, owners: Owners) -> Fact:
    if digest not in owners:
        return fact("another_hidden_state")
    request, position = owners[digest]
    return fact("hidden_state_of", request=request, position=position)


def _draft_logits(step: Step, own: EngineHistory, submits: Sequence[Submit]) -> Iterator[Difference]:
    """Yield draft logits of a verification that the drafter did not compute for the request's draft token."""
    if not all(each.values.draft_logits for each in step.logits) or len(step.logits) < min(1, len(step.passes)):
        yield _not_shown(step, "draft_logits", fact("draft_logits_of_passes"))
        return
    drafts = {row.request: row for row in step.rows if row.num_drafts}
    if step.draft_logits is None:
        if drafts:
            yield _not_shown(step, "draft_logits", fact("draft_logits_of_passes"))
        return
    values = step.draft_logits.values
    for request, *read in zip(step.draft_logits.requests, values.normalizers, values.acceptance, strict=True):
        turn = step.turns[request]
        before = own.steps.get(turn.last)
        is_greedy = submits[request].params.temperature == 0
        if request not in drafts or before is None or is_greedy or turn.has_lost or not turn.stay.tokens_are_known:
            continue
        row = drafts[request]
        computed = _computed_logits(before, request)
        for digests in read:
            for index, (expected, actual) in enumerate(zip(computed, digests, strict=False)):
                if expected != actual:
                    where = step.number, row.first + len(row.positions) - row.num_drafts + index
                    facts = _logits(request, index, before.number), _owner_of_logits(actual, before)
                    yield mismatch(PLANE, "draft_logits", request, where, *facts)


def _computed_logits(step: Step, request: int) -> list[int]:
    """Return the digests of the draft logits of a request in the step that proposed its drafts, by draft token.

    A parallel drafter computes the logits of all draft tokens in one pass: one row per draft token, ordered by request.
    """
    found: list[int] = []
    for record in step.logits:
        if request in record.requests:
            place, width = record.requests.index(request), len(record.values.draft_logits) // len(record.requests)
            found += record.values.draft_logits[place * width : (place + 1) * width]
    return found


def _owner_of_logits(digest: int, step: Step) -> Fact:
    for request in step.requests:
        computed = _computed_logits(step, request)
        if digest in computed:
            return _logits(request, computed.index(digest), step.number)
    return fact("other_draft_logits")


def _logits(request: int, index: int, step: int) -> Fact:
    return fact("draft_logits_of", request=request, index=index, step=step)


def _not_shown(step: Step, variable: str, expected: Fact) -> Difference:
    return mismatch(PLANE, variable, None, (step.number, None), expected, fact("none_shown"))
