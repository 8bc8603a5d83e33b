"""Answers of an engine's process as values: those of another shape or type are refused before they are read.

They are read strictly: nothing is converted.
"""

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import to_json

from scenarios.sampling import Output
from scenarios.spec import EngineName, Value
from workers.record.evidence import Access, Harm, MissingOrder, Site
from workers.targets.child.messages import MessageError, message_in

Integers: TypeAlias = list[int]
P = TypeVar("P", bound=str)
V = TypeVar("V")


class Answered(Value):
    """An answer that is yet to be read."""

    number: int
    answer: dict[str, Any]


class Greeting(Value):
    """An engine has started, of a version."""

    version: str


class Nothing(Value):
    """The question was carried out."""


class Kernels(Value):
    """Why kernels do not run as their definitions, by name."""

    interpreted: dict[str, str]


class Ran(Value):
    """Names of the engine's functions that have run since the last question (`workers.edits.functions`)."""

    functions: list[str]


class Delivery(Value):
    """What a step delivered to the client of one request.

    It `is_late` if the request was aborted before, as the engine was told: it delivers nothing after that.
    """

    request: str
    output: Output
    is_late: bool


class OpenedValues(Value):
    """Sizes of an engine; those of `state_sizes` are the tokens behind which a group of layers takes a new block.

    Of each group of layers with sliding windows `windows` has the size of a block, and how many tokens are seen.

    A drafter's model is given the token so far behind its position as `draft_shift` says; behind the end of a prompt's
    chunk that is the prompt's next one, or, unless `chunk_ends_known`, its last. One that proposes all drafts at once
    is given a `mask_token` for each. It is asked for `drafts_max` drafts at most, in any step of the engine. Drafts
    that are looked up may be filled up with other tokens (`lookups_filled_up`). The hash of a block covers as many
    tokens behind it as `hash_ahead` says.
    """

    vocab_size: int
    block_size: int
    state_sizes: Integers
    max_model_len: int
    draft_shift: int
    chunk_ends_known: bool
    mask_token: int | None
    drafts_max: int
    lookups_filled_up: bool
    windows: list[tuple[int, int]] = []
    hash_ahead: int = 0


class ScheduledValues(Value):
    """A plan, row by row, and blocks by the number of the request: of tokens, states, and groups with sliding windows.

    It `follows` if no step without a plan came before it. Of each request so many tokens are `shared`: others may have
    computed them, and it holds their blocks. Where an engine tells, blocks were `taken` from free ones since the plan
    before; of requests that begin and may read the cache `lookups` say how many of these when that was looked through.
    """

    scheduled_computed: Integers
    planned_drafts: Integers
    begun: list[tuple[int, Integers]]
    blocks: list[tuple[int, Integers]]
    states: list[tuple[int, list[Integers]]]
    follows: bool
    shared: list[tuple[int, int]]
    windows: list[tuple[int, list[Integers]]] = []
    taken: Integers = []
    lookups: list[tuple[int, int]] = []


class DraftingValues(Value):
    """What a drafter's model is given in one of its passes, which are counted from zero in each step.

    Of a pass that is made later than the step's others, `blocks` are those that requests hold by then, and it comes
    `behind` a step. The host's `bounds` of lengths are there where it has some.
    """

    index: int
    input_ids: Integers
    positions: Integers
    slots: Integers
    starts: Integers
    seq_lens: Integers
    tables: list[Integers]
    blocks: list[tuple[int, Integers]]
    bounds: Integers
    behind: int = -1


class ContextValues(Value):
    """Where a drafter keeps the target's hidden states, token by token of the target's inputs."""

    positions: Integers
    slots: Integers


class MarginsValues(Value):
    """How far the likeliest draft of each row is above the next, as they are proposed."""

    margins: list[float]


class ProposedValues(Value):
    """The drafts that a step proposed, row by row."""

    proposed: list[Integers]


class CorrectedValues(Value):
    """The host's counts, row by row, once they are corrected."""

    mirror_computed: Integers


class ProcessedValues(Value):
    """The tokens that a step sampled, row by row."""

    sampled: list[Integers]


class CountedValues(Value):
    """Counts for operators of the drafts of a step: rows with drafts, drafts, and those that were accepted."""

    counted: Annotated[Integers, Field(min_length=3, max_length=3)]


class ControlledValues(Value):
    """What was done to an engine besides requests: its name, the version of weights; of these the number of tensors
    that are others, of a neighbour its output.
    """

    what: str
    version: int
    tokens: Integers


class DrainedValues(Value):
    """How much is held of each kind that should be given back."""

    leaks: dict[str, int]


class TransferValues(Value):
    """A load, a store or a hand-off of a request that begins, copies its bytes, or ends.

    Blocks of the cache, each with the slot of the store that it is copied from or to, or the block of the producer that
    it is loaded from; indexes of those that were lost. Blocks that are sent are read by loads of the consumer.
    What ends may do so ahead of the kernels of its step.
    """

    number: int
    phase: Literal["begins", "copies", "ends"]
    of: Literal["load", "store", "send"]
    is_synchronous: bool
    blocks: Integers
    slots: Integers
    lost: Integers
    num_states: int
    is_ahead: bool


class InFlightValues(Value):
    """Pairs of a transfer in flight and a block of it that is free, or registered before it arrived."""

    free: list[tuple[int, int]]
    registered: list[tuple[int, int]]


class StoredValues(Value):
    """Blocks of a request whose bytes are stored, by their indexes in its table, and the tokens that it has then."""

    blocks: Integers
    indexes: Integers
    tokens: Integers


class OfferedValues(Value):
    """Of a request that ended by itself its prompt, all of its tokens, those found for it, and the chunks offered.

    Found are those that nobody computed for it when it was admitted; it was admitted once. Chunks are offered to a
    store by their places among its tokens, whether or not that keeps them.
    """

    prompt: int
    tokens: int
    found: int
    offered: Integers


class CopiedValues(Value):
    """Blocks of a cache that are copied to others before a step writes it, each with the one that it is copied to."""

    blocks: list[tuple[int, int]]


class ZeroedValues(Value):
    """Blocks that hold nothing from there on."""

    blocks: Integers


class PreemptedValues(Value):
    """Blocks that a request held alone when it was preempted for room, and that were not free then."""

    kept: Integers


class _SeenAt(Value, Generic[P, V]):
    """Values at a point of a step of an engine; `requests` are the numbers of the requests in its rows.

    `writers` are the last writes of what was read, newest first, by the names that judges have for it; there are none
    where they are not kept.
    """

    point: P
    step: int
    requests: tuple[int, ...]
    values: V
    of: EngineName
    writers: dict[str, tuple[Access, ...]] = {}


# The sizes of an engine, before its first step.
Opened: TypeAlias = _SeenAt[Literal["opened"], OpenedValues]
# The plan of a step.
Scheduled: TypeAlias = _SeenAt[Literal["scheduled"], ScheduledValues]
# The model's inputs in a step, by the names of its tensors; of a group of layers with a state by number.
Inputs: TypeAlias = _SeenAt[Literal["inputs"], dict[str, Integers | list[Integers] | list[bool]]]
Context: TypeAlias = _SeenAt[Literal["context"], ContextValues]
Drafting: TypeAlias = _SeenAt[Literal["drafting"], DraftingValues]
Margins: TypeAlias = _SeenAt[Literal["margins"], MarginsValues]
Proposed: TypeAlias = _SeenAt[Literal["proposed"], ProposedValues]
# Counts of the host that are corrected behind the launch of a step.
Corrected: TypeAlias = _SeenAt[Literal["corrected"], CorrectedValues]
# The results of a step, where they come back.
Processed: TypeAlias = _SeenAt[Literal["processed"], ProcessedValues]
# Counts for operators of a step with drafts, once it is processed.
Counted: TypeAlias = _SeenAt[Literal["counted"], CountedValues]
# The control plane, between two steps.
Controlled: TypeAlias = _SeenAt[Literal["controlled"], ControlledValues]
# The objects still held after draining.
Drained: TypeAlias = _SeenAt[Literal["drained"], DrainedValues]
# A transfer between the cache and a store beside it.
Transferred: TypeAlias = _SeenAt[Literal["transfer"], TransferValues]
# Blocks of transfers in flight, once a step has been planned.
InFlight: TypeAlias = _SeenAt[Literal["in_flight"], InFlightValues]
# What a store keeps of a request, by the time that it is copied.
Stored: TypeAlias = _SeenAt[Literal["stored"], StoredValues]
# What of a request was offered to a store by its end.
Offered: TypeAlias = _SeenAt[Literal["offered"], OfferedValues]
# Copies from block to block of a cache, ahead of a step.
Copied: TypeAlias = _SeenAt[Literal["copied"], CopiedValues]
# Blocks of a cache that are zeroed ahead of a step.
Zeroed: TypeAlias = _SeenAt[Literal["zeroed"], ZeroedValues]
# A request that gave its place up, while a step was planned.
Preempted: TypeAlias = _SeenAt[Literal["preempted"], PreemptedValues]
Seen: TypeAlias = Annotated[
    Opened
    | Scheduled
    | Inputs
    | Context
    | Drafting
    | Margins
    | Proposed
    | Corrected
    | Processed
    | Counted
    | Controlled
    | Drained
    | Transferred
    | InFlight
    | Stored
    | Offered
    | Copied
    | Zeroed
    | Preempted,
    Field(discriminator="point"),
]


class Failed(Value):
    """An exception of the engine: its message, and where it was raised; behind it the process may be of no use.

    `callers` are those of that place, the nearest first, `seen` is what was observed since the last answer.
    """

    number: int
    error: str
    where: Site
    callers: tuple[Site, ...] = ()
    seen: tuple[Seen, ...] = ()
    is_last: bool = False


class _Shown(Value):
    """Observations since the last answer, if they are wanted."""

    seen: tuple[Seen, ...]


class Stepped(_Shown):
    """Result of a step: its deliveries, whether the engine has drained, and the probes so far."""

    deliveries: tuple[Delivery, ...]
    drained: bool
    probes: dict[str, int]


class Race(Value):
    """Two accesses of the same memory that nothing orders, and how often."""

    order: MissingOrder
    count: int


class Reported(_Shown):
    """Everything has run: the races of the trace, and what the device counted."""

    races: tuple[Race, ...]
    counts: dict[str, int]


class Harmed(Value):
    """The harm of a race."""

    harm: Harm


A = TypeVar("A", bound=Value)


def answer_in(line: bytes, number: int, kind: type[A]) -> A | Failed:
    """Return the answer of a kind to the question of a number that is in a line, or what the engine failed with.

    Raises:
        MessageError: there is none, or it is of another shape.
    """
    is_failure = "error" in message_in(line)
    try:
        said: Failed | Answered = (Failed if is_failure else Answered).model_validate_json(line, strict=True)
        if said.number != number:
            raise MessageError(f"an answer to question {said.number}, not to {number}")
        return said if isinstance(said, Failed) else kind.model_validate_json(to_json(said.answer), strict=True)
    except ValidationError as error:
        raise MessageError(_misfit(error)) from error


def _misfit(error: ValidationError) -> str:
    """Describe the first error in an answer, and its place."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
