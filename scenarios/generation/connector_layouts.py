"""Layouts of requests with a KV connector: arrivals and lengths that compete for blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scenarios.events import PromptDraw, Submit
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import Situation, allows_any
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec

# Number of blocks of a store that never evicts.
STORE_OF_ALL = 64
# Maximum number of blocks of a prompt.
BLOCKS_MAX = 4
# Maximum number of tokens by which a prompt is short of whole blocks; its output fills the last block.
SHORT_BY = 8
# Output tokens after the end of these blocks: the last output token has no KV cache entry, and drafts may pass the end.
AFTER_BLOCKS = (0, 1, 1, 2)


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which requests compete for blocks: engine settings, and fields per submit.

    `arrange` and `make_pool` set the specification; `fields` has prompt, max_tokens and tick of a request by its
    number.
    A calm layout has no events except its own. With `keeps_first` the first two requests run longer than the others.
    """

    name: str
    fields: Callable[[int, TraceBuilder], dict[str, object]]
    arrange: Callable[[TraceBuilder], None] = lambda _: None
    make_pool: Callable[[TraceBuilder], None] = lambda _: None
    is_calm: bool = False
    keeps_first: bool = False

    def placed(self, submit: Submit, index: int, trace: TraceBuilder) -> Submit:
        """Return a submit with the layout's prompt, max_tokens and tick, unless it is invalid."""
        fields = self.fields(index, trace)
        changed = submit.model_copy(update={**fields, "stop": ()})
        return changed if isinstance(submit.prompt, PromptDraw) and trace.is_valid(changed) else submit


def crowd(trace: TraceBuilder) -> None:
    """Give the producer few blocks, and let it compute long prompts in chunks."""
    spec, size = trace.spec, trace.spec.block_size
    longest = max((spec.blocks_needed(each.prompt_length, 1) for _, each in trace.every_submit()), default=1)
    length = size * max(longest, 3 + trace.pick(3, "longest"))
    trace.set(max_model_len=length, long_prefill_token_threshold=min(size + trace.pick(size, "chunk"), length))
    trace.at_least(num_blocks=length // size, max_num_batched_tokens=3 * size, max_num_seqs=4)


def steps_of(tokens: int, spec: EngineSpec) -> int:
    """Return how many prefill steps a prompt takes if no other request runs."""
    most = spec.max_num_batched_tokens
    return -(-tokens // min(most, spec.long_prefill_token_threshold or most))


def _offload(trace: TraceBuilder, **keys: object) -> None:
    assert trace.spec.offloading is not None, "chunks are offloaded"
    trace.set(offloading=trace.spec.offloading.model_copy(update=keys))


def _arrange_beside_one(trace: TraceBuilder) -> None:
    _offload(trace, chunks=3 + trace.pick(2, "chunks beside one"), blocks_per_chunk=1, stored="all")


def _beside_one(index: int, trace: TraceBuilder) -> dict[str, object]:
    """Return fields of a submit: request 0 is long; short ones come and go while it runs.

    So some stored blocks of request 0 are loaded again, and others are evicted for its last block. Request 1 has a
    prompt of its own and runs as long, so that steps overlap.
    """

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    size = trace.spec.block_size
    short_by = min(size, 6 + pick("short of the last", 14))
    tokens = size + 1 + pick("short", 8) if index else 3 * size - short_by
    is_own = index == 1 or (index > 1 and not pick("shared", 3))
    return {
        "prompt": PromptDraw(tokens=tokens, common=0 if is_own else tokens),
        "max_tokens": 1 + pick("few", 4) if index > 1 else short_by + 4 + pick("behind the last", 8),
        "tick": 1 + pick("beside", 10) if index > 1 else index * pick("second", 2),
    }


def _arrange_undisturbed(trace: TraceBuilder) -> None:
    """Use fixed store latencies, no drafts, async scheduling, and whole prompts per step.

    So the ticks are known in which the last chunk of request 0 is stored and a preempted request loads.
    """
    store_ticks = 3 + trace.pick(2, "store beside one")
    _offload(trace, chunks=3, blocks_per_chunk=1, stored="all", eviction="lru", load_ticks=0, store_ticks=store_ticks)
    plain = {key: EngineSpec.model_fields[key].default for key in ("drafter", "draft_sampling", "policy")}
    trace.set(**plain, num_speculative_tokens=0, long_prefill_token_threshold=0, depth=2, prefix_cache=False)
    size = trace.spec.block_size
    trace.at_least(max_num_batched_tokens=2 * BLOCKS_MAX * size, max_model_len=(BLOCKS_MAX + 1) * size)
    trace.at_least(max_num_seqs=5, num_blocks=3 * BLOCKS_MAX)


def _undisturbed(index: int, trace: TraceBuilder) -> dict[str, object]:
    """Return fields of a submit: it loads blocks before request 0's last chunk is stored."""

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    size = trace.spec.block_size
    if not index:
        short_by = min(size, 12 + pick("short of the last", 8))
        prompt = PromptDraw(tokens=3 * size - short_by, common=3 * size - short_by)
        most = short_by + 4 + pick("behind the last", 8)
        return {"prompt": prompt, "max_tokens": most, "tick": 0, "params": SamplingParams()}
    tokens = size + 1 + pick("short", 8)
    if index == 1:
        most = 24 + pick("behind the last", 8)
        own = {"max_tokens": most, "tick": pick("second", 2), "params": SamplingParams()}
        return {**own, "prompt": PromptDraw(tokens=tokens, common=0)}
    prompt = PromptDraw(tokens=tokens, common=tokens)
    return {"prompt": prompt, "max_tokens": 1 + pick("few", 4), "tick": 1 + pick("beside", 4)}


def _after_one(index: int, trace: TraceBuilder) -> dict[str, object]:
    """Return fields of a submit: request 0 has a long prompt; short ones arrive in its prefill.

    So the producer has no blocks for the next chunk of request 0, with other requests after it in flight. A request
    alone is computed in whole steps, so request 1 arrives with it.
    """

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    size, longest = trace.spec.block_size, trace.spec.max_model_len
    tokens = 1 + pick("short", size + 4) if index else longest - 2 - pick("short of the longest", size)
    return {
        "prompt": PromptDraw(tokens=max(1, tokens), common=0),
        "max_tokens": 1 + pick("few", 6),
        "tick": pick("behind one", steps_of(longest, trace.spec)) if index > 1 else 0,
    }


def _arrange_in_turn(trace: TraceBuilder) -> None:
    spec, size = trace.spec, trace.spec.block_size
    trace.at_least(max_num_batched_tokens=BLOCKS_MAX * size, max_num_seqs=3, max_model_len=(BLOCKS_MAX + 1) * size)
    trace.at_least(num_blocks=-(-trace.spec.max_model_len // size))
    # Without the prefix cache, blocks of earlier requests are loaded.
    trace.set(prefix_cache=False)
    if spec.transfer is not None:
        trace.set(transfer=spec.transfer.model_copy(update={"store_blocks": STORE_OF_ALL}))
    if spec.offloading is not None:
        one = {"blocks_per_chunk": 1} if trace.pick(4, "chunks of a block") else {}
        _offload(trace, chunks=STORE_OF_ALL, store_ticks=max(1, spec.offloading.store_ticks), **one)


def _in_turn(index: int, trace: TraceBuilder) -> dict[str, object]:
    """Return fields of a submit: its prompt ends in a block that its output fills up.

    The others share a prefix with request 0 and load it: the KV cache has room for two such loads, but not for the rest
    of either prompt. Or the prompts have no common prefix, and a request gets all blocks of a finished one.
    """

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    size = trace.spec.block_size
    blocks = BLOCKS_MAX if index == 1 else 2 + pick("blocks in turn", BLOCKS_MAX - 2)
    tokens = max(1, blocks * size - 1 - pick("short by", SHORT_BY))
    is_shared = trace.spec.offloading is None or trace.one_in(3, "shared in turn")
    common = (size * (1 + pick("common in turn", 2)) if index else tokens) if is_shared else 0
    after = AFTER_BLOCKS[pick("behind blocks", len(AFTER_BLOCKS))]
    return {
        "prompt": PromptDraw(tokens=tokens, common=min(tokens, common)),
        "max_tokens": blocks * size - tokens + (min(after, 1) if index == 1 else after),
        "tick": index + pick("together", 2),
    }


def _pool_of_the_longest(trace: TraceBuilder) -> None:
    """Size the KV cache for the longest request, but for its last token."""
    spec, submits = trace.spec, [each for _, each in trace.every_submit()]
    if submits:
        longest = max(spec.length_limit(each.prompt_length, each.max_tokens) - 1 for each in submits)
        num_blocks = -(-longest // spec.block_size)
        trace.set(max_model_len=num_blocks * spec.block_size, num_blocks=num_blocks)


def _arrange_branches(trace: TraceBuilder) -> None:
    assert trace.spec.offloading is not None, "prompts diverge in a store"
    trace.at_least(max_model_len=(BLOCKS_MAX + 1) * trace.spec.block_size)
    trace.at_least(num_blocks=2 * -(-trace.spec.max_model_len // trace.spec.block_size))
    _offload(trace, chunks=STORE_OF_ALL, store_ticks=min(1, trace.spec.offloading.store_ticks))


def _branches(index: int, trace: TraceBuilder) -> dict[str, object]:
    """Return fields of a submit: its prompt shares whole blocks with request 0, which has ended."""

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    size = trace.spec.block_size
    longest = BLOCKS_MAX * size
    common = size * (1 + pick("blocks of a branch", 2)) if index else longest - pick("short of a branch", size)
    return {
        "prompt": PromptDraw(tokens=common + (1 + pick("own of a branch", 8) if index else 0), common=common),
        "max_tokens": 2 + pick("output of a branch", 8),
        "tick": index * (steps_of(longest, trace.spec) + 16),
    }


QUEUED = "short_prompts_after_long_one"
# For the simple connector with a drafter such as eagle.
BRANCHES = Layout("branches_in_a_store", _branches, _arrange_branches, is_calm=True)
_ALL = (
    Layout("chunks_evicted_by_short_prompts", _beside_one, _arrange_beside_one, keeps_first=True),
    Layout("preempt_as_last_chunk_is_stored", _undisturbed, _arrange_undisturbed, is_calm=True, keeps_first=True),
    Layout("offloaded_requests_in_turn", _in_turn, _arrange_in_turn, _pool_of_the_longest, is_calm=True),
    Layout("stored_requests_in_turn", _in_turn, _arrange_in_turn, _pool_of_the_longest, is_calm=True),
    Layout(QUEUED, _after_one),
    BRANCHES,
)
LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in _ALL}
OF_OFFLOADING = tuple(layout.name for layout in _ALL[:3])
OF_STORES = (_ALL[3].name,)
HAS_OFFLOADING, HAS_STORES, HAS_HANDOFFS = allows_any("offloading"), allows_any("transfer"), allows_any("handoff")


PARTS: tuple[Situation[TraceBuilder], ...] = tuple(
    Situation(name=name, needs=(need,), stage="connector", part_of=part_of)
    for names, part_of, need in (
        ((*OF_OFFLOADING, BRANCHES.name), "offloading", HAS_OFFLOADING),
        (OF_STORES, "kv_store", HAS_STORES),
        ((QUEUED,), "handoff", HAS_HANDOFFS),
    )
    for name in names
)
