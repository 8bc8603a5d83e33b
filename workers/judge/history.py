"""Join the engine records of a run into steps, batch rows and running periods of requests.

A *stay* of a request lasts from the step that schedules it first, or again after a preemption, to its end or its next
preemption. Steps are numbered from 0, requests by the order of their submits, positions by the request's tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.spec import ENGINE, EngineName
from workers.record.engine_records import (
    Branches,
    Context,
    Corrected,
    Counted,
    Drafting,
    DraftLogits,
    Drained,
    EngineRecord,
    HiddenStates,
    Inputs,
    Margins,
    Opened,
    OpenedValues,
    Processed,
    Proposed,
    RankInputs,
    Scheduled,
    ScheduledValues,
    Transfer,
)

Blocks: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class StateInput:
    """The recurrent state that a row reads and writes in one KV-cache group (`StateColumns`).

    `block` holds the state after the row's last token. `blocks` has one block per token if the engine writes a state
    after every token, else `block` alone.
    """

    block: int
    blocks: Blocks
    goes_on: bool
    kept: int
    whole: bool


@dataclass(frozen=True, slots=True)
class WindowInput:
    """Slot mapping and block table of a batch row in one group of sliding-window layers."""

    slots: Sequence[int]
    table: Blocks


@dataclass(frozen=True, slots=True)
class Row:
    """The model inputs of one batch row: input ids, positions, slot mapping, block table.

    The last `num_drafts` tokens are draft tokens. `bound` is the host's upper bound of `seq_len`, None if it has none.
    If a recurrent state is copied to a new block, `copied` is the number of tokens of the step before that it includes,
    else 0.
    """

    request: int
    input_ids: Sequence[int]
    positions: Sequence[int]
    slots: Sequence[int]
    seq_len: int
    num_drafts: int
    table: Blocks
    bound: int | None
    copied: int
    states: Sequence[StateInput]
    windows: Sequence[WindowInput]

    @property
    def first(self) -> int:
        """Return the position of the row's first token."""
        return self.positions[0]


@dataclass(frozen=True, slots=True)
class Stay:
    """One running period of a request: from its first or resumed step to its end or preemption.

    `before` has the request's tokens at the end of the stay before, None in the first stay. `tokens_are_known` is false
    if results of the stay before may still arrive: then the tokens of this stay are uncertain.
    """

    request: int
    first: int
    hit: int
    before: Sequence[int] | None
    tokens_are_known: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in one step: its running period, earlier tokens, and previous step.

    `last` is the previous step of the same stay, -1 if there is none. `has_lost`: a synchronous load of this stay has
    lost a block. From then on the request's computed tokens are uncertain, and from the next step on its tokens.
    """

    stay: Stay
    known: Sequence[int]
    last: int
    has_lost: bool


@dataclass(frozen=True, slots=True)
class Step:
    """All engine records of one step, and the number of steps processed when it was scheduled.

    `inputs` is None and `rows` is empty if the engine did not report the step's inputs. `padding` has the slots of
    padding tokens, `window_padding` the same for each sliding-window group. `hidden_states` has what the models
    returned, by draft pass, and None for the target.
    """

    number: int
    requests: tuple[int, ...]
    plan: ScheduledValues
    num_processed: int
    turns: Mapping[int, Turn]
    inputs: Inputs | None
    rows: Sequence[Row]
    padding: Sequence[int]
    window_padding: Sequence[Sequence[int]]
    corrected: Mapping[int, int]
    sampled: Mapping[int, Sequence[int]]
    counted: Sequence[int]
    context: Context | None
    passes: Sequence[Drafting]
    margins: Sequence[Sequence[float]]
    logits: Sequence[Margins]
    hidden_states: Mapping[int | None, HiddenStates]
    branches: Sequence[Branches]
    draft_logits: DraftLogits | None
    proposed: Mapping[int, Sequence[int]]

    @property
    def computed(self) -> Mapping[int, int]:
        """Return the scheduler's number of computed tokens, by request."""
        return dict(zip(self.requests, self.plan.scheduled_computed, strict=True))

    @property
    def begun(self) -> Mapping[int, Sequence[int]]:
        """Return the known tokens of each request that starts or resumes in this step."""
        return dict(self.plan.begun)


@dataclass(frozen=True, slots=True)
class EngineHistory:
    """The steps of one engine by number, its sizes, and the objects left at the end."""

    sizes: OpenedValues
    steps: Mapping[int, Step]
    num_processed: int
    drained: Sequence[Drained]


@dataclass(frozen=True, slots=True)
class History:
    """All records of a run in order, and the steps of each engine that reported its sizes."""

    records: Sequence[EngineRecord]
    engines: Mapping[EngineName, EngineHistory]

    @classmethod
    def of(cls, records: Sequence[EngineRecord]) -> "History":
        """Build the history from all records of a run, in order."""
        collectors = {each.of: _Collector(each.values) for each in records if isinstance(each, Opened)}
        for each in records:
            collectors[each.of].add(each)
        return cls(records, {of: collector.history() for of, collector in collectors.items()})

    def of_one(self, of: EngineName) -> "History":
        """Return the history of one engine, as if it was the only one."""
        records = [each.model_copy(update={"of": ENGINE}) for each in self.records if each.of == of]
        return History(records, {ENGINE: self.engines[of]} if of in self.engines else {})

    def steps_of(self, of: EngineName) -> Mapping[int, Step]:
        """Return the steps of an engine; empty if the engine reported nothing."""
        return self.engines[of].steps if of in self.engines else {}


@dataclass(slots=True, eq=False)
class _StepRecords:
    """The records collected for one step so far."""

    plan: Scheduled
    num_processed: int
    inputs: Inputs | None = None
    corrected: Mapping[int, int] = field(default_factory=dict)
    sampled: Mapping[int, Sequence[int]] = field(default_factory=dict)
    counted: Sequence[int] = ()
    context: Context | None = None
    passes: list[Drafting] = field(default_factory=list)
    margins: list[Margins] = field(default_factory=list)
    hidden_states: dict[int | None, HiddenStates] = field(default_factory=dict)
    branches: list[Branches] = field(default_factory=list)
    draft_logits: DraftLogits | None = None
    proposed: Mapping[int, Sequence[int]] = field(default_factory=dict)


class _Collector:
    """Collects the records of one engine, in order, by step."""

    def __init__(self, sizes: OpenedValues) -> None:
        self._sizes = sizes
        self._records: dict[int, _StepRecords] = {}
        self._num_processed = 0
        # By step, the blocks that its synchronous loads lost.
        self._lost: dict[int, set[int]] = {}
        self._drained: list[Drained] = []

    def add(self, record: EngineRecord) -> None:
        """Add a record to its step; ignore records of no step."""
        match record:
            case Scheduled():
                assert record.step not in self._records, f"step {record.step} is planned twice"
                self._records[record.step] = _StepRecords(record, self._num_processed)
            case Inputs():
                self._records[record.step].inputs = record
            case Corrected(values=values):
                self._records[record.step].corrected = dict(zip(record.requests, values.mirror_computed, strict=True))
            case Processed(values=values):
                assert record.step == self._num_processed, f"step {record.step} is processed out of order"
                self._num_processed += 1
                self._records[record.step].sampled = dict(zip(record.requests, values.sampled, strict=True))
            case Counted(values=values):
                self._records[record.step].counted = values.counted
            case Context():
                self._records[record.step].context = record
            case Drafting(values=values):
                assert values.index == len(self._records[record.step].passes), "a draft pass is missing"
                self._records[record.step].passes.append(record)
            case Margins():
                self._records[record.step].margins.append(record)
            case HiddenStates(values=values):
                self._records[record.step].hidden_states[values.draft_pass] = record
            case Branches():
                self._records[record.step].branches.append(record)
            case DraftLogits():
                self._records[record.step].draft_logits = record
            case Proposed(values=values):
                self._records[record.step].proposed = dict(zip(record.requests, values.proposed, strict=True))
            case Transfer(values=values) if values.of == "load" and values.is_synchronous:
                self._lost.setdefault(record.step, set()).update(values.blocks[index] for index in values.lost)
            case Drained():
                self._drained.append(record)
            case _:
                pass

    def history(self) -> EngineHistory:
        """Return the steps collected so far."""
        stays: dict[int, Stay] = {}
        known: dict[int, list[int]] = {}
        last: dict[int, int] = {}
        losers: set[int] = set()
        steps = {}
        for number in sorted(self._records):
            records = self._records[number]
            computed = dict(zip(records.plan.requests, records.plan.values.scheduled_computed, strict=True))
            for request, tokens in records.plan.values.begun:
                before = known.get(request)
                tokens_are_known = before is None or len(before) <= len(tokens)
                stays[request] = Stay(request, number, computed[request], before, tokens_are_known)
                known[request], last[request] = list(tokens), -1
                losers.discard(request)
            lost = self._lost.get(number, set())
            losers.update(request for request, blocks in records.plan.values.blocks if not lost.isdisjoint(blocks))
            turns = {}
            for request in records.plan.requests:
                turns[request] = Turn(stays[request], tuple(known[request]), last[request], request in losers)
                known[request] += records.sampled.get(request, ())
                last[request] = number
            steps[number] = _step(number, records, turns)
        return EngineHistory(self._sizes, steps, self._num_processed, self._drained)


def _step(number: int, records: _StepRecords, turns: Mapping[int, Turn]) -> Step:
    inputs, end = records.inputs, 0
    if inputs is not None:
        end = inputs.values.starts[-1]
    return Step(
        number=number,
        requests=records.plan.requests,
        plan=records.plan.values,
        num_processed=records.num_processed,
        turns=turns,
        inputs=inputs,
        rows=[] if inputs is None else rows_of(inputs),
        padding=[] if inputs is None else inputs.values.slots[end:],
        window_padding=[] if inputs is None else [each.slots[end:] for each in inputs.values.windows],
        corrected=records.corrected,
        sampled=records.sampled,
        counted=records.counted,
        context=records.context,
        passes=records.passes,
        margins=[each.values.margins for each in records.margins],
        logits=records.margins,
        hidden_states=records.hidden_states,
        branches=records.branches,
        draft_logits=records.draft_logits,
        proposed=records.proposed,
    )


def rows_of(inputs: Inputs | RankInputs) -> list[Row]:
    """Return the batch rows of a step's inputs."""
    values, rows = inputs.values, []
    for row, (request, start, stop) in enumerate(zip(inputs.requests, values.starts, values.starts[1:], strict=False)):
        states = [
            StateInput(
                block=group.states[row],
                blocks=[group.states[row]] if group.left is None else group.left[row][: stop - start],
                goes_on=group.goes_on[row],
                kept=group.kept[row],
                whole=group.whole[row],
            )
            for group in values.states
        ]
        rows.append(
            Row(
                request=request,
                input_ids=values.input_ids[start:stop],
                positions=values.positions[start:stop],
                slots=values.slots[start:stop],
                seq_len=values.seq_lens[row],
                num_drafts=values.drafts[row],
                table=values.tables[row],
                bound=values.bounds[row] if row < len(values.bounds) else None,
                copied=values.copied[row] if row < len(values.copied) else 0,
                states=states,
                windows=[WindowInput(group.slots[start:stop], group.tables[row]) for group in values.windows],
            )
        )
    return rows
