"""Situations of KV connectors: a store or a producer of prompts, and what happens to transfers of KV cache blocks.

Requests meet in a pool or a store that is just too small for them as a *layout* says (`connector_layouts.py`).
"""

from collections.abc import Iterator
from typing import Literal

from scenarios.drafters import TRAITS
from scenarios.events import Abort, AnyEvent, DisturbTransfer, Preempt, PromptDraw, ResetPrefixCache, Submit, WakeUp
from scenarios.features import refusals
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.connector_layouts import (
    AFTER_BLOCKS,
    BLOCKS_MAX,
    BRANCHES,
    HAS_HANDOFFS,
    HAS_OFFLOADING,
    HAS_STORES,
    LAYOUTS,
    OF_OFFLOADING,
    OF_STORES,
    QUEUED,
    SHORT_BY,
    Layout,
    crowd,
    steps_of,
)
from scenarios.generation.situation import Situation, event, situation, when
from scenarios.spec import EngineSpec, Handoff, Offloading, Transfer

# Small stores evict; the last one has room for all.
STORES = (2, 4, 8, 64)
LATENCIES = (0, 1, 1, 2, 5)
STORE_LATENCIES = (0, 1, 2, 4, 8)
How = Literal["delay", "hasten", "drop", "fail", "repeat"]
HOWS: tuple[How, ...] = ("delay", "delay", "hasten", "drop", "fail", "fail", "repeat")
# Steps of a producer in one tick after the other.
TURNS = ((1,), (1,), (2,), (1, 0), (2, 0, 1), (0, 0, 3))
# Mostly for a load that is part of a step: where that step comes back it must not be continued.
LOSING: tuple[How, ...] = ("drop", "fail", "fail", "delay")
# Without loss of a load.
WHOLE: tuple[How, ...] = ("delay", "hasten", "repeat")
# Ticks after a request's arrival in which its transfers are disturbed: mostly those that it begins with.
DISTURBED_AFTER = (0, 0, 0, 1, 2, 4, 8, 16)
# Ticks in which the first request has mostly stored what the next ones load.
LATER_MAX = 24
# The most ticks for which it can be predicted when the last block of a prompt is full.
FILLED_MAX = 20

_DISTURBS = event("disturb_transfer")
_ATTENTION = when(
    "no recurrent layers, no connector yet", lambda spec: spec.layers != "hybrid" and not spec.has_connector
)
_STATES = when(
    "layers hybrid, no connector yet, no match_tokens",
    lambda spec: spec.layers == "hybrid" and not spec.has_connector and not spec.match_tokens,
)
_STATES_INSIDE = when("layers hybrid, match_tokens", lambda spec: spec.layers == "hybrid" and spec.match_tokens > 0)


def may_have_connector(trace: TraceBuilder) -> bool:
    """Return whether a trace may have a connector: without sessions, wake-ups in parts, or graphs of states."""
    is_alone = any(isinstance(each, WakeUp) or getattr(each, "session", None) is not None for each in trace.events)
    return not is_alone and not (trace.spec.layers == "hybrid" and trace.spec.graphs != "none")


def _kv_store_of_states(trace: TraceBuilder) -> None:
    """Store the states of a hybrid model, too, if it may have cached prefixes."""
    transfer = _transfer(trace).model_copy(update={"loads": "asynchronous"})
    before = trace.spec
    trace.set(prefix_cache=True, recurrent_cache="align", recurrent_layers="short_conv", transfer=transfer)
    trace.set(num_blocks=_num_blocks(before, transfer.failures))
    if refusals(trace.spec, ()):
        trace.spec = before
    else:
        _transfer_blocks(trace)


@situation(HAS_STORES, _DISTURBS, _STATES, stage="connector")
def hybrid_kv_store(trace: TraceBuilder) -> None:
    """Connect a store of blocks and states to a hybrid model."""
    _kv_store_of_states(trace)


@situation(HAS_STORES, _DISTURBS, _STATES_INSIDE, stage="connector")
def hybrid_kv_store_hits_inside_blocks(trace: TraceBuilder) -> None:
    """Connect a store to a hybrid model with prefix-cache hits inside blocks."""
    _kv_store_of_states(trace)


@situation(HAS_HANDOFFS, _DISTURBS, _STATES, stage="connector", unless=("hybrid_kv_store",))
def hybrid_handoff(trace: TraceBuilder) -> None:
    """Let a producer compute the prompts of a hybrid model."""
    # With drafts each of its prompts is padded, which is known.
    trace.set(recurrent_layers="short_conv", num_speculative_tokens=0)
    _hand_over(trace)


@situation(HAS_STORES, _DISTURBS, _ATTENTION, stage="connector")
def kv_store(trace: TraceBuilder) -> None:
    """Connect a bounded store of blocks to the KV cache."""
    prefix_cache = trace.spec.prefix_cache and trace.one_in(2, "prefix cache")
    transfer = _transfer(trace)
    trace.set(prefix_cache=prefix_cache, num_blocks=_num_blocks(trace.spec, transfer.failures))
    # A step that waits in vain for what is computed again has others after it where steps overlap, and stores of
    # what it lost where these take longer than it.
    if _may_lose_in_steps(transfer):
        transfer = transfer.model_copy(update={"stores": "synchronous"})
        trace.set(**({"depth": 1} if trace.pick(3, "in turn") else {}))
    trace.set(transfer=transfer)
    _transfer_blocks(trace)


@situation(HAS_OFFLOADING, _ATTENTION, stage="connector")
def offloading(trace: TraceBuilder) -> None:
    """Offload blocks to the host's memory by the engine's own connector."""
    spec = trace.spec.model_copy(update={"prefix_cache": bool(trace.pick(2, "prefix cache"))})
    trace.spec = trace.spec if refusals(spec, ()) else spec
    trace.set(offloading=_offloading(trace, trace.spec.prefix_cache))
    is_simple = trace.spec.offloading is not None and trace.spec.offloading.connector == "simple"
    if is_simple and trace.spec.num_speculative_tokens and trace.engine.allows("drafter", "eagle"):
        # What it keeps in a block depends on the next token.
        trace.set(drafter="eagle", draft_sampling="greedy")
    _transfer_blocks(trace)


@situation(HAS_HANDOFFS, _DISTURBS, _ATTENTION, stage="connector")
def handoff(trace: TraceBuilder) -> None:
    """Let a producer compute the prompts."""
    _hand_over(trace)


# In their order: a trace has at most one connector.
CONNECTORS: tuple[Situation[TraceBuilder], ...] = (
    hybrid_kv_store,
    hybrid_kv_store_hits_inside_blocks,
    hybrid_handoff,
    kv_store,
    offloading,
    handoff,
)


def _num_blocks(spec: EngineSpec, failures: str) -> int:
    """Return blocks for requests that may need room twice, where what is lost is computed again."""
    return spec.num_blocks if failures == "fail" else 2 * spec.num_blocks + 2


def _hand_over(trace: TraceBuilder) -> None:
    is_crowded = trace.has(QUEUED)
    if is_crowded:
        crowd(trace)
    handoff = _handoff(trace, is_crowded)
    prefix_cache = trace.spec.prefix_cache and trace.one_in(2, "prefix cache")
    num_blocks = _num_blocks(trace.spec, handoff.failures)
    trace.set(handoff=handoff, prefix_cache=prefix_cache, num_blocks=num_blocks)
    _transfer_blocks(trace)


def _may_lose_in_steps(transfer: Transfer) -> bool:
    """Return whether loads are part of steps, and computed again if they are lost."""
    return (transfer.loads, transfer.failures) == ("synchronous", "recompute")


def _layout_of(trace: TraceBuilder) -> Layout | None:
    """Return how the requests of a trace with a connector meet; None if in no certain way."""
    spec = trace.spec
    if spec.handoff is not None:
        return LAYOUTS[QUEUED] if trace.has_sampled(QUEUED) else None
    if spec.offloading is not None:
        layout = LAYOUTS.get(trace.choice(OF_OFFLOADING, "layout of offloading"))
        if spec.offloading.connector != "simple":
            return layout
        if spec.num_speculative_tokens and TRAITS[spec.drafter].is_shifted:
            return BRANCHES
        # It stores what a prefix cache has, which others have left there.
        return None if layout is not None and layout.is_calm else layout
    is_waited_for = spec.transfer is not None and spec.transfer.loads == "asynchronous"
    return LAYOUTS.get(trace.choice(OF_STORES, "layout of a store")) if is_waited_for else None


def _transfer_blocks(trace: TraceBuilder) -> None:
    """Give prompts of some blocks to the requests of an engine with a connector, and disturb its transfers."""
    layout = _layout_of(trace)
    _make_room(trace)
    if layout is not None:
        layout.arrange(trace)
        trace.note(layout.name)
    are_apart = trace.pick(3, "apart")
    events, index, names = trace.events, 0, set[str]()
    trace.events = []
    for each in events:
        if not isinstance(each, Submit):
            trace.events += [] if layout is not None and layout.is_calm else [each]
            continue
        if layout is not None and layout.is_calm:
            if each.request in names or not isinstance(each.prompt, PromptDraw):
                continue
            names.add(each.request)
        later = trace.pick(LATER_MAX, "later", index) if index and are_apart else 0
        submit = (
            _with_prompt(each.model_copy(update={"tick": each.tick + later}), index, trace)
            if layout is None
            else layout.placed(each, index, trace)
        )
        trace.events += [submit, *_around(submit, index, trace, layout)]
        index += 1
    if layout is not None:
        layout.make_pool(trace)


def _make_room(trace: TraceBuilder) -> None:
    """Make room for requests of some blocks, which are computed in a step in one trace of two."""
    spec = trace.spec
    if trace.pick(4, "room") and spec.handoff is None:
        blocks = BLOCKS_MAX + 1
        trace.at_least(max_model_len=blocks * spec.block_size, num_blocks=blocks + trace.pick(3, "spare"))
    if trace.pick(2, "whole prompts"):
        trace.at_least(max_num_batched_tokens=BLOCKS_MAX * spec.block_size)


def _transfer(trace: TraceBuilder) -> Transfer:
    return Transfer(
        store_blocks=STORES[trace.pick(len(STORES), "blocks")],
        loads=("asynchronous", "synchronous")[trace.pick(2, "loads")],
        stores=("asynchronous", "asynchronous", "synchronous")[trace.pick(3, "stores")],
        load_ticks=LATENCIES[trace.pick(len(LATENCIES), "load ticks")],
        store_ticks=STORE_LATENCIES[trace.pick(len(STORE_LATENCIES), "store ticks")],
        lookup_ticks=(0, 0, 1, 3)[trace.pick(4, "lookup")],
        timeout_ticks=(2, 8)[trace.pick(2, "timeout")],
        failures=("recompute", "recompute", "fail")[trace.pick(3, "failures")],
    )


def _offloading(trace: TraceBuilder, has_prefix_cache: bool) -> Offloading:
    chunks, ticks = STORES[trace.pick(len(STORES), "blocks")], LATENCIES[trace.pick(len(LATENCIES), "simple ticks")]
    if has_prefix_cache and trace.pick(5, "simple") < 3:
        load_ticks = trace.pick(3, "load ticks")
        return Offloading(connector="simple", chunks=chunks, load_ticks=load_ticks, store_ticks=ticks)
    return Offloading(
        chunks=chunks,
        blocks_per_chunk=(1, 1, 2, 3)[trace.pick(4, "blocks of a chunk")],
        eviction=("lru", "arc")[trace.pick(2, "eviction")],
        stored=("all", "all", "prompts")[trace.pick(3, "stored")],
        load_ticks=LATENCIES[trace.pick(len(LATENCIES), "load ticks")],
        store_ticks=STORE_LATENCIES[trace.pick(len(STORE_LATENCIES), "store ticks")],
    )


def _handoff(trace: TraceBuilder, is_crowded: bool) -> Handoff:
    # In some pools the longest request has just room.
    spare = (0, 0, 0, 1, 2) if is_crowded else (0, 1, 2, 8, 32)
    return Handoff(
        producer_blocks=trace.spec.max_blocks_per_request + spare[trace.pick(5, "producer's blocks")],
        turns=TURNS[trace.pick(len(TURNS), "turns")],
        lease_ticks=(2, 8, 32)[trace.pick(3, "lease")],
        load_ticks=LATENCIES[trace.pick(len(LATENCIES), "load ticks")],
        timeout_ticks=(2, 8)[trace.pick(2, "timeout")],
        failures=("recompute", "recompute", "fail")[trace.pick(3, "failures")],
    )


def _with_prompt(submit: Submit, index: int, trace: TraceBuilder) -> Submit:
    """Return a request with a prompt of some blocks that begins as all do, where such a prompt fits.

    Most of those that are stored end with their last block, which a prompt leaves to be filled up.
    """
    size = trace.spec.block_size
    if not isinstance(submit.prompt, PromptDraw) or trace.one_in(4, "own prompt", index):
        return submit
    blocks = 1 + trace.pick(BLOCKS_MAX, "length", index)
    tokens = max(1, blocks * size + trace.pick(3, "edge", index) - 1)
    fields: dict[str, object] = {}
    if trace.spec.handoff is None and trace.pick(3, "ends with a block", index):
        tokens = max(1, blocks * size - 1 - trace.pick(SHORT_BY, "short by", index))
        after = AFTER_BLOCKS[trace.pick(len(AFTER_BLOCKS), "behind blocks", index)]
        fields["max_tokens"] = blocks * size - tokens + after
    part = min(tokens, size * (1 + trace.pick(blocks, "common", index)))
    common = tokens if trace.pick(2, "all", index) else part
    changed = submit.model_copy(update={**fields, "prompt": PromptDraw(tokens=tokens, common=common)})
    return changed if trace.is_valid(changed) else submit


def _around(submit: Submit, index: int, trace: TraceBuilder, layout: Layout | None) -> Iterator[AnyEvent]:
    """Yield what happens to the transfers of a request, and perhaps to itself while they are in flight."""

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    spec, is_calm = trace.spec, layout is not None and layout.is_calm
    if layout is BRANCHES:
        # What the prefix cache has is not loaded.
        yield ResetPrefixCache(tick=submit.tick)
        return
    if (spec.transfer or spec.handoff) and pick("disturbed", 3):
        yield _disturbance(submit, index, trace, is_calm)
    is_to_last = layout is not None and layout.keeps_first and index < 2
    if is_calm and (index or not is_to_last):
        return
    if pick("aborted", 20) < (5 if spec.transfer is None else 8) and not is_to_last:
        yield Abort(tick=submit.tick + 1 + _until_abort(submit, index, trace), request=submit.request)
    is_preempted = pick("preempted", 3) < (2 if spec.offloading is not None else 1)
    if not index if is_to_last else is_preempted:
        filled = -submit.prompt_length % spec.block_size
        # About when it has filled a block up, which is then stored, or at any time.
        is_filling = filled <= FILLED_MAX and (is_to_last or pick("as it fills up", 3))
        run = 1 + pick("tokens of a step", 1 + spec.num_speculative_tokens)
        fills = steps_of(submit.prompt_length, spec) - 1 + filled // run
        after = 1 + pick("preempt just behind", 3) if is_calm else pick("preempt behind", 5)
        yield Preempt(
            tick=submit.tick + 1 + (fills + after if is_filling else pick("preempt", 12)), request=submit.request
        )
    if spec.offloading is not None and spec.prefix_cache and index and not pick("emptied", 2):
        # What the prefix cache has is not loaded. A request that is preempted and loads at once ends a synchronous
        # engine.
        yield ResetPrefixCache(tick=submit.tick, running=spec.depth > 1 and not pick("running", 2))
    if spec.layers == "hybrid" and spec.transfer and index and pick("forgotten", 3):
        # What comes after is loaded, as far as it is not computed again.
        yield ResetPrefixCache(tick=submit.tick)


def _disturbance(submit: Submit, index: int, trace: TraceBuilder, is_calm: bool) -> DisturbTransfer:
    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    transfer = trace.spec.transfer
    is_whole = is_calm or (transfer is not None and _may_lose_in_steps(transfer) and trace.spec.depth > 1)
    is_of_a_step = transfer is not None and transfer.loads == "synchronous"
    of: Literal["load", "store"] = "load" if pick("of", 4) or is_calm else "store"
    hows = HOWS if of == "store" else WHOLE if is_whole else LOSING if is_of_a_step else HOWS
    return DisturbTransfer(
        tick=submit.tick + DISTURBED_AFTER[pick("disturbed after", len(DISTURBED_AFTER))],
        request=submit.request,
        of=of,
        how=hows[pick("how", len(hows))],
        ticks=1 + pick("ticks", 6),
        block=pick("block", 3),
    )


def _until_abort(submit: Submit, index: int, trace: TraceBuilder) -> int:
    """Return ticks after the first one of a request: about when a load of it has come, or a store begun; or any."""
    transfer, prompt = trace.spec.transfer, steps_of(submit.prompt_length, trace.spec)
    if transfer is not None and transfer.stores == "asynchronous" and trace.pick(5, "with a store", index) < 2:
        return prompt - 1 + trace.pick(1 + transfer.store_ticks, "abort with a store", index)
    if trace.pick(3, "with a load", index):
        return _load_ticks(trace.spec) + trace.pick(3, "abort with a load", index)
    return trace.pick(6, "abort", index)


def _load_ticks(spec: EngineSpec) -> int:
    """Return for how many ticks a request waits that begins with a load, at the least."""
    found = [each for each in (spec.transfer, spec.offloading, spec.handoff) if each is not None]
    return found[0].load_ticks + (spec.transfer.lookup_ticks if spec.transfer is not None else 0)
