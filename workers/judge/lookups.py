"""Drafts that are looked up in a request's own tokens: what the target verifies goes on from an earlier place of them.

Verifies: that drafts proposed behind the tokens known of a request are those that stand behind an earlier token equal
to the last of these, in the same request.
Does not verify: which of several such places is taken, or how many drafts; drafts behind a step that did not have the
request, or planned nothing, or came so near to the longest length that nothing was looked up; an engine's that fills
them up; tokens of a request of whose earlier stay a result may come.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANE = "drafts"
PLANES = (PLANE,)


@dataclass(slots=True, eq=False)
class _Known:
    """Tokens of a request in its present stay, and the last step that had it; see `Residency.is_followed`."""

    tokens: list[int]
    is_followed: bool
    last: int = -1


@dataclass(slots=True, eq=False)
class _Step:
    planned: Observation
    inputs: Observation | None = None
    sampled: Mapping[int, list[int]] = field(default_factory=dict)


class Lookups(Judge):
    """Judge of the drafts of one run, in the order of its steps: of `drafts_max` in a row at most."""

    sees = ("log",)

    def __init__(self, drafts_max: int) -> None:
        self._drafts_max, self._length_max, self._are_filled_up = drafts_max, 0, False
        self._steps: dict[int, _Step] = {}
        self._known: dict[int, _Known] = {}
        self._has_judged = False

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            match seen.point:
                case "opened":
                    self._length_max = seen.values["max_model_len"]
                    self._are_filled_up = seen.values["lookups_filled_up"]
                case "scheduled":
                    self._steps[seen.step] = _Step(seen)
                case "inputs":
                    self._steps[seen.step].inputs = seen
                case "processed":
                    self._steps[seen.step].sampled = dict(zip(seen.requests, seen.values["sampled"], strict=True))

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._has_judged else ()

    def at_end(self, end: End) -> Difference | None:
        every = (found for number in sorted(self._steps) for found in self._of_step(number, self._steps[number]))
        return next(every, None)

    def _of_step(self, number: int, step: _Step) -> Iterator[Difference]:
        for request, tokens in step.planned.values["begun"]:
            before = self._known.get(request)
            self._known[request] = _Known(list(tokens), before is None or len(before.tokens) <= len(tokens))
        is_told = not self._are_filled_up and step.planned.values["follows"]
        if step.inputs is not None and is_told and not self._is_near_end(number - 1):
            yield from self._drafts(number, step.inputs)
        for request in step.planned.requests:
            self._known[request].tokens += step.sampled.get(request, [])
            self._known[request].last = number

    def _is_near_end(self, number: int) -> bool:
        """Tell whether behind a step some request has no room for drafts, or there is no such step."""
        before = self._steps.get(number)
        if before is None or before.inputs is None:
            return True
        starts = before.inputs.values["starts"]
        counts = dict(zip(before.inputs.requests, (stop - start for start, stop in pairwise(starts)), strict=True))
        planned = zip(before.planned.requests, before.planned.values["scheduled_computed"], strict=True)
        longest: int = max(computed + counts.get(request, 0) for request, computed in planned)
        return longest + self._drafts_max > self._length_max

    def _drafts(self, number: int, inputs: Observation) -> Iterator[Difference]:
        values = inputs.values
        for row, request in enumerate(inputs.requests):
            known, stop, count = self._known[request], values["starts"][row + 1], values["drafts"][row]
            position = len(known.tokens)
            is_behind = known.last == number - 1 >= 0 and bool(self._steps[number - 1].sampled.get(request))
            # Where else a row would be its positions tell.
            if not (count and is_behind and known.is_followed) or values["positions"][stop - count] != position:
                continue
            self._has_judged = True
            drafts = values["input_ids"][stop - count : stop]
            if not follows(known.tokens, drafts):
                where = number, position
                yield broken(PLANE, "looked_up", request, where, fact("found_earlier"), drafts)


def follows(tokens: Sequence[int], drafts: Sequence[int]) -> bool:
    """Tell whether drafts stand behind an earlier token equal to the last one."""
    count = len(drafts)
    places = range(1, len(tokens) - count + 1)
    return any(tokens[at - 1] == tokens[-1] and list(tokens[at : at + count]) == list(drafts) for at in places)
