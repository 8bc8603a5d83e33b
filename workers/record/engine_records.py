"""Engine records: messages in which an engine in a child process reports its steps.

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
    """Sizes of an engine, sent before its first step.

    `state_sizes` has, for each KV-cache group with recurrent states, the number of tokens per block. `windows` has, for
    each group of sliding-window layers, the block size and the window size in tokens.

    A drafter's model is given the token `draft_shift` positions after its own. At the end of a prefill chunk that is
    the prompt's next token if `chunk_ends_known`, else the chunk's last token. A parallel drafter is given `mask_token`
    for each draft. No step asks the drafter for more than `drafts_max` drafts. Looked-up drafts may be padded with
    other tokens (`lookups_filled_up`). The hash of a block also covers the `hash_ahead` tokens after it. A sampler may
    store a greedy request as temperature 1 and top-k 1 (`greedy_is_top_1`). A drafter that receives hidden states
    (`receives_hidden_states`) shows their digests in every pass; a drafter that keeps the logits of sampled draft
    tokens for the rejection sampler (`keeps_draft_logits`) shows theirs.
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
    greedy_is_top_1: bool = False
    receives_hidden_states: bool = False
    keeps_draft_logits: bool = False


class ScheduledValues(Value):
    """Scheduler output of one step: the tokens that each request runs.

    By row: the computed tokens (`scheduled_computed`) and the number of drafts. By request number: `begun` has all
    tokens of each request that is scheduled for the first time or again after a preemption; `blocks` are the blocks of
    full attention, `states` and `windows` the blocks of each group with recurrent states or a sliding window; `shared`
    counts tokens whose blocks the request holds but others may have computed. `follows` is false if steps without a
    plan came before this one. Where the engine shows it: `taken` are the blocks taken from the free ones since the
    plan before, and `lookups` says for each request that may read the prefix cache how many of these were taken before
    its lookup.

    A scheduler that is tested without a runner also shows, by row, the number of tokens and the block table that
    the runner would receive.
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
    """Recurrent states of one KV-cache group, by batch row.

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
    """Slot mapping (by token) and block tables (by row) of one sliding-window KV-cache group."""

    slots: Integers
    tables: list[Integers]


class InputsValues(Value):
    """Model inputs of a step; tokens `starts[r]` to `starts[r + 1] - 1` are of batch row `r`.

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


class RankInputsValues(InputsValues):
    """Inputs of the model in a step of a further rank; those of rank 0 are the step's `InputsValues`."""

    rank: int


class DraftingValues(Value):
    """Inputs of one pass of the drafter's model; `index` counts passes of a step from 0.

    A pass that runs later than the step's others has the `blocks` that its requests hold by then, and runs after step
    `behind`. `bounds` are the host's upper bounds of `seq_lens`, if it has any. `hidden_states` has, by token, the
    digest of the hidden state that the drafter's model receives.
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
    hidden_states: Integers = []


class SamplerRow(Value):
    """Sampling state that the engine stores for a batch row; None where it stores no value.

    `tokens` are the request's tokens, of which the first `num_prompt_tokens` are its prompt. `output_counts` are pairs
    of an output token and how often it was sampled, `prompt_tokens` the distinct tokens of the prompt; both matter only
    with a penalty. `presence_tokens` and `repetition_tokens` are the distinct output tokens that this penalty counts.
    `min_tokens` is the minimum number of output tokens before a token of `stop`, `num_output_tokens` the number so far.
    `logit_bias` are pairs of a token and its bias, by token, without biases of 0.
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
    presence_tokens: Integers | None = None
    repetition_tokens: Integers | None = None
    num_output_tokens: int | None = None


class SamplerValues(Value):
    """Sampling state of all batch rows, before the step samples."""

    rows: list[SamplerRow]


class BranchesValues(Value):
    """Hidden states of a draft pass over trees, by request and branch; `index` counts passes of the step from 0.

    `parents` has for each branch its parent's branch in the pass before, nothing after the first pass, which has one
    row for each request. `hidden_states` has the digest of what the drafter's model receives.
    """

    index: int
    parents: list[Integers]
    hidden_states: list[Integers]


class ContextValues(Value):
    """Positions and KV slots where a parallel drafter stores hidden states of the target, and their digests."""

    positions: Integers
    slots: Integers
    hidden_states: Integers = []


class HiddenStatesValues(Value):
    """Digests of the hidden states that a model returned: the target's, or the drafter's in a pass of the step.

    They are by token of the model's inputs, or by batch row if the model returned only the state of its last token.
    """

    draft_pass: int | None = None
    hidden_states: Integers


class MarginsValues(Value):
    """Largest minus second largest logit of each row in one draft pass; digests of its draft logits if kept."""

    margins: list[float]
    draft_logits: Integers = []


class DraftLogitsValues(Value):
    """Digests of the draft logits that the rejection sampler reads, by batch row and draft token.

    It reads them twice: for the normalizers of the draft probabilities, and for each draft token's acceptance.
    """

    normalizers: list[Integers]
    acceptance: list[Integers]


class ProposedValues(Value):
    """Draft tokens that a step proposed, by batch row."""

    proposed: list[Integers]


class CorrectedValues(Value):
    """The host's computed-token counts by row, after the previous step's results corrected them."""

    mirror_computed: Integers


class ProcessedValues(Value):
    """Tokens that a step sampled, by batch row."""

    sampled: list[Integers]


class RankProcessedValues(ProcessedValues):
    """Tokens that a further rank sampled in a step; those of rank 0 are the step's `ProcessedValues`."""

    rank: int


class CountedValues(Value):
    """Metrics of a step: rows with draft tokens, draft tokens, and accepted draft tokens."""

    counted: Annotated[Integers, Field(min_length=3, max_length=3)]


class ControlledValues(Value):
    """A control call between two steps, e.g. a pause: its name and the weight version.

    `tokens` holds the number of weight tensors that are wrong, or the output of a neighbour's request.
    """

    what: str
    version: int
    tokens: Integers


class DrainedValues(Value):
    """How many objects of each kind the engine still holds after its last request."""

    leaks: dict[str, int]


class TransferValues(Value):
    """One phase (start, copy or end) of a request's KV transfer (load, store or hand-off).

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
    """Blocks in a KV transfer that are wrong: already freed, or registered too early."""

    free: list[tuple[int, int]]
    registered: list[tuple[int, int]]


class StoredValues(Value):
    """Blocks of a request that a connector stores: ids, block-table indexes, tokens."""

    blocks: Integers
    indexes: Integers
    tokens: Integers


class OfferedValues(Value):
    """Token chunks that a finished request offered to a KV store.

    `prompt` and `tokens` count its tokens, `found` those that were in the cache or the store when it was admitted.
    """

    prompt: int
    tokens: int
    found: int
    offered: Integers


class CopiedValues(Value):
    """Block copies that precede a step's writes: pairs of (source block, target block)."""

    blocks: list[tuple[int, int]]


class ZeroedValues(Value):
    """Ids of KV-cache blocks that are zeroed before a step."""

    blocks: Integers


class WaitingValues(Value):
    """Free capacity after a scheduler output, and the ready requests that it leaves waiting.

    `admitted` are the requests that the plan starts or resumes, `running` are pairs of a running request and the number
    of blocks that it holds. `blocks_left` includes cached blocks that nothing refers to. The scheduler keeps
    `blocks_reserved` blocks for each request beyond the blocks of its tokens.
    """

    admitted: Integers
    running: list[tuple[int, int]]
    rows_left: int
    tokens_left: int
    blocks_left: int
    blocks_reserved: int


class PreemptedValues(Value):
    """Blocks that a preemption failed to free although no other request uses them."""

    kept: Integers


class _EngineRecord(Value, Generic[V]):
    """Base of records: one point of one step; `requests` has the request number of each row.

    `writers` has the last writes of what was read, newest first, by the variable names that judges use. It is empty
    where they are not recorded.
    """

    step: int
    requests: tuple[int, ...]
    values: V
    of: EngineName = ENGINE
    writers: dict[str, tuple[Access, ...]] = {}


class Opened(_EngineRecord[OpenedValues]):
    """Record before the first step: sizes of the engine."""

    point: Literal["opened"] = "opened"


class Scheduled(_EngineRecord[ScheduledValues]):
    """Record of a step's scheduler output."""

    point: Literal["scheduled"] = "scheduled"


class Inputs(_EngineRecord[InputsValues]):
    """Record of a step's model inputs."""

    point: Literal["inputs"] = "inputs"


class RankInputs(_EngineRecord[RankInputsValues]):
    """Record of a step's model inputs on a rank other than rank 0."""

    point: Literal["rank_inputs"] = "rank_inputs"


class Sampler(_EngineRecord[SamplerValues]):
    """Record of the sampler's state in a step."""

    point: Literal["sampler"] = "sampler"


class Context(_EngineRecord[ContextValues]):
    """Record of where a parallel drafter stores hidden states of the target."""

    point: Literal["context"] = "context"


class Drafting(_EngineRecord[DraftingValues]):
    """Record of the model inputs of one draft pass."""

    point: Literal["drafting"] = "drafting"


class Branches(_EngineRecord[BranchesValues]):
    """Engine record of the hidden states that a later draft pass over trees receives."""

    point: Literal["branches"] = "branches"


class HiddenStates(_EngineRecord[HiddenStatesValues]):
    """Engine record of the hidden states that the target's or the drafter's model returned."""

    point: Literal["hidden_states"] = "hidden_states"


class DraftLogits(_EngineRecord[DraftLogitsValues]):
    """Engine record of the draft logits with which the rejection sampler verifies draft tokens."""

    point: Literal["draft_logits"] = "draft_logits"


class Margins(_EngineRecord[MarginsValues]):
    """Record of the logit margins (largest minus second largest logit) of a draft pass."""

    point: Literal["margins"] = "margins"


class Proposed(_EngineRecord[ProposedValues]):
    """Record of the draft tokens proposed in a step."""

    point: Literal["proposed"] = "proposed"


class Corrected(_EngineRecord[CorrectedValues]):
    """Record of the host's computed-token counts, after sampling results have corrected them."""

    point: Literal["corrected"] = "corrected"


class Processed(_EngineRecord[ProcessedValues]):
    """Record of a step's sampled tokens, made when the scheduler processes them."""

    point: Literal["processed"] = "processed"


class RankProcessed(_EngineRecord[RankProcessedValues]):
    """Engine record of the tokens that a further rank sampled in a step, when that rank processes them."""

    point: Literal["rank_processed"] = "rank_processed"


class Counted(_EngineRecord[CountedValues]):
    """Record of a step's speculation metrics, made when its results are processed."""

    point: Literal["counted"] = "counted"


class Controlled(_EngineRecord[ControlledValues]):
    """Record of a control call between two steps, e.g. a pause."""

    point: Literal["controlled"] = "controlled"


class Drained(_EngineRecord[DrainedValues]):
    """Record of blocks, rows and requests that the engine still holds after the last request."""

    point: Literal["drained"] = "drained"


class Transfer(_EngineRecord[TransferValues]):
    """Record of the start, copy or end of a KV connector's transfer."""

    point: Literal["transfer"] = "transfer"


class InFlight(_EngineRecord[InFlightValues]):
    """Record of blocks that are free or registered during their KV transfer, which is a bug."""

    point: Literal["in_flight"] = "in_flight"


class Stored(_EngineRecord[StoredValues]):
    """Record of the blocks that a KV connector copies to a store."""

    point: Literal["stored"] = "stored"


class Offered(_EngineRecord[OfferedValues]):
    """Record of the token chunks that a finished request offered to a KV store."""

    point: Literal["offered"] = "offered"


class Copied(_EngineRecord[CopiedValues]):
    """Record of block copies within the KV cache before a step."""

    point: Literal["copied"] = "copied"


class Zeroed(_EngineRecord[ZeroedValues]):
    """Record of KV-cache blocks that are zeroed before a step."""

    point: Literal["zeroed"] = "zeroed"


class Waiting(_EngineRecord[WaitingValues]):
    """Record of ready requests that wait after a scheduler output, with the free capacity."""

    point: Literal["waiting"] = "waiting"


class Preempted(_EngineRecord[PreemptedValues]):
    """Record of a request that the scheduler preempted while it scheduled a step."""

    point: Literal["preempted"] = "preempted"


EngineRecord: TypeAlias = Annotated[
    Opened
    | Scheduled
    | Inputs
    | RankInputs
    | Sampler
    | Context
    | Drafting
    | Branches
    | HiddenStates
    | DraftLogits
    | Margins
    | Proposed
    | Corrected
    | Processed
    | RankProcessed
    | Counted
    | Controlled
    | Drained
    | Transfer
    | InFlight
    | Stored
    | Offered
    | Copied
    | Zeroed
    | Waiting
    | Preempted,
    Field(discriminator="point"),
]
