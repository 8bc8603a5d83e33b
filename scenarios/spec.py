"""Engine specification: sizes, async scheduling depth, layers, drafter and KV connector."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from scenarios.drafters import Drafter

INTEGER_MAX = 2**63 - 1
SamplingMethod = Literal["strict", "standard", "synthetic", "block"]
RATE_STEPS = 64
Rate = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Ticks = Annotated[int, Field(strict=True, ge=0, le=64)]
Turns = Annotated[int, Field(strict=True, ge=0, le=8)]
# The engine that runs a step: the engine of a trace, or the producer of its prompts (disaggregated prefill).
EngineName = Literal["engine", "producer", "data_rank_1", "data_rank_2", "data_rank_3"]
ENGINE: EngineName = "engine"
PRODUCER: EngineName = "producer"
# The engines of data-parallel ranks.
DATA_RANKS: tuple[EngineName, ...] = (ENGINE, "data_rank_1", "data_rank_2", "data_rank_3")
Index = Annotated[int, Field(strict=True, ge=0, le=INTEGER_MAX)]
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _some_turn(turns: tuple[int, ...]) -> tuple[int, ...]:
    if not any(turns):
        raise ValueError("with no step in any turn no prompt is ever computed")
    return turns


class Value(BaseModel):
    """Base of a trace's values: immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Transfer(Value):
    """A KV connector that copies full blocks between the KV cache and an external store.

    The store holds `store_blocks` blocks of all requests, and evicts the least recently used block. An admitted
    request loads its next blocks that the store holds, and stores the blocks that it fills.
    `loads` and `stores` complete in the step that starts them (synchronous), or run for `load_ticks` and `store_ticks`
    while other steps run (asynchronous). The result of a lookup is known `lookup_ticks` after the first lookup of a
    request. A lost load times out after `timeout_ticks`. A request with missing blocks recomputes them (recompute), or
    ends with reason `error` (fail).
    """

    store_blocks: Annotated[int, Field(strict=True, ge=1, le=1024)] = 16
    loads: Literal["asynchronous", "synchronous"] = "asynchronous"
    stores: Literal["asynchronous", "synchronous"] = "asynchronous"
    load_ticks: Ticks = 1
    store_ticks: Ticks = 1
    lookup_ticks: Ticks = 0
    timeout_ticks: Ticks = 8
    failures: Literal["recompute", "fail"] = "recompute"


class Offloading(Value):
    """Offloading of full blocks to host memory by the KV connector that the engine ships.

    The host holds `chunks` chunks, each of `blocks_per_chunk` blocks of one request; the policy `eviction` selects the
    chunk to evict. `stored` selects the full chunks to store: of prompts only, or of all computed tokens. A load takes
    at least `load_ticks`, a store at least `store_ticks`, unless the engine waits for it.
    With connector `simple` a chunk is one block of the prefix cache; it stores all of these, and evicts by the same
    policy as the prefix cache.
    """

    connector: Literal["chunked", "simple"] = "chunked"
    chunks: Annotated[int, Field(strict=True, ge=1, le=1024)] = 16
    blocks_per_chunk: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    eviction: Literal["lru", "arc"] = "lru"
    stored: Literal["all", "prompts"] = "all"
    load_ticks: Ticks = 1
    store_ticks: Ticks = 1


class Handoff(Value):
    """Disaggregated prefill: a producer engine computes the prompts for the consumer.

    The consumer is the engine of the trace; the producer has the same specification, with `producer_blocks` blocks. It
    computes every prompt and one output token, which is discarded. The consumer then loads its blocks, the last one
    perhaps partly filled, in `load_ticks`. The producer keeps the blocks until they have been read, or until
    `lease_ticks` have passed without the start of a load; the consumer then computes the prompt itself. Before step
    number i of the consumer the producer runs `turns[i % len(turns)]` steps.
    A lost load times out after `timeout_ticks`. A request with missing blocks recomputes them (recompute), or ends
    with reason `error` (fail).
    """

    producer_blocks: Count = 64
    turns: Annotated[tuple[Turns, ...], Field(min_length=1, max_length=16), AfterValidator(_some_turn)] = (1,)
    lease_ticks: Annotated[int, Field(strict=True, ge=1, le=64)] = 32
    load_ticks: Ticks = 1
    timeout_ticks: Ticks = 8
    failures: Literal["recompute", "fail"] = "recompute"


class EngineSpec(Value):
    """Sizes and switches of one engine; every field can change the engine's behaviour.

    - `sampling`: when a draft token of a request with a temperature is accepted: if it equals the sampled token
      (strict), with probability min(1, p / q) (standard), jointly with the draft tokens before it (block), or for
      every request with the probabilities `synthetic_rates`, one for each draft token, multiples of 1/64; the last
      one repeats (synthetic).
    - `draft_sampling`: a draft model proposes its likeliest token (greedy), or samples from its distribution at the
      request's temperature (probabilistic), except for requests with a grammar.
    - `drafter_quality`: how well the drafter's weights predict the target, in an engine with drafter weights.
    - `logprobs_mode`: deliver logprobs of the target's logits (raw) or of the logits after sampling parameters
      (processed), or these logits instead of logprobs (raw_logits, processed_logits).
    - `recurrent_layers`: the recurrent layers of a hybrid model: short convolutions, or gated delta nets that follow
      short convolutions.
    - `layers: windows`: sliding-window layers over the last `window` tokens, the newest included, together with one
      full-attention layer; `window_heads` is their number of KV heads for each KV head of full attention.
    - `layers: experts`: attention layers with a mixture of experts in place of the dense MLP.
    - `match_tokens`: prefix-cache hits of a hybrid model end at multiples of this number; 0: at block ends.
    - `decodes_first`: the engine moves decode rows before prefill rows in the batch, as some kernels require.
    - `reasoning_end`: a grammar applies only after the first such token in a request's prompt or output.
    - `logits_processor`: the engine has a user's logits processor; `no_repeats` of a request uses it.
    - `last_match`: whether a prefix-cache hit includes the last matching block. A drafter's KV cache entry of the last
      token in it may depend on the next token, which may differ between the requests.
    - `transfer`, `offloading`, `handoff`: the KV connector: to an external store, the engine's own to host memory, or
      from a producer of prompts.
    - `graphs`: what runs as captured CUDA graphs, in batches padded to captured sizes: nothing (none), the model
      between its attention layers (piecewise), the whole model (full), or the whole model in decode-only steps and
      pieces in other steps (full_and_piecewise).
    - `plan_stream`: with drafts, the engine prepares forward passes on a stream of their own. `relay_lengths`: the
      host waits for the sequence lengths after accepted draft tokens before it launches the next step.
    - `mixed_chunks`: in an engine with separate prefill and decode steps, prefill steps include decode rows of one
      token each.
    - `tensor_ranks`, `pipeline_ranks`: over how many ranks (workers, each with a device) each layer is split, and over
      how many the layers are distributed; their product is the number of ranks of the engine.
    - `data_ranks`: over how many engines, each with a scheduler and a KV cache, the requests are distributed; their
      ranks compute the experts of a layer together.
    - `tree_width`: number of tokens that the drafter proposes after each token; the likeliest K tokens of the
      resulting tree are verified.
    - `vocab_block`, `vocab_tile`: minimum size of a vocabulary block and of a tile in it, powers of two. Sampling
      selects the block, the tile, then the token; small sizes give a small vocabulary several blocks and tiles.
    """

    layers: Literal["hybrid", "attention", "windows", "experts"] = "hybrid"
    recurrent_layers: Literal["short_conv", "gated_delta"] = "short_conv"
    window: Count = 32
    window_heads: Literal[1, 4] = 1
    depth: Annotated[int, Field(strict=True, ge=1, le=8)] = 2
    accepted_counts: Literal["device", "host"] = "device"
    recurrent_cache: Literal["none", "align"] = "none"
    cascade: Annotated[bool, Field(strict=True)] = False
    policy: Literal["fcfs", "priority"] = "fcfs"
    prefix_cache: Annotated[bool, Field(strict=True)] = False
    match_tokens: Annotated[int, Field(strict=True, ge=0, le=1024)] = 0
    last_match: Literal["dropped", "taken"] = "dropped"
    logprobs_mode: Literal["raw", "processed", "raw_logits", "processed_logits"] = "raw"
    sampling: SamplingMethod = "strict"
    synthetic_rates: Annotated[tuple[Rate, ...], Field(max_length=16)] = ()
    pad: Annotated[bool, Field(strict=True)] = True
    vocab_size: Annotated[int, Field(strict=True, ge=2, le=65536)] = 32
    vocab_tile: Annotated[int, Field(strict=True, ge=4, le=128)] = 128
    vocab_block: Annotated[int, Field(strict=True, ge=4, le=4096)] = 4096
    num_speculative_tokens: Annotated[int, Field(strict=True, ge=0, le=16)] = 3
    max_num_seqs: Annotated[int, Field(strict=True, ge=1, le=256)] = 4
    max_num_batched_tokens: Annotated[int, Field(strict=True, ge=1, le=8192)] = 32
    long_prefill_token_threshold: Annotated[int, Field(strict=True, ge=0, le=8192)] = 0
    max_model_len: Annotated[int, Field(strict=True, ge=2, le=65536)] = 128
    block_size: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    num_blocks: Annotated[int, Field(strict=True, ge=1, le=65536)] = 128
    conv_width: Annotated[int, Field(strict=True, ge=2, le=8)] = 3
    token_multiple: Annotated[int, Field(strict=True, ge=1, le=256)] = 4
    drafter: Drafter = "eagle"
    drafter_max_len: Annotated[int, Field(strict=True, ge=0, le=65536)] = 0
    draft_sampling: Literal["greedy", "probabilistic"] = "greedy"
    drafter_quality: Literal["good", "mediocre", "bad"] = "good"
    decodes_first: Annotated[bool, Field(strict=True)] = False
    reasoning_end: Index | None = None
    logits_processor: Annotated[bool, Field(strict=True)] = False
    transfer: Transfer | None = None
    offloading: Offloading | None = None
    handoff: Handoff | None = None
    graphs: Literal["none", "piecewise", "full", "full_and_piecewise"] = "none"
    plan_stream: Annotated[bool, Field(strict=True)] = False
    relay_lengths: Annotated[bool, Field(strict=True)] = False
    mixed_chunks: Annotated[bool, Field(strict=True)] = False
    tensor_ranks: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    pipeline_ranks: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    data_ranks: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    tree_width: Annotated[int, Field(strict=True, ge=1, le=4)] = 1

    @property
    def has_connector(self) -> bool:
        """Return whether the engine has a KV connector of any kind."""
        return self.transfer is not None or self.offloading is not None or self.handoff is not None

    @property
    def num_ranks(self) -> int:
        """Number of ranks of all engines, each with a device."""
        return self.num_workers * self.data_ranks

    @property
    def num_workers(self) -> int:
        """Number of ranks that run the steps of one scheduler."""
        return self.tensor_ranks * self.pipeline_ranks

    @property
    def is_aligned(self) -> bool:
        """Return whether recurrent states are kept with each full block."""
        return self.layers == "hybrid" and self.recurrent_cache == "align"

    @property
    def max_blocks_per_request(self) -> int:
        """Number of block table entries of one request."""
        return -(-self.max_model_len // self.block_size)

    @property
    def rates(self) -> tuple[float, ...]:
        """Acceptance rates by draft token for synthetic verification; else empty."""
        given, k = self.synthetic_rates, self.num_speculative_tokens
        return (*given, *given[-1:] * k)[:k]

    def length_limit(self, prompt_length: int, max_tokens: int) -> int:
        """Return the number of tokens at which a request ends with reason `length`."""
        return min(prompt_length + max_tokens, self.max_model_len)

    def blocks_needed(self, prompt_length: int, max_tokens: int) -> int:
        """Return how many blocks a request needs at most, with draft tokens in flight.

        Two of the runs are in flight and the third is scheduled next; with a depth above 2 it is 1 + depth runs.
        """
        runs = max(3, 1 + self.depth)
        limit = self.length_limit(prompt_length, max_tokens) + runs * self.num_speculative_tokens
        return -(-min(limit, self.max_model_len) // self.block_size)
