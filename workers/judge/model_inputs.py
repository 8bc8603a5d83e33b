"""Check the model inputs of each step from the request's tokens, for any model and engine.

Verifies, in every step:
- input ids: tokens of the vocabulary; the request's own tokens where they are not draft tokens; only draft tokens after
  its last known token;
- positions continue from the computed tokens; sequence lengths and slot mapping follow from positions and blocks;
- block tables: the planned blocks; no block written that another request holds, except a shared prefix; no slot used
  twice; no slot written by padding tokens; no more blocks than a request of `max_model_len` needs;
- recurrent states: stored in a block that only this request holds; computed from the request's own state, which
  includes exactly the tokens accepted in the step before, also if it is copied to another block;
- counts: the scheduler's computed tokens are the true ones plus at most the draft tokens in flight; the host's mirrors
  of these counts are exact after their correction;
- no token is sampled from a prefill chunk, and no draft tokens follow one;
- metrics count no more draft tokens than were verified;
- the inputs of every planned step are reported, and nothing is held at the end.

Does not verify:
- values that the model computes;
- which requests are scheduled;
- draft tokens, if they are in the vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.spec import ENGINE, PRODUCER, EngineName
from workers.judge.history import Blocks, EngineHistory, History, Row, Stay, Step
from workers.judge.judge import PLANES_OF_STEPS, Case, End, HistoryJudge, with_engine_name
from workers.judge.mismatches import mismatch
from workers.record.evidence import Difference, fact

# A step, and the position of a token in its request.
Where = tuple[int, int]


@dataclass(slots=True, eq=False)
class ComputedTokens:
    """A request's true number of computed tokens (`count`), and what its last step scheduled.

    - `is_chunk`: whether the last step computed a prefill chunk that ends before the last known token.
    - `columns`: by state group, the index of the block in which the last step left the recurrent state.
    - `num_drafts_in_state`: draft tokens of the last step that the state includes although they may be rejected,
      because the row was computed as a prefill.
    - `num_inner_tokens`: tokens of the last step without its first one and its drafts, if it left a state after each
      token.
    """

    stay: Stay
    count: int
    num_scheduled: int = 0
    num_drafts: int = 0
    is_chunk: bool = False
    columns: Sequence[int] = field(default_factory=list)
    num_drafts_in_state: int = 0
    num_inner_tokens: int = 0


class ModelInputs(HistoryJudge):
    """Judge of the model inputs of one engine: ids, positions, slots, block tables."""

    def __init__(self, of: EngineName = ENGINE) -> None:
        self._engine = of

    @classmethod
    def of(cls, case: Case) -> "ModelInputs | None":
        """Return the judge; None for an engine that does not report its steps."""
        return cls() if case.shows_steps else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES_OF_STEPS if history.steps_of(self._engine) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        history = end.history.engines.get(self._engine)
        if history is not None:
            judged = self._steps(history, end.history)
            for found in judged.differences(history.steps):
                yield with_engine_name(found, self._engine)
            for found in leaks_of(history):
                yield with_engine_name(found, self._engine)

    def before_crash(self, history: History) -> Difference | None:
        """Return the first difference in the steps reported before a crash, or None.

        A step is checked completely if all steps before it were processed; later steps only for tokens outside the
        vocabulary.
        """
        own = history.engines.get(self._engine)
        if own is None:
            return None
        judged = self._steps(own, history)
        observed = (step for step in own.steps.values() if step.inputs is not None)
        for step in observed:
            found = (
                judged.step_differences(step) if step.number <= own.num_processed else judged.beyond_vocabulary(step)
            )
            difference = next(found, None)
            if difference is not None:
                return with_engine_name(difference, self._engine)
        return None

    def _steps(self, own: EngineHistory, history: History) -> "Steps":
        return Steps(own)


class ProducerInputs(ModelInputs):
    """Judge of a prefill producer's model inputs (it computes prompts for a consumer)."""

    def __init__(self) -> None:
        super().__init__(PRODUCER)

    @classmethod
    def of(cls, case: Case) -> "ProducerInputs | None":
        return cls() if case.shows_steps and case.trace.spec.handoff is not None else None


def leaks_of(history: EngineHistory) -> Iterator[Difference]:
    """Yield a difference for each kind of object (block, slot ...) that a drained engine holds."""
    for drained in history.drained:
        for what, count in drained.values.leaks.items():
            yield mismatch("books", "leaks", None, (drained.step, None), fact("none_held", what=what), count)


class Steps:
    """Checks the steps of one engine, each once and in order."""

    def __init__(self, history: EngineHistory) -> None:
        sizes = history.sizes
        self._history = history
        self._vocab_size, self._block_size = sizes.vocab_size, sizes.block_size
        self._state_sizes = sizes.state_sizes
        # The number of blocks of a request of `max_model_len` tokens; None where only a scheduler is tested.
        self._blocks_max = -(-sizes.max_model_len // sizes.block_size) if sizes.max_model_len is not None else None
        self._computed: dict[int, ComputedTokens] = {}

    def differences(self, steps: Mapping[int, Step]) -> Iterator[Difference]:
        """Yield the differences that each step shows, in step order."""
        for step in steps.values():
            yield from self.step_differences(step)

    def beyond_vocabulary(self, step: Step) -> Iterator[Difference]:
        """Yield a difference for each input id of a step that is outside the vocabulary."""
        for row in step.rows:
            for token, position in zip(row.input_ids, row.positions, strict=True):
                if not 0 <= token < self._vocab_size:
                    yield self._no_token(step.number, row.request, position, token)

    def _no_token(self, number: int, request: int, position: int, token: int) -> Difference:
        expected = fact("below_vocabulary", size=self._vocab_size)
        return mismatch("inputs", "input_ids", request, (number, position), expected, token)

    def step_differences(self, step: Step) -> Iterator[Difference]:
        """Check the next step; yield its differences."""
        self.begin(step)
        yield from self.counts(step)
        yield from self._held(step)
        where = step.number, None
        if step.inputs is None:
            yield mismatch("inputs", "inputs", None, where, fact("inputs_of_every_step"), fact("none_shown"))
            return
        if sorted(step.inputs.requests) != sorted(step.requests):
            expected = fact("requests", requests=sorted(step.requests))
            yield mismatch("inputs", "rows", None, where, expected, sorted(step.inputs.requests))
            return
        yield from self._inputs(step)
        yield from self._mirrors(step)
        yield from self.results(step)
        yield from metrics_of(step)
        self.advance(step)

    def begin(self, step: Step) -> None:
        """Set the true number of computed tokens of each request at the start of a step."""
        for request, turn in step.turns.items():
            if turn.last < 0:
                self._computed[request] = ComputedTokens(turn.stay, turn.stay.hit)
                continue
            state = self._computed[request]
            if not turn.has_lost:
                state.count += _progress(state, self._history.steps[turn.last].sampled.get(request, ()))

    def counts(self, step: Step) -> Iterator[Difference]:
        """Yield scheduler counts outside [true computed tokens, true count plus drafts in flight]."""
        plans = [self._history.steps[each] for each in range(step.num_processed, step.number)]
        flying = [(plan.number, dict(zip(plan.requests, plan.plan.planned_drafts, strict=True))) for plan in plans]
        for request, planned in step.computed.items():
            state = self._computed[request]
            if step.turns[request].has_lost:
                continue
            most = state.count + sum(drafts.get(request, 0) for each, drafts in flying if each >= state.stay.first)
            if not state.count <= planned <= most:
                expected = fact("between", least=state.count, most=most)
                yield mismatch("counts", "scheduled_computed", request, (step.number, None), expected, planned)

    def scheduled(self, request: int, num_tokens: int, num_drafts: int) -> int:
        """Record a request's scheduled tokens and drafts; return its first position."""
        state = self._computed[request]
        state.num_scheduled, state.num_drafts = num_tokens, num_drafts
        return state.count

    def _held(self, step: Step) -> Iterator[Difference]:
        """Yield a difference for each request holding more blocks than `max_model_len` needs."""
        for request, held in step.plan.blocks if self._blocks_max is not None else ():
            if len(held) > (self._blocks_max or 0):
                expected = fact("at_most_blocks", most=self._blocks_max)
                yield mismatch("blocks", "held", request, (step.number, None), expected, len(held))

    def _inputs(self, step: Step) -> Iterator[Difference]:
        states = dict(step.plan.states)
        owners, holders = owners_of(step.plan.blocks), _holders_of(step.plan.blocks, states)
        for row in step.rows:
            self.scheduled(row.request, len(row.positions), row.num_drafts)
            state = self._computed[row.request]
            if step.turns[row.request].has_lost:
                continue
            if state.is_chunk and state.stay.tokens_are_known and row.num_drafts:
                where = step.number, state.count + state.num_scheduled - row.num_drafts
                yield mismatch("inputs", "drafts", row.request, where, fact("no_drafts"), row.num_drafts)
            yield from self._row(step, row)
            yield from self._slots(step.number, row, owners)
            yield from self._states(step, row, states.get(row.request, ()), holders)
            is_whole = any(group.whole for group in row.states[: len(states.get(row.request, ()))])
            state.num_drafts_in_state = state.num_drafts if is_whole else 0
            state.num_inner_tokens = 0 if is_whole else state.num_scheduled - state.num_drafts - 1
        for slot in step.padding:
            if slot >= 0:
                actual = fact("block", block=slot // self._block_size)
                yield mismatch("inputs", "slots", None, (step.number, None), fact("padding_nowhere"), actual)

    def _row(self, step: Step, row: Row) -> Iterator[Difference]:
        """Yield wrong input ids, positions and sequence length of a row, and too low bounds."""
        number, state, known = step.number, self._computed[row.request], step.turns[row.request].known
        first, count = state.count, state.num_scheduled
        for index, (token, position) in enumerate(zip(row.input_ids, row.positions, strict=True)):
            if position != first + index:
                yield mismatch("inputs", "positions", row.request, (number, first + index), first + index, position)
            if not 0 <= token < self._vocab_size:
                yield self._no_token(number, row.request, position, token)
            own = known[first + index : first + index + 1]
            if state.stay.tokens_are_known and index < count - state.num_drafts and list(own) != [token]:
                expected = own[0] if own else fact("only_drafts")
                yield mismatch("inputs", "input_ids", row.request, (number, position), expected, token)
        if row.seq_len != first + count:
            yield mismatch("inputs", "seq_lens", row.request, (number, None), first + count, row.seq_len)
        if row.bound is not None and row.bound < row.seq_len:
            expected = fact("at_least", least=row.seq_len)
            yield mismatch("counts", "bounds", row.request, (number, None), expected, row.bound)

    def _slots(self, number: int, row: Row, owners: Mapping[int, Mapping[int, int]]) -> Iterator[Difference]:
        """Yield slots that contradict the block table, and blocks of other requests."""
        size = self._block_size
        for position, slot in enumerate(row.slots, self._computed[row.request].count):
            block = row.table[position // size]
            own = block * size + position % size
            if slot != own:
                yield mismatch("inputs", "slots", row.request, (number, position), own, slot)
            yield from self.owner(number, row.request, position, block, owners)

    def owner(
        self, number: int, request: int, position: int, block: int | None, owners: Mapping[int, Mapping[int, int]]
    ) -> Iterator[Difference]:
        """Yield a difference if a position's block is not the request's, or is wrongly shared."""
        index, held = position // self._block_size, owners.get(block, {}) if block is not None else {}
        if held.get(request) != index:
            expected, actual = fact("own_block", index=index), fact("block", block=block)
            yield mismatch("blocks", "tables", request, (number, position), expected, actual)
        for other, index_there in held.items():
            is_shared = index_there == index and (index + 1) * self._block_size <= self._computed[other].stay.hit
            if other != request and not is_shared:
                expected, actual = fact("a_block_of_its_own"), fact("block_of_another", block=block, other=other)
                yield mismatch("blocks", "tables", request, (number, position), expected, actual)

    def _states(
        self, step: Step, row: Row, planned: Sequence[Blocks], holders: Mapping[int, list[int]]
    ) -> Iterator[Difference]:
        """Yield recurrent states in wrong blocks, and rows that continue from a wrong state."""
        state = self._computed[row.request]
        where = step.number, state.count
        columns = [(row.seq_len - 1) // size for size in self._state_sizes]
        for group, (held, given) in enumerate(zip(planned, row.states, strict=False)):
            yield from _blocks_of_state(row.request, where, given.blocks, held[columns[group] :], holders)
            if given.goes_on != (where[1] > 0):
                how = fact("begins"), fact("goes_on")
                yield mismatch("inputs", "goes_on", row.request, where, how[not given.goes_on], how[given.goes_on])
            is_in_place = state.columns[group : group + 1] == columns[group : group + 1]
            yield from self._kept(step, row.request, given.kept, is_in_place)
        yield from self._copied(step, row)
        state.columns = columns

    def _num_kept(self, step: Step, request: int) -> int:
        """Return how many tokens of its last step a request's recurrent state must include."""
        last = self._history.steps[step.turns[request].last]
        return max(1, len(last.sampled.get(request, ()))) + self._computed[request].num_inner_tokens

    def _kept(self, step: Step, request: int, kept: int, is_in_place: bool) -> Iterator[Difference]:
        """Yield a difference if a recurrent state includes rejected or omits accepted tokens.

        If the state is not in the block in which the last step left it, it is a copy, which includes only the first
        token of that step. The state of a row with drafts that was computed as a prefill also includes rejected drafts.
        """
        state = self._computed[request]
        if is_in_place and state.num_drafts_in_state:
            kept = 1 + state.num_drafts_in_state
        expected = self._num_kept(step, request) if is_in_place else 1
        if kept != expected:
            facts = fact("behind_kept", kept=expected), fact("behind_kept", kept=kept)
            yield mismatch("inputs", "kept", request, (step.number, state.count), *facts)

    def _copied(self, step: Step, row: Row) -> Iterator[Difference]:
        """Yield a difference if a recurrent state was copied after the wrong token.

        At the end of a block, and when a request begins, the copied state includes only the first token of the step
        before. The state of a row that was computed as a prefill includes all of its tokens and is not checked.
        """
        state = self._computed[row.request]
        expected = 1
        if state.columns and all(state.count % size for size in self._state_sizes):
            expected = self._num_kept(step, row.request)
        if row.copied and row.copied != expected and not state.num_drafts_in_state:
            facts = fact("behind_kept", kept=expected), fact("behind_kept", kept=row.copied)
            yield mismatch("inputs", "copied", row.request, (step.number, state.count), *facts)

    def _mirrors(self, step: Step) -> Iterator[Difference]:
        """Yield wrong host counts of computed tokens, after the host removed rejected drafts."""
        for request, count in step.corrected.items():
            state = self._computed[request]
            if count != state.count and not step.turns[request].has_lost:
                yield mismatch("counts", "mirror_computed", request, (step.number, None), state.count, count)

    def results(self, step: Step) -> Iterator[Difference]:
        """Yield a difference for each sampled token of a prefill chunk that is not the last one."""
        for request, tokens in step.sampled.items():
            state = self._computed[request]
            turn = step.turns[request]
            if tokens and self._is_chunk(step, request) and turn.stay.tokens_are_known and not turn.has_lost:
                where = step.number, state.count + state.num_scheduled
                yield mismatch("inputs", "sampled", request, where, fact("no_token"), tokens)

    def advance(self, step: Step) -> None:
        """Record which requests ran a non-final prefill chunk in this step."""
        for request in step.requests:
            self._computed[request].is_chunk = self._is_chunk(step, request)

    def _is_chunk(self, step: Step, request: int) -> bool:
        """Return whether the request's prompt is not completely computed after the step."""
        state = self._computed[request]
        return state.count + state.num_scheduled < len(step.turns[request].known)


def _progress(state: ComputedTokens, sampled: Sequence[int]) -> int:
    """Return the number of tokens that the last step computed, without rejected drafts."""
    return state.num_scheduled - (state.num_drafts + 1 - len(sampled) if sampled else 0)


def owners_of(blocks: Iterable[tuple[int, Blocks]]) -> dict[int, dict[int, int]]:
    """Return, for each block, the requests that hold it with their block-table indexes."""
    owners: dict[int, dict[int, int]] = {}
    for request, held in blocks:
        for index, block in enumerate(held):
            owners.setdefault(block, {})[request] = index
    return owners


def _holders_of(blocks: Iterable[tuple[int, Blocks]], states: Mapping[int, Iterable[Blocks]]) -> dict[int, list[int]]:
    """Return, for each block, the requests that hold it: once for tokens, once per state.

    It is empty if no request has states.
    """
    holders: dict[int, list[int]] = {}
    for request, held in blocks if states else ():
        for block in (block for group in (held, *states[request]) for block in group):
            holders.setdefault(block, []).append(request)
    return holders


def _blocks_of_state(
    request: int, where: Where, given: Blocks, planned: Blocks, holders: Mapping[int, list[int]]
) -> Iterator[Difference]:
    """Yield recurrent states in a block that was not scheduled for them or is shared.

    A row has one state, after its last token, or one after each of its tokens, the first at the position in `where`.
    """
    step, first = where
    for index, block in enumerate(given):
        own = planned[index] if index < len(planned) else None
        if block != own:
            expected, actual = fact("state_in_block", block=own), fact("block", block=block)
            yield mismatch("blocks", "states", request, (step, first + index), expected, actual)
        if len(held_by := holders.get(block, [])) > 1:
            actual = fact("block_of_several", block=block, holders=held_by)
            yield mismatch("blocks", "states", request, (step, first + index), fact("a_block_for_its_state"), actual)


def metrics_of(step: Step) -> Iterator[Difference]:
    """Yield speculation metrics larger than the verified rows, drafts or accepted drafts.

    They may count fewer, because an engine leaves out requests that ended before the result arrived.
    """
    planned = dict(zip(step.requests, step.plan.planned_drafts, strict=True))
    rows = {request: tokens for request, tokens in step.sampled.items() if tokens and planned.get(request)}
    most = len(rows), sum(planned[request] for request in rows), sum(len(tokens) - 1 for tokens in rows.values())
    names = "counted_rows", "counted_drafts", "counted_accepted"
    for name, count, bound in zip(names, step.counted, most, strict=False):
        if not 0 <= count <= bound:
            yield mismatch("books", name, None, (step.number, None), fact("between", least=0, most=bound), count)
