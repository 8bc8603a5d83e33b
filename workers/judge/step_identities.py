"""Identities of a batched engine's steps: properties of every step, whatever the model and the engine.

Verifies: that the model is given tokens of the vocabulary, those of the request where they are no drafts, and none but
drafts behind what is known of it; at positions that go on from what was computed; lengths and slots that follow from
these and from the blocks planned; no block written that is another's but for a prefix that both have, and so no slot
twice in a step, and none by tokens that only fill a batch up; no more blocks of a request than the longest has; a state
in a block that is its request's alone, from which the request goes on unless it begins, behind what was kept of the
step before, as which it is copied, too; counts of the scheduler that are the true ones, or above them by drafts in
flight, and mirrors that are the true ones once corrected; no token of a chunk of what is known, and no drafts behind
one; that no more drafts are counted for operators than were verified; that every planned step is shown, and that
nothing is left at the end.
Does not verify: values that the model computes; which requests are planned; drafts that are tokens of the vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.spec import ENGINE, EngineName
from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge, told_of
from workers.judge.state_identities import beginning_of_state, blocks_of_states, holders_of
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("blocks", "books", "counts", "inputs")


@dataclass(slots=True, eq=False)
class Residency:
    """One stay of a request in the batch: from where it is scheduled first, or again after a preemption.

    `tokens` are all that are known of it, `computed` how many are; `last` is the last step that scheduled it, with how
    many tokens it had and how many of them were drafts, and whether it was a chunk, behind which more was known.
    `is_followed` is false where a result of an earlier stay may come in.
    """

    first: int
    computed: int
    hit: int
    tokens: list[int]
    last: int = -1
    num_scheduled: int = 0
    num_drafts: int = 0
    is_chunk: bool = False
    is_followed: bool = True
    # A block that a step was to load is lost: what is computed behind it does not count, and how much is not told.
    has_lost: bool = False
    # In which of the blocks for its states the last step left each of them, and behind how many of its drafts for good.
    columns: list[int] = field(default_factory=list)
    num_taken_in: int = 0
    # How many tokens it had beside its drafts and the first, where a state was left behind each of its tokens.
    num_given: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """The observations of one step; `num_processed` steps had been processed when it was planned."""

    planned: Observation
    num_processed: int
    inputs: Observation | None = None
    corrected: Observation | None = None
    sampled: Mapping[int, list[int]] = field(default_factory=dict)
    # For operators: rows with drafts, drafts, and accepted ones.
    counted: Sequence[int] = ()


class StepIdentities(Judge):
    """Judge of the observations of one run of one engine, in the order in which they were made.

    The first of them has the sizes of the vocabulary and of a block.
    """

    sees = ("log",)

    def __init__(self, of: EngineName = ENGINE) -> None:
        self.sees_of = (of,)
        self.observations: list[Observation] = []
        self._vocab_size, self._block_size = 0, 0
        # So many blocks hold a request of the longest length; none of a scheduler that tells no such.
        self._blocks_max: int | None = None
        # Tokens behind which each group of layers with states goes on in its next block.
        self._state_sizes: list[int] = []
        self._steps: dict[int, Step] = {}
        self._num_processed = 0
        self._loose: list[Difference] = []
        self._residencies: dict[int, Residency] = {}
        # Blocks that a step waited for in vain.
        self._lost: dict[int, set[int]] = {}

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            self.observations.append(seen)
            match seen.point:
                case "opened":
                    self._vocab_size, self._block_size = seen.values["vocab_size"], seen.values["block_size"]
                    self._state_sizes = seen.values["state_sizes"]
                    if "max_model_len" in seen.values:
                        self._blocks_max = -(-seen.values["max_model_len"] // self._block_size)
                case "scheduled":
                    assert seen.step not in self._steps, f"step {seen.step} is planned twice"
                    self._steps[seen.step] = Step(seen, self._num_processed)
                case "inputs":
                    self._steps[seen.step].inputs = seen
                case "corrected":
                    self._steps[seen.step].corrected = seen
                case "processed":
                    assert seen.step == self._num_processed, f"step {seen.step} comes back out of turn"
                    self._num_processed += 1
                    self._steps[seen.step].sampled = dict(zip(seen.requests, seen.values["sampled"], strict=True))
                case "counted":
                    self._steps[seen.step].counted = seen.values["counted"]
                case "transfer" if seen.values["is_synchronous"] and seen.values["of"] == "load":
                    lost = {seen.values["blocks"][index] for index in seen.values["lost"]}
                    self._lost.setdefault(seen.step, set()).update(lost)
                case "drained":
                    for what, count in seen.values["leaks"].items():
                        none = fact("none_held", what=what)
                        self._loose.append(broken("books", "leaks", None, (seen.step, None), none, count))

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._steps else ()

    def at_end(self, end: End) -> Difference | None:
        for number in sorted(self._steps):
            found = next(self._of_step(number, self._steps[number]), None)
            if found is not None:
                return told_of(found, self.sees_of[0])
        return next((told_of(found, self.sees_of[0]) for found in self._loose), None)

    def before_crash(self) -> Difference | None:
        """Return the first difference of a run that has broken off.

        All is known of a step once those before it have been processed; of later ones, that tokens are none at all.
        """
        for number in sorted(self._steps):
            step = self._steps[number]
            if step.inputs is None:
                continue
            judge = self._of_step if number <= self._num_processed else self._beyond_vocabulary
            found = next(judge(number, step), None)
            if found is not None:
                return told_of(found, self.sees_of[0])
        return None

    def _beyond_vocabulary(self, number: int, step: Step) -> Iterator[Difference]:
        """Yield tokens of a step that are none of the vocabulary."""
        assert step.inputs is not None, "its inputs are shown"
        values = step.inputs.values
        for request, start, stop in zip(step.inputs.requests, values["starts"], values["starts"][1:], strict=False):
            for token, position in zip(values["input_ids"][start:stop], values["positions"][start:stop], strict=True):
                if not 0 <= token < self._vocab_size:
                    yield self._no_token(number, request, position, token)

    def _no_token(self, number: int, request: int, position: int, token: int) -> Difference:
        due = fact("below_vocabulary", size=self._vocab_size)
        return broken("inputs", "input_ids", request, (number, position), due, token)

    def _of_step(self, number: int, step: Step) -> Iterator[Difference]:
        self._begin(number, step)
        yield from self._counts(number, step)
        yield from self._held(number, step)
        if step.inputs is None:
            yield broken("inputs", "inputs", None, (number, None), fact("inputs_of_every_step"), fact("none_shown"))
            return
        seen, planned = step.inputs.requests, step.planned.requests
        if sorted(seen) != sorted(planned):
            due = fact("requests", requests=sorted(planned))
            yield broken("inputs", "rows", None, (number, None), due, sorted(seen))
            return
        yield from self._inputs(number, step, step.inputs)
        if step.corrected is not None:
            yield from self._mirrors(number, step.corrected)
        yield from self._results(number, step)
        yield from operators_of(number, step)
        self._go_on(number, step)

    def _begin(self, number: int, step: Step) -> None:
        """Begin the residencies that a plan begins, and advance the computed counts of the others."""
        values = step.planned.values
        begun = dict(values["begun"])
        for request, computed in zip(step.planned.requests, values["scheduled_computed"], strict=True):
            if request in begun:
                before = self._residencies.get(request)
                is_followed = before is None or len(before.tokens) <= len(begun[request])
                stay = Residency(number, computed, computed, list(begun[request]), is_followed=is_followed)
                self._residencies[request] = stay
                continue
            stay = self._residencies[request]
            if stay.has_lost:
                continue
            stay.computed += _progress(stay, self._steps[stay.last].sampled.get(request, []))

        lost = self._lost.get(number, set())
        for request, blocks in values["blocks"] if lost else ():
            if request in self._residencies and not lost.isdisjoint(blocks):
                self._residencies[request].has_lost = True

    def _counts(self, number: int, step: Step) -> Iterator[Difference]:
        """Yield counts of a plan that are below the true ones, or beyond what is in flight."""
        plans = [self._steps[each].planned for each in range(step.num_processed, number)]
        flying = [(plan.step, dict(zip(plan.requests, plan.values["planned_drafts"], strict=True))) for plan in plans]
        for request, planned in zip(step.planned.requests, step.planned.values["scheduled_computed"], strict=True):
            stay = self._residencies[request]
            if stay.has_lost:
                continue
            most = stay.computed + sum(drafts.get(request, 0) for each, drafts in flying if each >= stay.first)
            if not stay.computed <= planned <= most:
                due = fact("between", least=stay.computed, most=most)
                yield broken("counts", "scheduled_computed", request, (number, None), due, planned)

    def _held(self, number: int, step: Step) -> Iterator[Difference]:
        """Yield requests that hold more blocks than the longest one has tokens for."""
        if self._blocks_max is None:
            return
        for request, held in step.planned.values["blocks"]:
            if len(held) > self._blocks_max:
                due = fact("at_most_blocks", most=self._blocks_max)
                yield broken("blocks", "held", request, (number, None), due, len(held))

    def _inputs(self, number: int, step: Step, inputs: Observation) -> Iterator[Difference]:
        values = inputs.values
        owners = owners_of(step.planned.values["blocks"])
        states = dict(step.planned.values["states"])
        holders = holders_of(step.planned.values["blocks"], states)
        rows = zip(inputs.requests, values["starts"], values["starts"][1:], strict=False)
        for row, (request, start, stop) in enumerate(rows):
            stay = self._residencies[request]
            stay.num_scheduled, stay.num_drafts = stop - start, values["drafts"][row]
            if stay.has_lost:
                continue
            seen = {name: values[name][start:stop] for name in ("input_ids", "positions", "slots")}
            if stay.is_chunk and stay.is_followed and stay.num_drafts:
                where = number, stay.computed + stay.num_scheduled - stay.num_drafts
                yield broken("inputs", "drafts", request, where, fact("no_drafts"), stay.num_drafts)
            yield from self._row(number, request, seen, values["seq_lens"][row])
            yield from self._bounds(number, request, values.get("bounds", ())[row : row + 1], values["seq_lens"][row])
            yield from self._slots(number, request, seen["slots"], values["tables"][row], owners)
            columns = [(values["seq_lens"][row] - 1) // size for size in self._state_sizes]
            for group, held in enumerate(states.get(request, ())):
                where = number, stay.computed
                slots, column = [values[f"states_{group}"][row]], columns[group]
                if f"left_{group}" in values:
                    slots = values[f"left_{group}"][row][: stop - start]
                yield from blocks_of_states(request, where, slots, held[column:], holders)
                yield from beginning_of_state(request, where, values[f"goes_on_{group}"][row])
                is_there = stay.columns[group : group + 1] == columns[group : group + 1]
                yield from self._kept(number, request, values[f"kept_{group}"][row], is_there)
            yield from self._copied(number, request, values.get("copied", ())[row : row + 1])
            stay.columns = columns
            is_whole = any(values[f"whole_{group}"][row] for group in range(len(states.get(request, ()))))
            stay.num_taken_in = stay.num_drafts if is_whole else 0
            stay.num_given = 0 if is_whole else stay.num_scheduled - stay.num_drafts - 1
        yield from self._padding(number, values["slots"][values["starts"][-1] :])

    def _padding(self, number: int, slots: list[int]) -> Iterator[Difference]:
        """Yield places where tokens are written that only fill a batch up."""
        for slot in slots:
            if slot >= 0:
                there = fact("block", block=slot // self._block_size)
                yield broken("inputs", "slots", None, (number, None), fact("padding_nowhere"), there)

    def _row(self, number: int, request: int, seen: Mapping[str, Any], length: int) -> Iterator[Difference]:
        """Yield wrong tokens, positions and length of a row."""
        stay = self._residencies[request]
        first, count = stay.computed, stay.num_scheduled
        for index, (token, position) in enumerate(zip(seen["input_ids"], seen["positions"], strict=True)):
            if position != first + index:
                yield broken("inputs", "positions", request, (number, first + index), first + index, position)
            if not 0 <= token < self._vocab_size:
                yield self._no_token(number, request, position, token)
            known = stay.tokens[first + index : first + index + 1]
            if stay.is_followed and index < count - stay.num_drafts and known != [token]:
                wanted = known[0] if known else fact("only_drafts")
                yield broken("inputs", "input_ids", request, (number, position), wanted, token)
        if length != first + count:
            yield broken("inputs", "seq_lens", request, (number, None), first + count, length)

    def _bounds(self, number: int, request: int, bounds: Sequence[int], length: int) -> Iterator[Difference]:
        """Yield the host's bound of a row's length, if it has one, that the length on the device is above."""
        for bound in bounds:
            if bound < length:
                yield broken("counts", "bounds", request, (number, None), fact("at_least", least=length), bound)

    def _slots(
        self, number: int, request: int, slots: list[int], table: list[int], owners: Mapping[int, Mapping[int, int]]
    ) -> Iterator[Difference]:
        """Yield slots that are not those of the blocks planned, and blocks of other requests."""
        size = self._block_size
        for position, slot in enumerate(slots, self._residencies[request].computed):
            block = table[position // size]
            if slot != block * size + position % size:
                yield broken("inputs", "slots", request, (number, position), block * size + position % size, slot)
            yield from self._owner(number, request, position, block, owners)

    def _owner(
        self, number: int, request: int, position: int, block: int | None, owners: Mapping[int, Mapping[int, int]]
    ) -> Iterator[Difference]:
        """Yield a block for a position, if any, that is not the one planned for it, or is another request's, too."""
        index, held = position // self._block_size, owners.get(block, {}) if block is not None else {}
        if held.get(request) != index:
            due, there = fact("own_block", index=index), fact("block", block=block)
            yield broken("blocks", "tables", request, (number, position), due, there)
        for other, number_of_block in held.items():
            shared = number_of_block == index and (index + 1) * self._block_size <= self._residencies[other].hit
            if other != request and not shared:
                due, there = fact("a_block_of_its_own"), fact("block_of_another", block=block, other=other)
                yield broken("blocks", "tables", request, (number, position), due, there)

    def _kept(self, number: int, request: int, kept: int, is_there: bool) -> Iterator[Difference]:
        """Yield a state that goes on behind other tokens of the step before than those kept of it.

        One that is not where that step left it is a copy, which goes on behind its first token. One that was computed
        as a prompt's is behind all tokens of that step, drafts that were rejected among them. One that was not, of a
        row of several tokens that were no drafts, goes on behind all of these, too.
        """
        stay = self._residencies[request]
        due = max(1, len(self._steps[stay.last].sampled.get(request, []))) + stay.num_given if is_there else 1
        if is_there and stay.num_taken_in:
            kept = 1 + stay.num_taken_in
        if kept != due:
            there = fact("behind_kept", kept=kept)
            yield broken("inputs", "kept", request, (number, stay.computed), fact("behind_kept", kept=due), there)

    def _copied(self, number: int, request: int, copied: Sequence[int]) -> Iterator[Difference]:
        """Yield a state that is copied to a new block as it was behind other tokens of the step before than those kept.

        One at the end of a block has been put behind its first token there; so has that of a request that begins, and a
        prompt's is behind all of its tokens.
        """
        stay = self._residencies[request]
        due = 1
        if stay.columns and all(stay.computed % size for size in self._state_sizes):
            due = max(1, len(self._steps[stay.last].sampled.get(request, []))) + stay.num_given
        for behind in copied:
            if behind and behind != due and not stay.num_taken_in:
                there = fact("behind_kept", kept=behind)
                yield broken("inputs", "copied", request, (number, stay.computed), fact("behind_kept", kept=due), there)

    def _mirrors(self, number: int, corrected: Observation) -> Iterator[Difference]:
        """Yield counts of the host that are not the true ones once they have been corrected."""
        for request, count in zip(corrected.requests, corrected.values["mirror_computed"], strict=True):
            true = self._residencies[request].computed
            if count != true and not self._residencies[request].has_lost:
                yield broken("counts", "mirror_computed", request, (number, None), true, count)

    def _results(self, number: int, step: Step) -> Iterator[Difference]:
        """Yield tokens that come of a chunk of what is known of a request."""
        for request, tokens in step.sampled.items():
            stay = self._residencies[request]
            if tokens and _is_chunk(stay) and stay.is_followed and not stay.has_lost:
                where = number, stay.computed + stay.num_scheduled
                yield broken("inputs", "sampled", request, where, fact("no_token"), tokens)

    def _go_on(self, number: int, step: Step) -> None:
        """Append a step's sampled tokens to the known ones of each request that it scheduled."""
        for request in step.planned.requests:
            stay = self._residencies[request]
            stay.last, stay.is_chunk = number, _is_chunk(stay)
            stay.tokens += step.sampled.get(request, [])


def _is_chunk(stay: Residency) -> bool:
    """Tell whether more is known of a request than the step that it is in computes."""
    return stay.computed + stay.num_scheduled < len(stay.tokens)


def _progress(stay: Residency, sampled: list[int]) -> int:
    """Return the number of tokens that a step computed of a request: all but the rejected drafts."""
    if stay.last < 0:
        return 0
    return stay.num_scheduled - (stay.num_drafts + 1 - len(sampled) if sampled else 0)


def owners_of(blocks: Iterable[tuple[int, list[int]]]) -> dict[int, dict[int, int]]:
    """Return by block its requests, each with the block's index in its table."""
    owners: dict[int, dict[int, int]] = {}
    for request, held in blocks:
        for index, block in enumerate(held):
            owners.setdefault(block, {})[request] = index
    return owners


def operators_of(number: int, step: Step) -> Iterator[Difference]:
    """Yield counts for operators that are more than a step's rows with drafts have; not all of these need be counted.

    Requests that have ended meanwhile are left out.
    """
    planned = dict(zip(step.planned.requests, step.planned.values["planned_drafts"], strict=True))
    rows = {request: tokens for request, tokens in step.sampled.items() if tokens and planned.get(request)}
    most = len(rows), sum(planned[request] for request in rows), sum(len(tokens) - 1 for tokens in rows.values())
    names = "counted_rows", "counted_drafts", "counted_accepted"
    for name, count, bound in zip(names, step.counted, most, strict=False):
        if not 0 <= count <= bound:
            yield broken("books", name, None, (number, None), fact("between", least=0, most=bound), count)
