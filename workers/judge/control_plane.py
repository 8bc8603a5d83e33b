"""Control plane of an engine: what is planned while it is paused, and what is attended to across a clearing.

Verifies: that a paused engine plans no step, but for requests that it lets come to their ends, and begins none of any
but those that were loading by then; that it executes none while a part of it sleeps;
that nothing is attended to that was computed before the engine was told to forget all, as it is when other weights are
loaded; that weights are those due once they are loaded or awake, and a drafter's own as they fell asleep; that a
neighbour has the same output each time.
Does not verify: outputs (they are compared with those of undisturbed runs), ends of requests (contracts do that), other
states than those of attention.
"""

from collections.abc import Iterator, Sequence

from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANE = "control"
_PAUSES = {"pause_abort": "abort", "pause_wait": "wait", "pause_keep": "keep"}


class ControlPlane(Judge):
    """Judge of the observations of one run, in the order in which they were made.

    An era begins when the engine is told to forget; `inputs` of a step may come after the eras that follow it.
    """

    sees = ("log",)

    def __init__(self) -> None:
        self._block_size = 0
        self._mode = ""
        self._era = 0
        self._eras: dict[int, int] = {}
        self._inputs: dict[int, Observation] = {}
        # Blocks loaded from beside the cache, by the step in which that begins: a clearing is none of what is there.
        self._loaded: dict[int, set[int]] = {}
        # Blocks that are copied from others of the cache, with these, by the step that they are copied ahead of.
        self._copied: dict[int, list[tuple[int, int]]] = {}
        # Requests whose load has begun while the engine was not paused: they hold blocks, and come to their ends.
        self._loading: set[int] = set()
        self._found: list[Difference] = []
        self._neighbour: list[int] | None = None
        self._is_used = False

    @property
    def planes(self) -> tuple[str, ...]:
        return (PLANE,) if self._is_used else ()

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            match seen.point:
                case "opened":
                    self._block_size = seen.values["block_size"]
                case "controlled":
                    self._is_used = True
                    self._control(seen)
                case "scheduled":
                    self._eras[seen.step] = self._era
                    self._found += self._planned(seen)
                case "inputs":
                    self._inputs[seen.step] = seen
                case "copied":
                    self._copied.setdefault(seen.step, []).extend(seen.values["blocks"])
                case "transfer" if (seen.values["of"], seen.values["phase"]) == ("load", "begins"):
                    self._loaded.setdefault(seen.step, set()).update(seen.values["blocks"])
                    self._loading.update(() if self._mode else seen.requests)

    def at_end(self, end: End) -> Difference | None:
        found = [*self._found, *(self._attended() if self._era else ())]
        return min(found, key=lambda difference: difference.step, default=None)

    def _control(self, seen: Observation) -> None:
        what, tokens = seen.values["what"], seen.values["tokens"]
        if what in _PAUSES:
            self._mode = _PAUSES[what]
        elif what == "resume":
            self._mode = ""
        elif what == "cleared":
            self._era += 1
        elif what in ("weights", "drafter_weights") and tokens != [0]:
            due = fact("weights", version=seen.values["version"]) if what == "weights" else fact("kept_asleep")
            self._found.append(broken(PLANE, what, None, (seen.step, None), due, fact("unlike", count=tokens[0])))
        elif what == "executed_asleep":
            self._found.append(broken(PLANE, "asleep", None, (seen.step, None), fact("awake"), fact("executed")))
        elif what == "neighbour":
            self._neighbour = tokens if self._neighbour is None else self._neighbour
            if tokens != self._neighbour:
                self._found.append(broken(PLANE, "neighbour", None, (seen.step, None), self._neighbour, tokens))

    def _planned(self, seen: Observation) -> Iterator[Difference]:
        """Yield the first request that a paused engine plans and may not."""
        begun = [request for request, _ in seen.values["begun"]]
        barred = {"": (), "wait": [each for each in begun if each not in self._loading]}.get(self._mode, seen.requests)
        self._loading.difference_update(begun)
        if barred:
            due = fact("paused", mode=self._mode)
            yield broken(PLANE, "paused", barred[0], (seen.step, None), due, fact("planned"))

    def _attended(self) -> Iterator[Difference]:
        """Yield the first position of each row that was computed in an era before that of its step.

        A copy of a block is of the eras of that block.
        """
        computed: dict[int, int] = {}
        for step in sorted(self._inputs):
            inputs, era = self._inputs[step], self._eras[step]
            values = inputs.values
            for ahead in sorted(number for number in self._copied if number <= step):
                self._copy(self._copied.pop(ahead), computed)
            computed |= dict.fromkeys((slot for slot in values["slots"][: values["starts"][-1]] if slot >= 0), era)
            for begun in sorted(number for number in self._loaded if number <= step):
                for block in self._loaded.pop(begun):
                    for slot in self._slots(block):
                        computed.pop(slot, None)
            for row, request in enumerate(inputs.requests):
                for position in range(values["seq_lens"][row]):
                    block, within = divmod(position, self._block_size)
                    slot = values["tables"][row][block] * self._block_size + within
                    if computed.get(slot, era) < era:
                        there = fact("of_an_era", era=computed[slot])
                        yield broken(PLANE, "era", request, (step, position), fact("of_an_era", era=era), there)
                        break

    def _copy(self, blocks: Sequence[tuple[int, int]], computed: dict[int, int]) -> None:
        """Copy blocks at once, each to another: of its entries the eras, by slot."""
        slots = [
            pair for source, target in blocks for pair in zip(self._slots(source), self._slots(target), strict=True)
        ]
        eras = {target: computed.get(source) for source, target in slots}
        for target, era in eras.items():
            computed.pop(target, None)
            if era is not None:
                computed[target] = era

    def _slots(self, block: int) -> range:
        return range(block * self._block_size, (block + 1) * self._block_size)
