"""Check KV-connector transfers: the use of blocks in a store, a load or a hand-off.

Verifies:
- a block of a load or store in flight is not allocated to another request, written by a step, part of another load,
  free, or registered in the prefix cache before its KV cache entries have arrived;
- the `simple` connector does not store a block again before the store of it has ended;
- every full chunk that a request has computed was offered to a chunked store before the request ended;
- every transfer that begins ends exactly once;
- a request fails only if blocks were lost;
- a request that is preempted for lack of blocks frees its blocks at once;
- a producer keeps all blocks of a prompt until the consumer has read them, and the consumer reads no others.

Does not verify:
- the content of a block (`kv_content` does);
- the order of accesses within a step (`races` does).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scenarios.spec import ENGINE, PRODUCER, EngineName, Offloading
from workers.judge.history import EngineHistory, History
from workers.judge.judge import Case, End, HistoryJudge, with_engine_name
from workers.judge.mismatches import mismatch
from workers.record.engine_records import EngineRecord, InFlight, Inputs, Offered, Preempted, Scheduled, Transfer
from workers.record.evidence import Difference, fact

PLANE = "transfers"
PLANES = (PLANE,)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A KV transfer in flight: its request, its kind (load, store, send), and its blocks."""

    request: int
    of: str
    blocks: frozenset[int]
    is_synchronous: bool


class _Transfers:
    """The KV transfers of one engine, checked in the order in which the engine reported them."""

    def __init__(self, offloading: Offloading | None, history: EngineHistory | None) -> None:
        self._offloading, self._history = offloading, history
        self._stores_once = offloading is not None and offloading.connector == "simple"
        self.block_size = history.sizes.block_size if history is not None else 0
        self.flights: dict[int, _Flight] = {}
        self.has_ended = False
        self.num_lost = 0
        # By step, the blocks that were in flight when the step was planned, each with its request.
        self._used: dict[int, dict[int, int]] = {}

    def check_record(self, record: EngineRecord) -> Iterator[Difference]:
        """Update the transfers by one engine record; yield the differences found in it."""
        match record:
            case Transfer() if record.values.phase == "begins":
                yield from self._begin(record)
            case Transfer() if record.values.phase == "ends":
                yield from self._end(record)
            case Transfer() if record.values.of == "store" and self._stores_once:
                yield from self._store(record)
            case Offered():
                yield from self._offered(record)
            case Scheduled():
                yield from self._planned(record)
            case Inputs():
                yield from self._written(record)
            case InFlight(values=values):
                yield from (self._misused(record, "free", *pair) for pair in values.free)
                yield from (self._misused(record, "registered", *pair) for pair in values.registered)
            case Preempted():
                for block in record.values.kept:
                    actual = fact("block_kept", block=block)
                    yield mismatch(
                        PLANE, "preempted", record.requests[0], (record.step, None), fact("room_at_once"), actual
                    )
            case _:
                pass

    def left(self, steps: int) -> Iterator[Difference]:
        """Yield a difference for each transfer still in flight after the last request has ended."""
        for number, flight in self.flights.items():
            yield mismatch(PLANE, "ends", flight.request, (steps, None), fact("an_end"), fact("no_end", number=number))

    def in_flight(self, request: int, of: str) -> Iterator[_Flight]:
        """Yield the transfers of one kind that a request has in flight."""
        yield from (each for each in self.flights.values() if (each.request, each.of) == (request, of))

    def _begin(self, record: Transfer) -> Iterator[Difference]:
        values, request = record.values, record.requests[0]
        blocks = frozenset(values.blocks)
        if values.of == "load":
            for number, other in self.flights.items():
                for block in sorted(blocks & other.blocks):
                    actual = fact("block_of_transfer", block=block, number=number)
                    yield mismatch(PLANE, "blocks", request, (record.step, None), fact("a_block_of_its_own"), actual)
        self.flights[values.number] = _Flight(request, values.of, blocks, values.is_synchronous)

    def _store(self, record: Transfer) -> Iterator[Difference]:
        """Yield a difference for each block that is stored while another store of it is in flight."""
        for other, flight in self.flights.items():
            if flight.of != "store" or other == record.values.number:
                continue
            for block in sorted(flight.blocks.intersection(record.values.blocks)):
                expected, actual = fact("a_block_of_its_own"), fact("block_of_transfer", block=block, number=other)
                yield mismatch(PLANE, "stored", record.requests[0], (record.step, None), expected, actual)

    def _end(self, record: Transfer) -> Iterator[Difference]:
        number, where = record.values.number, (record.step, None)
        self.num_lost += len(record.values.lost)
        if self.flights.pop(number, None) is None:
            facts = fact("one_end"), fact("ended_again", number=number)
            yield mismatch(PLANE, "ends", record.requests[0], where, *facts)
        self.has_ended = True
        if record.values.is_ahead:
            # The transfer ended before this step's kernels: the next owner of its blocks may write them.
            for block in record.values.blocks:
                self._used.get(record.step, {}).pop(block, None)

    def _offered(self, record: Offered) -> Iterator[Difference]:
        """Yield a difference if a finished request did not store all its computed full chunks."""
        assert self._offloading is not None, "chunks are offered to its store"
        values, size = record.values, self.block_size * self._offloading.blocks_per_chunk
        # The KV cache entry of the last output token is never computed.
        computed = max(values.prompt, values.tokens - 1)
        kept = values.prompt if self._offloading.stored == "prompts" else computed
        missing = set(range(values.found // size, kept // size)) - set(values.offered)
        for chunk in sorted(missing)[:1]:
            actual = fact("chunks_offered", chunks=list(values.offered))
            yield mismatch(
                PLANE, "offered", record.requests[0], (record.step, None), fact("chunk", chunk=chunk), actual
            )

    def _planned(self, record: Scheduled) -> Iterator[Difference]:
        """Yield a difference for each scheduled block that an asynchronous load still writes.

        Keep the blocks in flight for `_written`.
        """
        flights = [flight for flight in self.flights.values() if not flight.is_synchronous]
        self._used[record.step] = {block: flight.request for flight in flights for block in flight.blocks}
        arriving = {block: each.request for each in flights if each.of == "load" for block in each.blocks}
        states = dict(record.values.states)
        for request, blocks in record.values.blocks if arriving else ():
            for block in (block for held in (blocks, *states.get(request, ())) for block in held):
                if block in arriving:
                    actual = fact("block_arriving", block=block, other=arriving[block])
                    yield mismatch(PLANE, "blocks", request, (record.step, None), fact("a_block_of_its_own"), actual)

    def _written(self, record: Inputs) -> Iterator[Difference]:
        """Yield a difference for each block that a step writes while a transfer uses it."""
        assert self._history is not None, "an engine reports its sizes before its steps"
        used = self._used.pop(record.step, {})
        for row in self._history.steps[record.step].rows if used else ():
            written = {slot // self.block_size for slot in row.slots} | {state.block for state in row.states}
            for block in sorted(written & used.keys()):
                actual = fact("block_in_flight", block=block, other=used[block])
                yield mismatch(PLANE, "written", row.request, (record.step, None), fact("a_block_of_its_own"), actual)

    def _misused(self, record: InFlight, how: str, number: int, block: int) -> Difference:
        flight = self.flights.get(number)
        request = flight.request if flight is not None else None
        actual = fact("block_free" if how == "free" else "block_registered", block=block)
        return mismatch(PLANE, how, request, (record.step, None), fact("held_until_end"), actual)


class ConnectorTransfers(HistoryJudge):
    """Judge of the KV transfers of all engines of a run, with its offloading store if any."""

    def __init__(self, offloading: Offloading | None = None) -> None:
        self._offloading = offloading

    @classmethod
    def of(cls, case: Case) -> "ConnectorTransfers | None":
        """Return the judge; None for a run without a KV connector."""
        return cls(case.trace.spec.offloading) if case.trace.spec.has_connector else None

    def compared(self, history: History) -> tuple[str, ...]:
        phases = {record.values.phase for record in history.records if isinstance(record, Transfer)}
        return PLANES if phases & {"begins", "ends"} else ()

    def differences(self, end: End) -> Iterator[Difference]:
        engines = end.history.engines
        of: dict[EngineName, _Transfers] = {
            each: _Transfers(self._offloading, engines.get(each)) for each in (ENGINE, PRODUCER)
        }
        # By request, the length of the prompt that a producer computes.
        prompts: dict[int, int] = {}
        for record in end.history.records:
            for found in _handed_over(record, of, prompts):
                yield with_engine_name(found, record.of)
            for found in of[record.of].check_record(record):
                yield with_engine_name(found, record.of)
        for each, transfers in of.items():
            for found in transfers.left(end.steps):
                yield with_engine_name(found, each)
        if of[ENGINE].has_ended and not of[ENGINE].num_lost:
            for name in sorted(name for name, output in end.outputs.items() if output.finish_reason == "error"):
                yield mismatch(
                    PLANE, "failures", name, (end.steps, None), fact("no_failure"), fact("reason", reason="error")
                )


def _handed_over(
    record: EngineRecord, of: dict[EngineName, _Transfers], prompts: dict[int, int]
) -> Iterator[Difference]:
    """Yield differences in the blocks that a prefill producer hands to its consumer.

    It must be called before `_Transfers.check_record` processes the record.
    """
    if isinstance(record, Scheduled) and record.of == PRODUCER:
        for number, tokens in record.values.begun:
            prompts.setdefault(number, len(tokens))
    if not isinstance(record, Transfer) or record.values.phase == "copies":
        return
    (request,), values, producer, where = record.requests, record.values, of[PRODUCER], (record.step, None)
    match values.of, values.phase:
        case "send", "begins":
            expected = -(-prompts[request] // producer.block_size)
            count = len(values.blocks) - values.num_states
            if count != expected:
                counts = (fact("blocks_handed_over", count=each) for each in (expected, count))
                yield mismatch(PLANE, "sent", request, where, *counts)
        case "send", "ends":
            for _ in of[ENGINE].in_flight(request, "load"):
                yield mismatch(PLANE, "ends", request, where, fact("held_until_end"), fact("given_back_in_load"))
        case "load", "begins" if prompts:
            kept = {block for each in producer.in_flight(request, "send") for block in each.blocks}
            for block in values.slots:
                if block not in kept:
                    actual = fact("block_not_kept", block=block)
                    yield mismatch(PLANE, "read", request, where, fact("held_until_end"), actual)
