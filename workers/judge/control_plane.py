"""Check pause, sleep, weight reload, cache reset: no step while paused, no stale KV cache.

Verifies:
- a paused engine schedules no request, except that pause mode "wait" lets running requests finish; a request whose KV
  load began before the pause may still begin;
- no step is executed while weights or KV cache are asleep;
- after a reset of the KV cache, as for new weights, no request attends to entries computed before the reset;
- the weights are those of the version loaded or woken up; the drafter's own weights survive a sleep;
- the request of a neighbour (another engine in the same process) has the same output each time.

Does not verify:
- attended KV cache entries, if the ranks of the engine are other processes;
- output tokens (they are compared with undisturbed runs);
- finish reasons (contracts do);
- recurrent states.
"""

from collections.abc import Iterator, Mapping, Sequence

from scenarios.events import CONTROL_EVENTS, clears_cache
from scenarios.spec import ENGINE
from workers.judge.history import EngineHistory, History, Row
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.engine_records import Controlled, Copied, EngineRecord, Scheduled, Transfer
from workers.record.evidence import Difference, fact

PLANE = "control"
_PAUSES = {"pause_abort": "abort", "pause_wait": "wait", "pause_keep": "keep"}


class ControlPlane(HistoryJudge):
    """Judge of a run in which the engine is paused, put to sleep, reset, or loads other weights."""

    @classmethod
    def of(cls, case: Case) -> "ControlPlane | None":
        """Return the judge; None for a trace without control-plane events."""
        is_controlled = any(event.do in CONTROL_EVENTS or clears_cache(event) for event in case.trace.events)
        return cls() if case.shows_plans and is_controlled else None

    def compared(self, history: History) -> tuple[str, ...]:
        is_used = any(isinstance(record, Controlled) and record.of == ENGINE for record in history.records)
        return (PLANE,) if is_used else ()

    def differences(self, end: End) -> Iterator[Difference]:
        calls = _Calls()
        found = [each for record in end.history.records if record.of == ENGINE for each in calls.check_record(record)]
        if calls.era:
            found += _attended(end.history.engines[ENGINE], calls)
        yield from sorted(found, key=lambda difference: difference.step)


class _Calls:
    """Pause, sleep, reload and reset calls by step; each cache reset begins a new `era`."""

    def __init__(self) -> None:
        self.era = 0
        # By step, the era in which it was planned: its inputs may be reported in a later era.
        self.eras: dict[int, int] = {}
        # By step, the blocks of loads that begin in it: a reset does not clear the store.
        self.loaded: dict[int, set[int]] = {}
        # By step, the block copies before it, as pairs of source and target.
        self.copied: dict[int, list[tuple[int, int]]] = {}
        self._mode = ""
        # Requests whose KV load began while the engine was not paused: they hold blocks, and may finish.
        self._loading: set[int] = set()
        self._neighbour: list[int] | None = None

    def check_record(self, record: EngineRecord) -> Iterator[Difference]:
        """Process one engine record; yield the differences found in it."""
        match record:
            case Controlled():
                yield from self._control(record)
            case Scheduled():
                self.eras[record.step] = self.era
                yield from self._planned(record)
            case Copied():
                self.copied.setdefault(record.step, []).extend(record.values.blocks)
            case Transfer() if (record.values.of, record.values.phase) == ("load", "begins"):
                self.loaded.setdefault(record.step, set()).update(record.values.blocks)
                self._loading.update(() if self._mode else record.requests)
            case _:
                pass

    def _control(self, record: Controlled) -> Iterator[Difference]:
        what, tokens, where = record.values.what, record.values.tokens, (record.step, None)
        if what in _PAUSES:
            self._mode = _PAUSES[what]
        elif what == "resume":
            self._mode = ""
        elif what == "cleared":
            self.era += 1
        elif what in ("weights", "drafter_weights") and tokens != [0]:
            expected = fact("weights", version=record.values.version) if what == "weights" else fact("kept_asleep")
            yield mismatch(PLANE, what, None, where, expected, fact("unlike", count=tokens[0]))
        elif what == "executed_asleep":
            yield mismatch(PLANE, "asleep", None, where, fact("awake"), fact("executed"))
        elif what == "neighbour":
            self._neighbour = tokens if self._neighbour is None else self._neighbour
            if tokens != self._neighbour:
                yield mismatch(PLANE, "neighbour", None, where, self._neighbour, tokens)

    def _planned(self, record: Scheduled) -> Iterator[Difference]:
        """Yield a difference for the first request scheduled although the engine is paused."""
        begun = [request for request, _ in record.values.begun]
        barred = {"": (), "wait": [each for each in begun if each not in self._loading]}.get(
            self._mode, record.requests
        )
        self._loading.difference_update(begun)
        if barred:
            expected = fact("paused", mode=self._mode)
            yield mismatch(PLANE, "paused", barred[0], (record.step, None), expected, fact("planned"))


def _attended(history: EngineHistory, calls: _Calls) -> Iterator[Difference]:
    """Yield, for each batch row, the first KV entry it reads from before the last reset.

    A copied block belongs to the era of its source.
    """
    size = history.sizes.block_size
    # By slot, the era in which its KV cache entry was computed.
    computed: dict[int, int] = {}
    for number, step in history.steps.items():
        if step.inputs is None:
            continue
        era = calls.eras[number]
        for before in sorted(each for each in calls.copied if each <= number):
            _copy(calls.copied.pop(before), computed, size)
        computed |= dict.fromkeys((slot for row in step.rows for slot in row.slots if slot >= 0), era)
        for begun in sorted(each for each in calls.loaded if each <= number):
            for block in calls.loaded.pop(begun):
                for slot in _slots(block, size):
                    computed.pop(slot, None)
        for row in step.rows:
            position = _first_of_an_earlier_era(row, computed, era, size)
            if position is not None:
                actual = fact("of_an_era", era=computed[_slot(row, position, size)])
                yield mismatch(PLANE, "era", row.request, (number, position), fact("of_an_era", era=era), actual)


def _first_of_an_earlier_era(row: Row, computed: Mapping[int, int], era: int, size: int) -> int | None:
    positions = range(row.seq_len)
    return next((each for each in positions if computed.get(_slot(row, each, size), era) < era), None)


def _slot(row: Row, position: int, size: int) -> int:
    return row.table[position // size] * size + position % size


def _slots(block: int, size: int) -> range:
    return range(block * size, (block + 1) * size)


def _copy(blocks: Sequence[tuple[int, int]], computed: dict[int, int], size: int) -> None:
    """Copy the reset counts (eras) of KV entries from source to target blocks, all reads first."""
    slots = [pair for source, target in blocks for pair in zip(_slots(source, size), _slots(target, size), strict=True)]
    eras = {target: computed.get(source) for source, target in slots}
    for target, era in eras.items():
        computed.pop(target, None)
        if era is not None:
            computed[target] = era
