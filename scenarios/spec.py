"""Engine specification: its sizes, its depth of asynchrony, its layers."""

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
# Whose steps are told of: the engine of a trace, or the producer that hands requests to it.
EngineName = Literal["engine", "producer"]
ENGINE: EngineName = "engine"
PRODUCER: EngineName = "producer"
Index = Annotated[int, Field(strict=True, ge=0, le=INTEGER_MAX)]
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _some_turn(turns: tuple[int, ...]) -> tuple[int, ...]:
    if not any(turns):
        raise ValueError("with no step in any turn no prompt is ever computed")
    return turns


class Value(BaseModel):
    """An immutable value of a trace; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Transfer(Value):
    """Transfer of full blocks between an engine's cache and a store beside it, as of a KV connector.

    The store has room for `store_blocks` blocks, from all requests; the one used least recently makes room. A request
    that is admitted loads what the store holds of its next blocks, and stores those that it fills.
    `loads` and `stores` are part of the step that asks for them (synchronous), or go on beside others for `load_ticks`
    and `store_ticks` (asynchronous). What the store holds is known `lookup_ticks` after a request is asked for first.
    A load that is lost is given up after `timeout_ticks`. Whose blocks did not arrive is computed again (recompute), or
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
    """Offloading of full blocks to the host's memory, by a connector that an engine ships itself.

    An engine may have a `simple` one besides, of whose pool a chunk is a block of the prefix cache, all of which it
    stores and evicts as that does.
    The host has room for `chunks`, each of `blocks_per_chunk` blocks of one request; the one that goes by `eviction`
    makes room. Stored are full chunks of `stored`: prompts alone, or of all that is computed. No load is done before
    `load_ticks` have passed, no store before `store_ticks`, unless the engine waits for it.
    """

    connector: Literal["chunked", "simple"] = "chunked"
    chunks: Annotated[int, Field(strict=True, ge=1, le=1024)] = 16
    blocks_per_chunk: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    eviction: Literal["lru", "arc"] = "lru"
    stored: Literal["all", "prompts"] = "all"
    load_ticks: Ticks = 1
    store_ticks: Ticks = 1


class Handoff(Value):
    """Hand-off of computed prompts by a second engine, the producer of these, as in disaggregated prefill.

    The producer is like the engine of the trace, its consumer, but for its `producer_blocks` blocks. It computes every
    prompt, and a token that is thrown away; then its blocks are loaded into those of the consumer, in `load_ticks`, the
    last one with as many tokens as there are. They stay the producer's until they have been read, or until nobody has
    begun to for `lease_ticks`; the consumer then computes the prompt itself. Before each of the consumer's steps the
    producer does as many as the next of `turns` says, which begin anew behind the last.
    A load that is lost is given up after `timeout_ticks`. Whose blocks did not arrive is computed again (recompute), or
    ends with reason `error` (fail).
    """

    producer_blocks: Count = 64
    turns: Annotated[tuple[Turns, ...], Field(min_length=1, max_length=16), AfterValidator(_some_turn)] = (1,)
    lease_ticks: Annotated[int, Field(strict=True, ge=1, le=64)] = 32
    load_ticks: Ticks = 1
    timeout_ticks: Ticks = 8
    failures: Literal["recompute", "fail"] = "recompute"


class EngineSpec(Value):
    """Sizes and switches of one engine; every field changes what the engine does, none says how fast.

    `sampling` says when a draft of a request with a temperature is kept: if it is what its position samples (strict),
    with probability min(1, p / q) (standard), together with those before it (block), or, whatever the request, at the
    rates of `synthetic_rates`, one a draft, of which the last repeats: multiples of 1/64.
    `draft_sampling` says how a draft model proposes for such a request: its likeliest token (greedy), or one drawn from
    its distribution at the request's temperature, by which verification weighs it (probabilistic). A request with a
    grammar gets the former.
    `drafter_quality` says how well the weights of a drafter predict the target, in an engine whose drafters have any.
    `logprobs_mode` says what tokens come with: logprobs of the target's logits (raw) or of those by which a token is
    chosen (processed), or, in their place, such logits themselves.
    `recurrent_layers` says what the layers with states are in a hybrid model of an engine that has several kinds of
    them: short convolutions, or gated delta nets behind such.
    With `layers` windows some see the last `window` tokens alone, the newest included, beside one of full attention,
    with so many heads for keys and values (`window_heads`) for one of that.
    Hits of a hybrid model's prefix cache end with a block, or every `match_tokens` where there are any.
    `decodes_first` has an engine with a dense batch move the rows that decode before the others, as some kernels want.
    Where there is a token `reasoning_end`, grammars bind behind the first one of a request, in its prompt or output.
    An engine with a `logits_processor` has one of a user, by which requests ban what they chose last (`no_repeats`).
    `last_match` says whether a request takes over the last block that it finds in the prefix cache. A drafter's cache
    entry of its last token may depend on the next token, which may be another one here.
    `transfer` is that of an engine with a store beside its cache, `offloading` that of one whose own connector has one,
    `handoff` that of one whose prompts another engine computes.
    `graphs` says what is launched as captured graphs, in batches padded to captured sizes: nothing (none), each step's
    model between its layers of attention (piecewise), or all of it (full), or in steps of decodes alone all of it and
    pieces in others (full_and_piecewise).
    Beside drafts an engine with a `plan_stream` prepares passes on a stream of their own, one that `relay_lengths` has
    the host wait for the lengths behind accepted drafts before it launches the next step. Where steps are of prompts or
    of decodes, `mixed_chunks` has those of prompts take decodes along, of one token each.
    Where a drafter proposes several tokens behind each one, `tree_width` of them, the likeliest are verified as a tree,
    as many as there are drafts.
    A token is drawn by its block of the vocabulary, its tile in that, and itself: `vocab_block` is the least size of a
    block, `vocab_tile` that of a tile, both powers of two. Small ones bring a small vocabulary across their borders.
    """

    layers: Literal["hybrid", "attention", "windows"] = "hybrid"
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
    tree_width: Annotated[int, Field(strict=True, ge=1, le=4)] = 1

    @property
    def has_connector(self) -> bool:
        """Tell whether blocks come into the cache from beside it, by whatever connector."""
        return self.transfer is not None or self.offloading is not None or self.handoff is not None

    @property
    def is_aligned(self) -> bool:
        """Tell whether recurrent states are kept with cache blocks: the one at the end of each full block."""
        return self.layers == "hybrid" and self.recurrent_cache == "align"

    @property
    def max_blocks_per_request(self) -> int:
        """Number of block table entries of one request."""
        return -(-self.max_model_len // self.block_size)

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates at which synthetic verification keeps drafts, one a draft; none for any other method."""
        given, k = self.synthetic_rates, self.num_speculative_tokens
        return (*given, *given[-1:] * k)[:k]

    def length_limit(self, prompt_length: int, max_tokens: int) -> int:
        """Return the number of tokens at which a request ends with reason `length`."""
        return min(prompt_length + max_tokens, self.max_model_len)

    def blocks_needed(self, prompt_length: int, max_tokens: int) -> int:
        """Return the most blocks a request can hold when it runs alone: its tokens and three speculative runs.

        Those are two in flight and the one that follows; where more are in flight, so many more.
        """
        runs = max(3, 1 + self.depth)
        limit = self.length_limit(prompt_length, max_tokens) + runs * self.num_speculative_tokens
        return -(-min(limit, self.max_model_len) // self.block_size)
