"""Transfers of random traces: a store beside the cache or a producer of prompts, and what happens to loads and stores.

Every draw is labelled by the trace's seed and its subject. A trace gets all of this or nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import Abort, AnyEvent, DisturbTransfer, Preempt, PromptDraw, ResetPrefixCache, Submit, WakeUp
from scenarios.features import refusals
from scenarios.spec import EngineSpec, Handoff, Offloading, Transfer
from scenarios.trace import Trace, problems

_SITE = "transfer"
# Of so many traces without sessions one has transfers.
ONE_IN = 4
# Of so many of hybrid models one has a store, and of so many others one is handed over.
HYBRID_ONE_IN = 4
HYBRID_HANDED_OVER_ONE_IN = 8
# Of so many others one is offloaded, and of so many that are left one is handed over.
OFFLOADED_ONE_IN = 3
HANDED_OVER_ONE_IN = 2
# Small stores evict; of the last one nobody meets the end.
STORES = (2, 4, 8, 64)
LATENCIES = (0, 1, 1, 2, 5)
STORE_LATENCIES = (0, 1, 2, 4, 8)
How = Literal["delay", "hasten", "drop", "fail", "repeat"]
HOWS: tuple[How, ...] = ("delay", "delay", "hasten", "drop", "fail", "fail", "repeat")
# Steps of a producer in one tick after the other.
TURNS = ((1,), (1,), (2,), (1, 0), (2, 0, 1), (0, 0, 3))
# What mostly does of a load that is part of a step: whose step comes back is then not to go on from it.
LOSING: tuple[How, ...] = ("drop", "fail", "fail", "delay")
# What takes nothing from a load.
WHOLE: tuple[How, ...] = ("delay", "hasten", "repeat")
# Ticks behind a request's arrival in which its transfers are disturbed: mostly those that it begins with.
DISTURBED_AFTER = (0, 0, 0, 1, 2, 4, 8, 16)
# Ticks in which who came first has mostly stored what the next ones load.
LATER_MAX = 24
# Blocks of a prompt.
BLOCKS_MAX = 4
# Tokens by which a prompt is shorter than whole blocks that its output fills up.
SHORT_BY = 8
# In so many ticks it is told how soon a prompt's last block is full.
FILLED_MAX = 20
# Tokens behind the end of these blocks: the last one delivered is not computed, and drafts may pass the end.
BEHIND_BLOCKS = (0, 1, 1, 2)


def with_transfers(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with transfers, for an engine that has them; the trace itself in most cases."""
    # Engines have sessions without connectors alone, and beside one nobody is woken in parts.
    is_alone = any(isinstance(event, WakeUp) or getattr(event, "session", None) is not None for event in trace.events)
    # Few traces have graphs beside states, or hits that end inside blocks, which do not go beside a connector.
    is_alone |= trace.spec.layers == "hybrid" and (trace.spec.graphs != "none" or trace.spec.match_tokens > 0)
    if is_alone:
        return trace
    seed = trace.seed
    has_them = capabilities.allowed("transfer") is None and "disturb_transfer" in capabilities.events
    has_producer = capabilities.allowed("handoff") is None and "disturb_transfer" in capabilities.events
    if trace.spec.layers == "hybrid":
        if has_them and not below(HYBRID_ONE_IN, seed, _SITE, "hybrid", 0):
            return _with_states(trace)
        is_handed_over = has_producer and not below(HYBRID_HANDED_OVER_ONE_IN, seed, _SITE, "hybrid handed over", 0)
        # Beside drafts each of its prompts is padded, which is known.
        keys = {"recurrent_layers": "short_conv", "num_speculative_tokens": 0}
        return _handed_over(trace, keys) if is_handed_over else trace
    if has_them and not below(ONE_IN, seed, _SITE, "has any", 0):
        prefix_cache = trace.spec.prefix_cache and not below(2, seed, _SITE, "prefix cache", 0)
        transfer = _transfer(seed)
        # Who asks again for what it has lost may need room twice.
        num_blocks = trace.spec.num_blocks if transfer.failures == "fail" else 2 * trace.spec.num_blocks + 2
        keys = {"transfer": transfer, "prefix_cache": prefix_cache, "num_blocks": num_blocks}
        # A step that waits in vain for what is computed again has others behind it where steps overlap, and stores of
        # what it lost where these take longer than it.
        if _may_lose_in_steps(transfer):
            keys["transfer"] = transfer.model_copy(update={"stores": "synchronous"})
            keys |= {"depth": 1} if below(3, seed, _SITE, "in turn", 0) else {}
        return _transferring(trace.model_copy(update={"spec": trace.spec.model_copy(update=keys)}))
    if capabilities.allowed("offloading") is None and not below(OFFLOADED_ONE_IN, seed, _SITE, "is offloaded", 0):
        spec = trace.spec.model_copy(update={"prefix_cache": bool(below(2, seed, _SITE, "prefix cache", 0))})
        spec = trace.spec if refusals(spec, ()) else spec
        offloading = _offloading(seed, spec.prefix_cache)
        return _transferring(trace.model_copy(update={"spec": spec.model_copy(update={"offloading": offloading})}))
    if has_producer and not below(HANDED_OVER_ONE_IN, seed, _SITE, "is handed over", 0):
        return _handed_over(trace, {})
    return trace


def _handed_over(trace: Trace, besides: Mapping[str, object]) -> Trace:
    """Return a trace of which a producer computes the prompts, with some keys of its specification besides."""
    seed = trace.seed
    trace = trace.model_copy(update={"spec": trace.spec.model_copy(update=besides)})
    trace = _crowded(trace) if below(3, seed, _SITE, "crowded", 0) else trace
    handoff = _handoff(trace)
    prefix_cache = trace.spec.prefix_cache and not below(2, seed, _SITE, "prefix cache", 0)
    num_blocks = trace.spec.num_blocks if handoff.failures == "fail" else 2 * trace.spec.num_blocks + 2
    keys = {"handoff": handoff, "prefix_cache": prefix_cache, "num_blocks": num_blocks}
    return _transferring(trace.model_copy(update={"spec": trace.spec.model_copy(update=keys)}))


def _with_states(trace: Trace) -> Trace:
    """Return a trace of a hybrid model with a store of its states, too, if it may have cached prefixes."""
    transfer = _transfer(trace.seed).model_copy(update={"loads": "asynchronous"})
    num_blocks = trace.spec.num_blocks if transfer.failures == "fail" else 2 * trace.spec.num_blocks + 2
    kept = {"prefix_cache": True, "recurrent_cache": "align", "recurrent_layers": "short_conv"}
    keys = {**kept, "transfer": transfer, "num_blocks": num_blocks}
    spec = trace.spec.model_copy(update=keys)
    return trace if refusals(spec, ()) else _transferring(trace.model_copy(update={"spec": spec}))


def _may_lose_in_steps(transfer: Transfer) -> bool:
    """Tell whether loads are part of steps, and computed again if they are lost."""
    return (transfer.loads, transfer.failures) == ("synchronous", "recompute")


def _roomy(spec: EngineSpec, seed: int) -> EngineSpec:
    """Return a specification with room for requests of some blocks, which it computes in a step in one of two."""
    keys: dict[str, object] = {}
    if below(4, seed, _SITE, "room", 0) and spec.handoff is None:
        blocks = BLOCKS_MAX + 1
        keys["max_model_len"] = max(spec.max_model_len, blocks * spec.block_size)
        keys["num_blocks"] = max(spec.num_blocks, blocks + below(3, seed, _SITE, "spare", 0))
    if below(2, seed, _SITE, "whole prompts", 0):
        keys["max_num_batched_tokens"] = max(spec.max_num_batched_tokens, BLOCKS_MAX * spec.block_size)
    return spec.model_copy(update=keys)


def _crowded(trace: Trace) -> Trace:
    """Return a trace of which a producer has little room and computes long prompts by chunks."""
    spec, seed = trace.spec, trace.seed
    longest = max((spec.blocks_needed(each.prompt_length, 1) for each in trace.submits()), default=1)
    length = spec.block_size * max(longest, 3 + below(3, seed, _SITE, "longest", 0))
    chunk = spec.block_size + below(spec.block_size, seed, _SITE, "chunk", 0)
    keys = {
        "max_model_len": length,
        "num_blocks": max(spec.num_blocks, length // spec.block_size),
        "long_prefill_token_threshold": min(chunk, length),
        "max_num_batched_tokens": max(spec.max_num_batched_tokens, 3 * spec.block_size),
        "max_num_seqs": max(spec.max_num_seqs, 4),
    }
    return trace.model_copy(update={"spec": spec.model_copy(update=keys)})


def _transferring(changed: Trace) -> Trace:
    """Return a trace of an engine with a store, with prompts that it has, and what happens around transfers."""
    seed = changed.seed
    changed = changed.model_copy(update={"spec": _roomy(changed.spec, seed)})
    if _one_goes_on(changed) and changed.spec.offloading is not None:
        pool = {"chunks": 3 + below(2, seed, _SITE, "chunks beside one", 0), "blocks_per_chunk": 1, "stored": "all"}
        offloading = changed.spec.offloading.model_copy(update=pool)
        changed = changed.model_copy(update={"spec": changed.spec.model_copy(update={"offloading": offloading})})
    are_apart = below(3, seed, _SITE, "apart", 0)
    events: list[AnyEvent] = []
    for index, event in enumerate(changed.events):
        if not isinstance(event, Submit):
            events.append(event)
            continue
        later = below(LATER_MAX, seed, _SITE, "later", index) if index and are_apart else 0
        if _one_goes_on(changed):
            submit = _beside_one(event, index, changed)
        elif _is_crowded(changed):
            submit = _behind_one(event, index, changed)
        else:
            submit = _with_prompt(event.model_copy(update={"tick": event.tick + later}), index, changed)
        events += [submit, *_around(submit, index, changed)]
    return changed.model_copy(update={"events": tuple(events)})


def _transfer(seed: int) -> Transfer:
    def pick(what: str, bound: int) -> int:
        return below(bound, seed, _SITE, what, 0)

    return Transfer(
        store_blocks=STORES[pick("blocks", len(STORES))],
        loads=("asynchronous", "synchronous")[pick("loads", 2)],
        stores=("asynchronous", "asynchronous", "synchronous")[pick("stores", 3)],
        load_ticks=LATENCIES[pick("load ticks", len(LATENCIES))],
        store_ticks=STORE_LATENCIES[pick("store ticks", len(STORE_LATENCIES))],
        lookup_ticks=(0, 0, 1, 3)[pick("lookup", 4)],
        timeout_ticks=(2, 8)[pick("timeout", 2)],
        failures=("recompute", "recompute", "fail")[pick("failures", 3)],
    )


def _offloading(seed: int, has_prefix_cache: bool) -> Offloading:
    def pick(what: str, bound: int) -> int:
        return below(bound, seed, _SITE, what, 0)

    chunks, ticks = STORES[pick("blocks", len(STORES))], LATENCIES[pick("simple ticks", len(LATENCIES))]
    if has_prefix_cache and not pick("simple", 2):
        return Offloading(connector="simple", chunks=chunks, load_ticks=pick("load ticks", 3), store_ticks=ticks)
    return Offloading(
        chunks=chunks,
        blocks_per_chunk=(1, 1, 2, 3)[pick("blocks of a chunk", 4)],
        eviction=("lru", "arc")[pick("eviction", 2)],
        stored=("all", "all", "prompts")[pick("stored", 3)],
        load_ticks=LATENCIES[pick("load ticks", len(LATENCIES))],
        store_ticks=STORE_LATENCIES[pick("store ticks", len(STORE_LATENCIES))],
    )


def _handoff(trace: Trace) -> Handoff:
    # In some pools the longest request has just room.
    spare = (0, 0, 0, 1, 2) if below(3, trace.seed, _SITE, "crowded", 0) else (0, 1, 2, 8, 32)

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, _SITE, what, 0)

    return Handoff(
        producer_blocks=trace.spec.max_blocks_per_request + spare[pick("producer's blocks", 5)],
        turns=TURNS[pick("turns", len(TURNS))],
        lease_ticks=(2, 8, 32)[pick("lease", 3)],
        load_ticks=LATENCIES[pick("load ticks", len(LATENCIES))],
        timeout_ticks=(2, 8)[pick("timeout", 2)],
        failures=("recompute", "recompute", "fail")[pick("failures", 3)],
    )


def _with_prompt(event: Submit, index: int, trace: Trace) -> Submit:
    """Return a request whose prompt is some blocks long and begins as all do, where such a one fits.

    Most of those that are stored end with their last block, which a prompt leaves to be filled up.
    """
    size, seed = trace.spec.block_size, trace.seed
    if not isinstance(event.prompt, PromptDraw) or not below(4, seed, _SITE, "own prompt", index):
        return event
    blocks = 1 + below(BLOCKS_MAX, seed, _SITE, "length", index)
    tokens = max(1, blocks * size + below(3, seed, _SITE, "edge", index) - 1)
    fields: dict[str, object] = {}
    if trace.spec.handoff is None and below(3, seed, _SITE, "ends with a block", index):
        tokens = max(1, blocks * size - 1 - below(SHORT_BY, seed, _SITE, "short by", index))
        behind = BEHIND_BLOCKS[below(len(BEHIND_BLOCKS), seed, _SITE, "behind blocks", index)]
        fields["max_tokens"] = blocks * size - tokens + behind
    part = min(tokens, size * (1 + below(blocks, seed, _SITE, "common", index)))
    common = tokens if below(2, seed, _SITE, "all", index) else part
    changed = event.model_copy(update={**fields, "prompt": PromptDraw(tokens=tokens, common=common)})
    return event if problems(trace.model_copy(update={"events": (changed,)})) else changed


def _one_goes_on(trace: Trace) -> bool:
    """Tell whether one request goes on beside short ones, with which it shares at most a block, in a small pool."""
    return trace.spec.offloading is not None and not below(2, trace.seed, _SITE, "one goes on", 0)


def _beside_one(event: Submit, index: int, trace: Trace) -> Submit:
    """Return the first request with a prompt that its output fills up to the end of a block, others with short ones.

    So of what is stored of the first some blocks are used again, and others make room for its last. The second one has
    a prompt of its own and goes on as long, so that steps overlap.
    """

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, _SITE, what, index)

    size = trace.spec.block_size
    short_by = min(size, 6 + pick("short of the last", 14))
    tokens = size + 1 + pick("short", 8) if index else 3 * size - short_by
    is_own = index == 1 or (index > 1 and not pick("shared", 3))
    fields: dict[str, object] = {
        "prompt": PromptDraw(tokens=tokens, common=0 if is_own else tokens),
        "max_tokens": 1 + pick("few", 4) if index > 1 else short_by + 4 + pick("behind the last", 8),
        "tick": event.tick % 4 + (pick("beside", 10) if index > 1 else 0),
    }
    changed = event.model_copy(update=fields)
    is_drawn = isinstance(event.prompt, PromptDraw)
    return changed if is_drawn and not problems(trace.model_copy(update={"events": (changed,)})) else event


def _is_crowded(trace: Trace) -> bool:
    return trace.spec.handoff is not None and below(3, trace.seed, _SITE, "crowded", 0) > 0


def _behind_one(event: Submit, index: int, trace: Trace) -> Submit:
    """Return the first request with as long a prompt as fits, the others with short ones that come while that is read.

    So a producer has no room for the next chunk of the first, with others behind it in flight. Who is alone is computed
    in whole steps: the second one comes with it.
    """

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, _SITE, what, index)

    size, longest = trace.spec.block_size, trace.spec.max_model_len
    tokens = 1 + pick("short", size + 4) if index else longest - 2 - pick("short of the longest", size)
    fields: dict[str, object] = {
        "prompt": PromptDraw(tokens=max(1, tokens), common=0),
        "max_tokens": 1 + pick("few", 6),
        "tick": pick("behind one", _steps_of(longest, trace.spec)) if index > 1 else 0,
    }
    changed = event.model_copy(update=fields)
    is_drawn = isinstance(event.prompt, PromptDraw)
    return changed if is_drawn and not problems(trace.model_copy(update={"events": (changed,)})) else event


def _around(event: Submit, index: int, trace: Trace) -> Iterator[AnyEvent]:
    """Yield what happens to the transfers of a request, and perhaps to itself while they are in flight."""

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, _SITE, what, index)

    transfer, handoff = trace.spec.transfer, trace.spec.handoff
    if (transfer or handoff) and pick("disturbed", 3):
        is_whole = transfer is not None and _may_lose_in_steps(transfer) and trace.spec.depth > 1
        is_of_a_step = transfer is not None and transfer.loads == "synchronous"
        of: Literal["load", "store"] = "load" if pick("of", 4) else "store"
        hows = HOWS if of == "store" else WHOLE if is_whole else LOSING if is_of_a_step else HOWS
        yield DisturbTransfer(
            tick=event.tick + DISTURBED_AFTER[pick("disturbed after", len(DISTURBED_AFTER))],
            request=event.request,
            of=of,
            how=hows[pick("how", len(hows))],
            ticks=1 + pick("ticks", 6),
            block=pick("block", 3),
        )
    if not pick("aborted", 4):
        # About when a load of its has come that it begins with, or whenever.
        after = _load_ticks(trace.spec) + pick("abort with a load", 3) if pick("with a load", 2) else pick("abort", 6)
        yield Abort(tick=event.tick + 1 + after, request=event.request)
    if pick("preempted", 3) < (2 if trace.spec.offloading is not None else 1) or (not index and _one_goes_on(trace)):
        filled = -event.prompt_length % trace.spec.block_size
        # About when it has filled a block up, which is then stored, or whenever.
        is_filling = filled <= FILLED_MAX and pick("as it fills up", 3)
        run = 1 + pick("tokens of a step", 1 + trace.spec.num_speculative_tokens)
        fills = _prompt_steps(event, trace.spec) - 1 + filled // run
        after = fills + pick("preempt behind", 5) if is_filling else pick("preempt", 12)
        yield Preempt(tick=event.tick + 1 + after, request=event.request)
    if trace.spec.offloading is not None and trace.spec.prefix_cache and index and not pick("emptied", 2):
        # What the prefix cache has is not loaded. Who is preempted and loads at once ends a synchronous engine.
        yield ResetPrefixCache(tick=event.tick, running=trace.spec.depth > 1 and not pick("running", 2))
    if trace.spec.layers == "hybrid" and transfer and index and pick("forgotten", 3):
        # What comes behind is loaded, as far as it is not computed again beside.
        yield ResetPrefixCache(tick=event.tick)


def _prompt_steps(event: Submit, spec: EngineSpec) -> int:
    """Return how many steps a prompt takes if nobody else has a share of them."""
    return _steps_of(event.prompt_length, spec)


def _steps_of(tokens: int, spec: EngineSpec) -> int:
    most = spec.max_num_batched_tokens
    return -(-tokens // min(most, spec.long_prefill_token_threshold or most))


def _load_ticks(spec: EngineSpec) -> int:
    """Return for how many ticks a request waits that begins with a load, at the least."""
    found = [each for each in (spec.transfer, spec.offloading, spec.handoff) if each is not None]
    return found[0].load_ticks + (spec.transfer.lookup_ticks if spec.transfer is not None else 0)
