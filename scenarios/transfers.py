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
from scenarios.transfer_layouts import (
    BEHIND_BLOCKS,
    BLOCKS_MAX,
    SHORT_BY,
    SITE,
    Layout,
    arranged,
    crowded,
    first_of_their_names,
    goes_on,
    is_calm,
    is_crowded,
    layout_of,
    placed,
    steps_of,
    with_a_pool,
)

# Of so many traces without sessions one has transfers.
ONE_IN = 4
# Of so many of hybrid models one has a store, and of so many others one is handed over.
HYBRID_ONE_IN = 4
# Of so many of these whose hits end inside blocks, of which there are few.
HITS_INSIDE_ONE_IN = 2
HYBRID_HANDED_OVER_ONE_IN = 8
# Of so many others one is offloaded, and of so many that are left one is handed over.
OFFLOADED_ONE_IN = 2
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
# In so many ticks it is told how soon a prompt's last block is full.
FILLED_MAX = 20


def with_transfers(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with transfers, for an engine that has them; the trace itself in most cases."""
    # Engines have sessions without connectors alone, and beside one nobody is woken in parts.
    is_alone = any(isinstance(event, WakeUp) or getattr(event, "session", None) is not None for event in trace.events)
    # Few traces have graphs beside states, which do not go beside a connector.
    is_alone |= trace.spec.layers == "hybrid" and trace.spec.graphs != "none"
    if is_alone:
        return trace
    seed = trace.seed
    has_them = capabilities.allowed("transfer") is None and "disturb_transfer" in capabilities.events
    has_producer = capabilities.allowed("handoff") is None and "disturb_transfer" in capabilities.events
    if trace.spec.layers == "hybrid":
        one_in = HITS_INSIDE_ONE_IN if trace.spec.match_tokens else HYBRID_ONE_IN
        if has_them and not below(one_in, seed, SITE, "hybrid", 0):
            return _with_states(trace)
        # Nor do hits that end inside blocks go beside a producer.
        may_be = has_producer and not trace.spec.match_tokens
        is_handed_over = may_be and not below(HYBRID_HANDED_OVER_ONE_IN, seed, SITE, "hybrid handed over", 0)
        # Beside drafts each of its prompts is padded, which is known.
        keys = {"recurrent_layers": "short_conv", "num_speculative_tokens": 0}
        return _handed_over(trace, keys) if is_handed_over else trace
    if has_them and not below(ONE_IN, seed, SITE, "has any", 0):
        prefix_cache = trace.spec.prefix_cache and not below(2, seed, SITE, "prefix cache", 0)
        transfer = _transfer(seed)
        # Who asks again for what it has lost may need room twice.
        num_blocks = trace.spec.num_blocks if transfer.failures == "fail" else 2 * trace.spec.num_blocks + 2
        keys = {"transfer": transfer, "prefix_cache": prefix_cache, "num_blocks": num_blocks}
        # A step that waits in vain for what is computed again has others behind it where steps overlap, and stores of
        # what it lost where these take longer than it.
        if _may_lose_in_steps(transfer):
            keys["transfer"] = transfer.model_copy(update={"stores": "synchronous"})
            keys |= {"depth": 1} if below(3, seed, SITE, "in turn", 0) else {}
        return _transferring(trace.model_copy(update={"spec": trace.spec.model_copy(update=keys)}))
    if capabilities.allowed("offloading") is None and not below(OFFLOADED_ONE_IN, seed, SITE, "is offloaded", 0):
        spec = trace.spec.model_copy(update={"prefix_cache": bool(below(2, seed, SITE, "prefix cache", 0))})
        spec = trace.spec if refusals(spec, ()) else spec
        offloading = _offloading(seed, spec.prefix_cache)
        keys = {"offloading": offloading}
        is_simple = offloading.connector == "simple" and spec.num_speculative_tokens > 0
        if is_simple and capabilities.allows("drafter", "eagle"):
            # What it keeps in a block depends on the token behind that.
            keys |= {"drafter": "eagle", "draft_sampling": "greedy"}
        return _transferring(trace.model_copy(update={"spec": spec.model_copy(update=keys)}))
    if has_producer and not below(HANDED_OVER_ONE_IN, seed, SITE, "is handed over", 0):
        return _handed_over(trace, {})
    return trace


def _handed_over(trace: Trace, besides: Mapping[str, object]) -> Trace:
    """Return a trace of which a producer computes the prompts, with some keys of its specification besides."""
    seed = trace.seed
    trace = trace.model_copy(update={"spec": trace.spec.model_copy(update=besides)})
    trace = crowded(trace) if is_crowded(trace) else trace
    handoff = _handoff(trace)
    prefix_cache = trace.spec.prefix_cache and not below(2, seed, SITE, "prefix cache", 0)
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
    if below(4, seed, SITE, "room", 0) and spec.handoff is None:
        blocks = BLOCKS_MAX + 1
        keys["max_model_len"] = max(spec.max_model_len, blocks * spec.block_size)
        keys["num_blocks"] = max(spec.num_blocks, blocks + below(3, seed, SITE, "spare", 0))
    if below(2, seed, SITE, "whole prompts", 0):
        keys["max_num_batched_tokens"] = max(spec.max_num_batched_tokens, BLOCKS_MAX * spec.block_size)
    return spec.model_copy(update=keys)


def _transferring(changed: Trace) -> Trace:
    """Return a trace of an engine with a store, with prompts that it has, and what happens around transfers."""
    seed = changed.seed
    layout = layout_of(changed)
    changed = arranged(changed.model_copy(update={"spec": _roomy(changed.spec, seed)}), layout)
    are_apart = below(3, seed, SITE, "apart", 0)
    events: list[AnyEvent] = []
    index = 0
    given = first_of_their_names(changed) if is_calm(layout) else changed.events
    for event in given:
        if not isinstance(event, Submit):
            events.append(event)
            continue
        later = below(LATER_MAX, seed, SITE, "later", index) if index and are_apart else 0
        if layout == "any":
            submit = _with_prompt(event.model_copy(update={"tick": event.tick + later}), index, changed)
        else:
            submit = placed(event, index, changed, layout)
        events += [submit, *_around(submit, index, changed, layout)]
        index += 1
    return with_a_pool(changed.model_copy(update={"events": tuple(events)}), layout)


def _transfer(seed: int) -> Transfer:
    def pick(what: str, bound: int) -> int:
        return below(bound, seed, SITE, what, 0)

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
        return below(bound, seed, SITE, what, 0)

    chunks, ticks = STORES[pick("blocks", len(STORES))], LATENCIES[pick("simple ticks", len(LATENCIES))]
    if has_prefix_cache and pick("simple", 5) < 3:
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
    spare = (0, 0, 0, 1, 2) if is_crowded(trace) else (0, 1, 2, 8, 32)

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, 0)

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
    if not isinstance(event.prompt, PromptDraw) or not below(4, seed, SITE, "own prompt", index):
        return event
    blocks = 1 + below(BLOCKS_MAX, seed, SITE, "length", index)
    tokens = max(1, blocks * size + below(3, seed, SITE, "edge", index) - 1)
    fields: dict[str, object] = {}
    if trace.spec.handoff is None and below(3, seed, SITE, "ends with a block", index):
        tokens = max(1, blocks * size - 1 - below(SHORT_BY, seed, SITE, "short by", index))
        behind = BEHIND_BLOCKS[below(len(BEHIND_BLOCKS), seed, SITE, "behind blocks", index)]
        fields["max_tokens"] = blocks * size - tokens + behind
    part = min(tokens, size * (1 + below(blocks, seed, SITE, "common", index)))
    common = tokens if below(2, seed, SITE, "all", index) else part
    changed = event.model_copy(update={**fields, "prompt": PromptDraw(tokens=tokens, common=common)})
    return event if problems(trace.model_copy(update={"events": (changed,)})) else changed


def _around(event: Submit, index: int, trace: Trace, layout: Layout) -> Iterator[AnyEvent]:
    """Yield what happens to the transfers of a request, and perhaps to itself while they are in flight."""

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    transfer, handoff = trace.spec.transfer, trace.spec.handoff
    if layout == "branches":
        # What the prefix cache has is not loaded.
        yield ResetPrefixCache(tick=event.tick)
        return
    if (transfer or handoff) and pick("disturbed", 3):
        is_whole = transfer is not None and _may_lose_in_steps(transfer) and trace.spec.depth > 1
        is_whole |= is_calm(layout)
        is_of_a_step = transfer is not None and transfer.loads == "synchronous"
        of: Literal["load", "store"] = "load" if pick("of", 4) or is_calm(layout) else "store"
        hows = HOWS if of == "store" else WHOLE if is_whole else LOSING if is_of_a_step else HOWS
        yield DisturbTransfer(
            tick=event.tick + DISTURBED_AFTER[pick("disturbed after", len(DISTURBED_AFTER))],
            request=event.request,
            of=of,
            how=hows[pick("how", len(hows))],
            ticks=1 + pick("ticks", 6),
            block=pick("block", 3),
        )
    is_to_go_on = goes_on(layout, index)
    if is_calm(layout) and (index or not is_to_go_on):
        return
    if pick("aborted", 20) < (5 if transfer is None else 8) and not is_to_go_on:
        yield Abort(tick=event.tick + 1 + _until_abort(event, index, trace), request=event.request)
    is_preempted = pick("preempted", 3) < (2 if trace.spec.offloading is not None else 1)
    if not index if is_to_go_on else is_preempted:
        filled = -event.prompt_length % trace.spec.block_size
        # About when it has filled a block up, which is then stored, or whenever.
        is_filling = filled <= FILLED_MAX and (is_to_go_on or pick("as it fills up", 3))
        run = 1 + pick("tokens of a step", 1 + trace.spec.num_speculative_tokens)
        fills = steps_of(event.prompt_length, trace.spec) - 1 + filled // run
        behind = 1 + pick("preempt just behind", 3) if layout == "undisturbed" else pick("preempt behind", 5)
        after = fills + behind if is_filling else pick("preempt", 12)
        yield Preempt(tick=event.tick + 1 + after, request=event.request)
    if trace.spec.offloading is not None and trace.spec.prefix_cache and index and not pick("emptied", 2):
        # What the prefix cache has is not loaded. Who is preempted and loads at once ends a synchronous engine.
        yield ResetPrefixCache(tick=event.tick, running=trace.spec.depth > 1 and not pick("running", 2))
    if trace.spec.layers == "hybrid" and transfer and index and pick("forgotten", 3):
        # What comes behind is loaded, as far as it is not computed again beside.
        yield ResetPrefixCache(tick=event.tick)


def _until_abort(event: Submit, index: int, trace: Trace) -> int:
    """Return ticks behind the first one of a request: about when a load of its has come, or a store begun; or any."""

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    transfer, prompt = trace.spec.transfer, steps_of(event.prompt_length, trace.spec)
    if transfer is not None and transfer.stores == "asynchronous" and pick("with a store", 5) < 2:
        return prompt - 1 + pick("abort with a store", 1 + transfer.store_ticks)
    if pick("with a load", 3):
        return _load_ticks(trace.spec) + pick("abort with a load", 3)
    return pick("abort", 6)


def _load_ticks(spec: EngineSpec) -> int:
    """Return for how many ticks a request waits that begins with a load, at the least."""
    found = [each for each in (spec.transfer, spec.offloading, spec.handoff) if each is not None]
    return found[0].load_ticks + (spec.transfer.lookup_ticks if spec.transfer is not None else 0)
