"""What an engine in a process of its own shows of its steps: typed values, validated strictly where they arrive.

An engine whose scheduler decides for itself shows no log of decisions. It shows each plan, each set of model inputs,
each result and each transfer instead, and the judges build one history of the run from them (`workers.judge.history`).
Requests are numbered in the order of their submits. Nothing is converted: a value of another type is refused.
"""

from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field

from scenarios.spec import ENGINE, EngineName, Value
from workers.record.evidence import Access

Integers: TypeAlias = list[int]
V = TypeVar("V", bound=Value)


class OpenedValues(Value):
    """Sizes of an engine, before its first step.

    `state_sizes` has, for each KV-cache group with recurrent states, the number of tokens per block. `windows` has, for
    each group of sliding-window layers, the block size and the window size in tokens.

    A drafter's model is given the token `draft_shift` positions after its own. At the end of a prefill chunk that is
    the prompt's next token if `chunk_ends_known`, else the chunk's last token. A parallel drafter is given `mask_token`
    for each draft. No step asks the drafter for more than `drafts_max` drafts. Looked-up drafts may be padded with
    other tokens (`lookups_filled_up`). The hash of a block also covers the `hash_ahead` tokens after it.
    """

    vocab_size: int
    block_size: int
    state_sizes: Integers
    # None where only a scheduler is tested.
    max_model_len: int | None = None
    draft_shift: int = 0
    chunk_ends_known: bool = True
    mask_token: int | None = None
    drafts_max: int = 0
    lookups_filled_up: bool = False
    windows: list[tuple[int, int]] = []
    hash_ahead: int = 0


class ScheduledValues(Value):
    """A scheduler's plan of one step.

    By row: the computed tokens (`scheduled_computed`) and the number of drafts. By request number: `begun` has all
    tokens of each request that is scheduled for the first time or again after a preemption; `blocks` are those of full
    attention, `states` and `windows` those of each group with recurrent states or a sliding window; `shared` counts
    tokens whose blocks the request holds but others may have computed. `follows` is false if steps without a plan came
    before this one. Where the engine shows it: `taken` are the blocks taken from the free ones since the plan before,
    and `lookups` says for each request that may read the prefix cache how many of these were taken before its lookup.

    A scheduler that is tested without a runner also shows, by row, the number of tokens and the block table that a
    runner would be told.
    """

    scheduled_computed: Integers
    planned_drafts: Integers
    begun: list[tuple[int, Integers]]
    blocks: list[tuple[int, Integers]]
    states: list[tuple[int, list[Integers]]]
    follows: bool = True
    shared: list[tuple[int, int]] = []
    windows: list[tuple[int, list[Integers]]] = []
    taken: Integers = []
    lookups: list[tuple[int, int]] = []
    num_tokens: Integers = []
    told: list[Integers] = []


class StateColumns(Value):
    """Recurrent states of one KV-cache group, by row of a step.

    `states` is the block that the row's state is written to. `left` has one block for each token, where a state is left
    after every token. `goes_on` is true if the row starts from an earlier state, `kept` is the number of tokens of the
    step before that this state includes, `whole` is true if a row with drafts was computed as a prefill.
    """

    states: Integers
    goes_on: list[bool]
    kept: Integers
    whole: list[bool]
    left: list[Integers] | None = None


class WindowColumns(Value):
    """Slot mapping (by token, padding included) and block tables (by row) of one group of sliding-window layers."""

    slots: Integers
    tables: list[Integers]


class InputsValues(Value):
    """The model's inputs in a step. Row `r` has the tokens `starts[r]` to `starts[r + 1]`; later tokens are padding.

    `slots` is the slot mapping of full attention, `tables` its block tables, `bounds` the host's upper bounds of
    `seq_lens` if it has any. `copied` says by row how many tokens a state includes that is copied to a new block, 0 if
    none is copied.
    """

    input_ids: Integers
    positions: Integers
    slots: Integers
    starts: Integers
    seq_lens: Integers
    tables: list[Integers]
    drafts: Integers
    bounds: Integers = []
    copied: Integers = []
    states: list[StateColumns] = []
    windows: list[WindowColumns] = []


class DraftingValues(Value):
    """The inputs of one pass of a drafter's model; `index` counts the passes of a step from zero.

    A pass that runs later than the step's others has the `blocks` that its requests hold by then, and runs after step
    `behind`. `bounds` are the host's upper bounds of `seq_lens`, if it has any.
    """

    index: int
    input_ids: Integers
    positions: Integers
    slots: Integers
    starts: Integers
    seq_lens: Integers
    tables: list[Integers]
    blocks: list[tuple[int, Integers]] = []
    bounds: Integers = []
    behind: int = -1


class SamplerRow(Value):
    """What a sampler has stored for the request of a batch row, None where an engine stores nothing of the kind.

    `tokens` are the request's tokens, of which the first `num_prompt_tokens` are its prompt. `output_counts` are pairs
    of an output token and how often it was sampled, `prompt_tokens` the distinct tokens of the prompt; both matter only
    with a penalty. `min_tokens` is the minimum number of output tokens before a token of `stop`.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    num_logprobs: int | None = None
    logprob_tokens: Integers | None = None
    allowed_tokens: Integers | None = None
    logit_bias: list[tuple[int, float]] | None = None
    min_tokens: int | None = None
    stop: Integers | None = None
    bad_words: list[Integers] | None = None
    num_prompt_tokens: int | None = None
    tokens: Integers | None = None
    output_counts: list[tuple[int, int]] | None = None
    prompt_tokens: Integers | None = None


class SamplerValues(Value):
    """What a sampler has stored for the requests of a step, by row, before it samples."""

    rows: list[SamplerRow]


class ContextValues(Value):
    """Positions and slots where a drafter stores the target's hidden states, by token of the target's inputs."""

    positions: Integers
    slots: Integers


class MarginsValues(Value):
    """By row, the difference of the logits of the likeliest draft token and the second."""

    margins: list[float]


class ProposedValues(Value):
    """The draft tokens that a step proposed, by row."""

    proposed: list[Integers]


class CorrectedValues(Value):
    """The host's counts of computed tokens after their correction, by row."""

    mirror_computed: Integers


class ProcessedValues(Value):
    """The tokens that a step sampled, by row."""

    sampled: list[Integers]


class CountedValues(Value):
    """Metrics of a step with drafts: rows with drafts, draft tokens, and accepted draft tokens."""

    counted: Annotated[Integers, Field(min_length=3, max_length=3)]


class ControlledValues(Value):
    """A call of the control plane between two steps: its name and the version of the weights.

    `tokens` holds the number of weight tensors that are wrong, or the output of a neighbour's request.
    """

    what: str
    version: int
    tokens: Integers


class DrainedValues(Value):
    """Number of objects of each kind that an engine still holds after its last request."""

    leaks: dict[str, int]


class TransferValues(Value):
    """A load, a store or a hand-off of a request that begins, copies its bytes, or ends.

    `blocks` are blocks of the cache; `slots` has for each the slot of the store that it is copied from or to, or the
    producer's block that it is loaded from. `lost` holds indexes of blocks that were lost. The last `num_states` blocks
    hold recurrent states. `is_synchronous`: a step waits for it. `is_ahead`: it ended before the kernels of its step.
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
    """Pairs of a transfer in flight and one of its blocks that is free, or was registered before it arrived."""

    free: list[tuple[int, int]]
    registered: list[tuple[int, int]]


class StoredValues(Value):
    """Blocks of a request that are stored, their indexes in its block table, and the request's tokens at that time."""

    blocks: Integers
    indexes: Integers
    tokens: Integers


class OfferedValues(Value):
    """Chunk numbers that were offered to a store for a request that ended by itself.

    `prompt` and `tokens` count its tokens, `found` those that were in the cache or the store when it was admitted.
    """

    prompt: int
    tokens: int
    found: int
    offered: Integers


class CopiedValues(Value):
    """Pairs of a block of the cache and the block that it is copied to before a step writes there."""

    blocks: list[tuple[int, int]]


class ZeroedValues(Value):
    """Blocks that are zeroed before a step."""

    blocks: Integers


class PreemptedValues(Value):
    """Blocks that only a preempted request held and that were not free after its preemption."""

    kept: Integers


class _Shown(Value, Generic[V]):
    """Values at one point of a step of an engine; `requests` are the numbers of the requests in its rows.

    `writers` has the last writes of what was read, newest first, by the variable names that judges use. It is empty
    where they are not recorded.
    """

    step: int
    requests: tuple[int, ...]
    values: V
    of: EngineName = ENGINE
    writers: dict[str, tuple[Access, ...]] = {}


class Opened(_Shown[OpenedValues]):
    """The sizes of an engine, before its first step."""

    point: Literal["opened"] = "opened"


class Scheduled(_Shown[ScheduledValues]):
    """A scheduler's plan of a step."""

    point: Literal["scheduled"] = "scheduled"


class Inputs(_Shown[InputsValues]):
    """The model's inputs in a step."""

    point: Literal["inputs"] = "inputs"


class Sampler(_Shown[SamplerValues]):
    """The state of the sampler in a step."""

    point: Literal["sampler"] = "sampler"


class Context(_Shown[ContextValues]):
    """Positions and slots where a parallel drafter stores the target's hidden states."""

    point: Literal["context"] = "context"


class Drafting(_Shown[DraftingValues]):
    """The inputs of one pass of a drafter's model."""

    point: Literal["drafting"] = "drafting"


class Margins(_Shown[MarginsValues]):
    """The logit margins of the draft tokens of a pass."""

    point: Literal["margins"] = "margins"


class Proposed(_Shown[ProposedValues]):
    """The drafts that a step proposed."""

    point: Literal["proposed"] = "proposed"


class Corrected(_Shown[CorrectedValues]):
    """The host's counts after a step was launched and they were corrected."""

    point: Literal["corrected"] = "corrected"


class Processed(_Shown[ProcessedValues]):
    """The sampled tokens of a step, when its result is processed."""

    point: Literal["processed"] = "processed"


class Counted(_Shown[CountedValues]):
    """The metrics of a step with drafts, when it is processed."""

    point: Literal["counted"] = "counted"


class Controlled(_Shown[ControlledValues]):
    """A call of the control plane between two steps."""

    point: Literal["controlled"] = "controlled"


class Drained(_Shown[DrainedValues]):
    """Objects that an engine still holds after its last request."""

    point: Literal["drained"] = "drained"


class Transfer(_Shown[TransferValues]):
    """A transfer of a KV connector begins, copies, or ends."""

    point: Literal["transfer"] = "transfer"


class InFlight(_Shown[InFlightValues]):
    """Blocks of transfers in flight that may not be free or registered, after a plan."""

    point: Literal["in_flight"] = "in_flight"


class Stored(_Shown[StoredValues]):
    """Blocks of a request that a KV connector copies to a store."""

    point: Literal["stored"] = "stored"


class Offered(_Shown[OfferedValues]):
    """Chunks of a request that were offered to a store before its end."""

    point: Literal["offered"] = "offered"


class Copied(_Shown[CopiedValues]):
    """Block copies within a cache before a step."""

    point: Literal["copied"] = "copied"


class Zeroed(_Shown[ZeroedValues]):
    """Blocks of a cache that are zeroed before a step."""

    point: Literal["zeroed"] = "zeroed"


class Preempted(_Shown[PreemptedValues]):
    """A request that a scheduler preempted while it planned."""

    point: Literal["preempted"] = "preempted"


Shown: TypeAlias = Annotated[
    Opened
    | Scheduled
    | Inputs
    | Sampler
    | Context
    | Drafting
    | Margins
    | Proposed
    | Corrected
    | Processed
    | Counted
    | Controlled
    | Drained
    | Transfer
    | InFlight
    | Stored
    | Offered
    | Copied
    | Zeroed
    | Preempted,
    Field(discriminator="point"),
]
