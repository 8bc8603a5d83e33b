"""Identities of transfers between a cache and a store beside it: who may use a block while it is read or written.

Verifies: that a block of a load or a store in flight is given to no other request, written by no step, part of no
other load, not free, and not registered for others before it has arrived; that every transfer that begins ends, and
none twice; that a request fails only where blocks were lost.
Does not verify: what a block holds (`attended_tokens` does); orders of accesses within a step (`races` does).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.judge.judge import End, Judge
from workers.record.evidence import Difference, Fact, fact, shown
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("transfers",)


@dataclass(slots=True, eq=False)
class _Flight:
    """A transfer in flight: whose it is, and which blocks it uses."""

    request: int
    of: str
    blocks: frozenset[int]
    is_synchronous: bool


class TransferIdentities(Judge):
    """Judge of the observations of one run, in the order in which they were made."""

    sees = ("log",)

    def __init__(self) -> None:
        self._found: list[Difference] = []
        self._flights: dict[int, _Flight] = {}
        self._ended: set[int] = set()
        self._num_lost = 0
        # Blocks in flight, each with its request, by the step that was planned while they were.
        self._used: dict[int, dict[int, int]] = {}
        self._block_size = 0

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._flights or self._ended else ()

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            match seen.point:
                case "opened":
                    self._block_size = seen.values["block_size"]
                case "transfer" if seen.values["phase"] != "copies":
                    self._found += self._begin(seen) if seen.values["phase"] == "begins" else self._end(seen)
                case "scheduled":
                    self._found += self._planned(seen)
                case "inputs":
                    self._found += self._written(seen)
                case "in_flight":
                    for how in ("free", "registered"):
                        self._found += (self._misused(seen, how, *pair) for pair in seen.values[how])

    def at_end(self, end: End) -> Difference | None:
        for number, flight in self._flights.items():
            self._found.append(
                _difference("ends", flight.request, end.steps, fact("an_end"), fact("no_end", number=number))
            )
        if not self._num_lost:
            failed = sorted(name for name, output in end.outputs.items() if output.finish_reason == "error")
            self._found += (
                _difference("failures", name, end.steps, fact("no_failure"), fact("reason", reason="error"))
                for name in failed[: bool(self._ended)]
            )
        return next(iter(self._found), None)

    def _begin(self, seen: Observation) -> Iterator[Difference]:
        values, request = seen.values, seen.requests[0]
        blocks = frozenset(values["blocks"])
        if values["of"] == "load":
            for number, other in self._flights.items():
                for block in sorted(blocks & other.blocks):
                    actual = fact("block_of_transfer", block=block, number=number)
                    yield _difference("blocks", request, seen.step, fact("a_block_of_its_own"), actual)
        self._flights[values["number"]] = _Flight(request, values["of"], blocks, values["is_synchronous"])

    def _end(self, seen: Observation) -> Iterator[Difference]:
        number = seen.values["number"]
        self._num_lost += len(seen.values["lost"])
        if self._flights.pop(number, None) is None:
            yield _difference("ends", seen.requests[0], seen.step, fact("one_end"), fact("ended_again", number=number))
        self._ended.add(number)
        if seen.values["is_ahead"]:
            # Whoever got its blocks in this step may write them.
            for block in seen.values["blocks"]:
                self._used.get(seen.step, {}).pop(block, None)

    def _planned(self, seen: Observation) -> Iterator[Difference]:
        """Yield blocks of loads in flight that a running request holds; note all in flight for what will be written."""
        flights = [flight for flight in self._flights.values() if not flight.is_synchronous]
        self._used[seen.step] = {block: flight.request for flight in flights for block in flight.blocks}
        arriving = {block: each.request for each in flights if each.of == "load" for block in each.blocks}
        for request, blocks in seen.values["blocks"] if arriving else ():
            for block in blocks:
                if block in arriving:
                    actual = fact("block_arriving", block=block, other=arriving[block])
                    yield _difference("blocks", request, seen.step, fact("a_block_of_its_own"), actual)

    def _written(self, seen: Observation) -> Iterator[Difference]:
        """Yield blocks that a step writes which were in flight when it was planned."""
        used, values = self._used.pop(seen.step, {}), seen.values
        rows = zip(seen.requests, values["starts"], values["starts"][1:], strict=False)
        for request, start, stop in rows if used else ():
            for block in sorted({slot // self._block_size for slot in values["slots"][start:stop]} & used.keys()):
                actual = fact("block_in_flight", block=block, other=used[block])
                yield _difference("written", request, seen.step, fact("a_block_of_its_own"), actual)

    def _misused(self, seen: Observation, how: str, number: int, block: int) -> Difference:
        flight = self._flights.get(number)
        request = flight.request if flight is not None else None
        actual = fact("block_free" if how == "free" else "block_registered", block=block)
        return _difference(how, request, seen.step, fact("held_until_end"), actual)


def _difference(variable: str, request: int | str | None, step: int, expected: Fact, actual: Fact) -> Difference:
    """Make a difference of a broken identity, of a request or of all."""
    name = request if isinstance(request, str) else "" if request is None else f"submit {request}"
    return Difference(
        plane="transfers",
        variable=variable,
        request=name,
        step=step,
        position=None,
        expected=shown(expected),
        actual=shown(actual),
    )
