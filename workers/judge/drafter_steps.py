"""Values of a drafter's steps, as its judges keep them: entries of its cache, requests, rows and proposals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from workers.record.observation import Observation


class Written(NamedTuple):
    """An entry of the drafter's cache: who wrote it, for which position and token.

    It has no token where it was due in a step without a pass.
    """

    request: int
    position: int
    token: int | None


@dataclass(slots=True, eq=False)
class Known:
    """What is known of a request in its present stay: its tokens, how many of them it found, when it ran last.

    `is_followed` is false where a result of an earlier stay may come in, `is_whole` where entries of the drafter's
    cache may be other ones than the tokens say: found ones, those of a step without a pass, of a chunk's end.
    """

    tokens: list[int]
    hit: int
    is_followed: bool
    is_whole: bool
    last: int = -1
    # Of all its tokens this is the first that was another one in the stay before.
    changed: int | None = None


@dataclass(slots=True, eq=False)
class Step:
    """The observations of one step."""

    planned: Observation
    inputs: Observation | None = None
    context: Observation | None = None
    passes: list[Observation] = field(default_factory=list)
    margins: list[list[float]] = field(default_factory=list)
    proposed: Mapping[int, list[int]] = field(default_factory=dict)
    sampled: Mapping[int, list[int]] = field(default_factory=dict)


class Row(NamedTuple):
    """A request in a step: the first position computed, and how many tokens are computed true behind the step.

    `tokens` are those known behind it, and the drafts proposed; `goes_on` is false of a chunk of a prompt, whose drafts
    nobody verifies, and of a row whose result is dropped: one without drafts `is_chunk`. Of a row that is not `is_open`
    nothing can be said.
    """

    request: int
    first: int
    num_scheduled: int
    end: int
    tokens: list[int]
    blocks: list[int]
    goes_on: bool
    is_chunk: bool
    is_open: bool


class Proposal(NamedTuple):
    """The drafts of one step behind the tokens known then; of each how far it was likelier than any other.

    Those proposed `at_once`, in one pass, may depend on how many these are: each position attends to all others.
    """

    step: int
    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    margins: tuple[float, ...]
    at_once: bool


# Proposals of a run by request and number of tokens known.
Proposals: TypeAlias = Mapping[tuple[int, int], Proposal]
