"""Identities of transfers between a cache and a store beside it: who may use a block while it is read or written.

Verifies: that a block of a load or a store in flight is given to no other request, written by no step, part of no
other load, not free, not registered for others before it has arrived, and, of a store that has what the prefix cache
has, stored once at a time; that of a request which ends by itself every whole chunk that it has computed was offered to
a store of chunks by then; that every transfer that begins ends, and none twice; that a request fails only where blocks
were lost; that whoever is preempted for room gives its blocks back at once. Of a prompt that one engine hands to
another: that all of its blocks are kept, as those of a store in flight, until the other one has read them, which reads
no others.
Does not verify: what a block holds (`attended_tokens` does); orders of accesses within a step (`races` does).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scenarios.spec import ENGINE, PRODUCER, EngineName, Offloading
from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge, told_of
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANE = "transfers"
PLANES = (PLANE,)


@dataclass(slots=True, eq=False)
class _Flight:
    """A transfer in flight: whose it is, and which blocks it uses."""

    request: int
    of: str
    blocks: frozenset[int]
    is_synchronous: bool


class _Transfers:
    """The transfers of one engine, in the order in which they are observed."""

    def __init__(self, offloading: Offloading | None) -> None:
        self._offloading = offloading
        self._stores_once = offloading is not None and offloading.connector == "simple"
        self.flights: dict[int, _Flight] = {}
        self.ended: set[int] = set()
        self.num_lost = 0
        # Blocks in flight, each with its request, by the step that was planned while they were.
        self._used: dict[int, dict[int, int]] = {}
        self.block_size = 0

    def see(self, seen: Observation) -> Iterator[Difference]:
        """Yield what is wrong with something that was observed, once it counts."""
        match seen.point:
            case "opened":
                self.block_size = seen.values["block_size"]
            case "transfer" if seen.values["phase"] == "begins":
                yield from self._begin(seen)
            case "transfer" if seen.values["phase"] == "ends":
                yield from self._end(seen)
            case "transfer" if seen.values["of"] == "store":
                yield from self._store(seen) if self._stores_once else ()
            case "offered":
                yield from self._offered(seen)
            case "scheduled":
                yield from self._planned(seen)
            case "inputs":
                yield from self._written(seen)
            case "in_flight":
                for how in ("free", "registered"):
                    yield from (self._misused(seen, how, *pair) for pair in seen.values[how])
            case "preempted":
                for block in seen.values["kept"]:
                    actual = fact("block_kept", block=block)
                    yield broken(PLANE, "preempted", seen.requests[0], (seen.step, None), fact("room_at_once"), actual)

    def left(self, steps: int) -> Iterator[Difference]:
        """Yield transfers that have not ended when nothing is left to do."""
        for number, flight in self.flights.items():
            yield broken(PLANE, "ends", flight.request, (steps, None), fact("an_end"), fact("no_end", number=number))

    def of(self, request: int, of: str) -> Iterator[_Flight]:
        """Yield the transfers of a request that are in flight."""
        yield from (each for each in self.flights.values() if (each.request, each.of) == (request, of))

    def _begin(self, seen: Observation) -> Iterator[Difference]:
        values, request = seen.values, seen.requests[0]
        blocks = frozenset(values["blocks"])
        if values["of"] == "load":
            for number, other in self.flights.items():
                for block in sorted(blocks & other.blocks):
                    actual = fact("block_of_transfer", block=block, number=number)
                    yield broken(PLANE, "blocks", request, (seen.step, None), fact("a_block_of_its_own"), actual)
        self.flights[values["number"]] = _Flight(request, values["of"], blocks, values["is_synchronous"])

    def _store(self, seen: Observation) -> Iterator[Difference]:
        """Yield blocks that are copied to a store while another store of them has not ended."""
        number = seen.values["number"]
        for other, flight in self.flights.items():
            for block in sorted(flight.blocks.intersection(seen.values["blocks"])) if flight.of == "store" else ():
                if other != number:
                    actual = fact("block_of_transfer", block=block, number=other)
                    yield broken(
                        PLANE, "stored", seen.requests[0], (seen.step, None), fact("a_block_of_its_own"), actual
                    )

    def _end(self, seen: Observation) -> Iterator[Difference]:
        number = seen.values["number"]
        self.num_lost += len(seen.values["lost"])
        if self.flights.pop(number, None) is None:
            yield broken(
                PLANE, "ends", seen.requests[0], (seen.step, None), fact("one_end"), fact("ended_again", number=number)
            )
        self.ended.add(number)
        if seen.values["is_ahead"]:
            # Whoever got its blocks in this step may write them.
            for block in seen.values["blocks"]:
                self._used.get(seen.step, {}).pop(block, None)

    def _offered(self, seen: Observation) -> Iterator[Difference]:
        """Yield the first chunk that an ended request has computed, and that no store was offered."""
        assert self._offloading is not None, "what is offered is offered to its store"
        values, size = seen.values, self.block_size * self._offloading.blocks_per_chunk
        # The last token is computed by nobody.
        computed = max(values["prompt"], values["tokens"] - 1)
        kept = values["prompt"] if self._offloading.stored == "prompts" else computed
        missing = set(range(values["found"] // size, kept // size)) - set(values["offered"])
        for chunk in sorted(missing)[:1]:
            actual = fact("chunks_offered", chunks=list(values["offered"]))
            yield broken(PLANE, "offered", seen.requests[0], (seen.step, None), fact("chunk", chunk=chunk), actual)

    def _planned(self, seen: Observation) -> Iterator[Difference]:
        """Yield blocks of loads in flight that a running request holds; note all in flight for what will be written."""
        flights = [flight for flight in self.flights.values() if not flight.is_synchronous]
        self._used[seen.step] = {block: flight.request for flight in flights for block in flight.blocks}
        arriving = {block: each.request for each in flights if each.of == "load" for block in each.blocks}
        states = dict(seen.values["states"])
        for request, blocks in seen.values["blocks"] if arriving else ():
            for block in (block for held in (blocks, *states.get(request, ())) for block in held):
                if block in arriving:
                    actual = fact("block_arriving", block=block, other=arriving[block])
                    yield broken(PLANE, "blocks", request, (seen.step, None), fact("a_block_of_its_own"), actual)

    def _written(self, seen: Observation) -> Iterator[Difference]:
        """Yield blocks that a step writes which were in flight when it was planned."""
        used, values = self._used.pop(seen.step, {}), seen.values
        rows = zip(seen.requests, values["starts"], values["starts"][1:], strict=False)
        of_states = [values[name] for name in values if name.startswith("states_")]
        for row, (request, start, stop) in enumerate(rows if used else ()):
            written = {slot // self.block_size for slot in values["slots"][start:stop]}
            written |= {slots[row] for slots in of_states}
            for block in sorted(written & used.keys()):
                actual = fact("block_in_flight", block=block, other=used[block])
                yield broken(PLANE, "written", request, (seen.step, None), fact("a_block_of_its_own"), actual)

    def _misused(self, seen: Observation, how: str, number: int, block: int) -> Difference:
        flight = self.flights.get(number)
        request = flight.request if flight is not None else None
        actual = fact("block_free" if how == "free" else "block_registered", block=block)
        return broken(PLANE, how, request, (seen.step, None), fact("held_until_end"), actual)


class TransferIdentities(Judge):
    """Judge of the observations of one run of all of its engines, in the order in which they were made.

    Of an `offloading` by a connector that stores what the prefix cache has, no block is in two stores at a time.
    """

    sees = ("log",)
    sees_of = (ENGINE, PRODUCER)

    def __init__(self, offloading: Offloading | None = None) -> None:
        self._found: list[Difference] = []
        self._of: dict[EngineName, _Transfers] = {of: _Transfers(offloading) for of in self.sees_of}
        # By request the number of tokens of its prompt, of those that a producer computes.
        self._prompts: dict[int, int] = {}

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if any(each.flights or each.ended for each in self._of.values()) else ()

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            self._found += (told_of(found, seen.of) for found in self._handed_over(seen))
            self._found += (told_of(found, seen.of) for found in self._of[seen.of].see(seen))

    def _handed_over(self, seen: Observation) -> Iterator[Difference]:
        """Yield what is wrong with blocks that are handed over, before what was seen counts."""
        if seen.point == "scheduled" and seen.of == PRODUCER:
            for request, tokens in seen.values["begun"]:
                self._prompts.setdefault(request, len(tokens))
        if seen.point != "transfer" or seen.values["phase"] == "copies":
            return
        (request,), values, producer = seen.requests, seen.values, self._of[PRODUCER]
        match values["of"], values["phase"]:
            case "send", "begins":
                due = -(-self._prompts[request] // producer.block_size)
                count = len(values["blocks"]) - values["num_states"]
                if count != due:
                    actual = fact("blocks_handed_over", count=count)
                    yield broken(
                        PLANE, "sent", request, (seen.step, None), fact("blocks_handed_over", count=due), actual
                    )
            case "send", "ends":
                for _ in self._of[ENGINE].of(request, "load"):
                    actual = fact("given_back_in_load")
                    yield broken(PLANE, "ends", request, (seen.step, None), fact("held_until_end"), actual)
            case "load", "begins" if self._prompts:
                kept = {block for each in producer.of(request, "send") for block in each.blocks}
                for block in values["slots"]:
                    if block not in kept:
                        actual = fact("block_not_kept", block=block)
                        yield broken(PLANE, "read", request, (seen.step, None), fact("held_until_end"), actual)

    def at_end(self, end: End) -> Difference | None:
        for of, transfers in self._of.items():
            self._found += (told_of(found, of) for found in transfers.left(end.steps))
        own = self._of[ENGINE]
        if not own.num_lost:
            failed = sorted(name for name, output in end.outputs.items() if output.finish_reason == "error")
            self._found += (
                broken(PLANE, "failures", name, (end.steps, None), fact("no_failure"), fact("reason", reason="error"))
                for name in failed[: bool(own.ended)]
            )
        return next(iter(self._found), None)
