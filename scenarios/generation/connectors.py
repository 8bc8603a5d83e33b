"""Situations of KV connectors: stores, offloading, producers, disturbed transfers.

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
from scenarios.generation.sessions import keep_sessions, session_with_tight_pool
from scenarios.generation.situation import Situation, event, situation, when
from scenarios.spec import EngineSpec, Handoff, Offloading, Transfer

# Numbers of blocks of a store: small stores evict, the last one holds all blocks.
STORES = (2, 4, 8, 64)
LATENCIES = (0, 1, 1, 2, 5)
STORE_LATENCIES = (0, 1, 2, 4, 8)
How = Literal["delay", "hasten", "drop", "fail", "repeat"]
HOWS: tuple[How, ...] = ("delay", "delay", "hasten", "drop", "fail", "fail", "repeat")
# Numbers of producer steps in successive ticks.
TURNS = ((1,), (1,), (2,), (1, 0), (2, 0, 1), (0, 0, 3))
# Disturbances of a synchronous load: mostly losses, after which the step's result must not be used.
LOSING: tuple[How, ...] = ("drop", "fail", "fail", "delay")
# Disturbances that lose no block.
WHOLE: tuple[How, ...] = ("delay", "hasten", "repeat")
# Ticks from a request's arrival to the disturbance of its transfers: mostly of its first transfers.
DISTURBED_AFTER = (0, 0, 0, 1, 2, 4, 8, 16)
# Ticks within which the first request has mostly stored the blocks that later requests load.
LATER_MAX = 24
# Maximum number of output tokens for which the tick that fills a prompt's last block is predicted.
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
    """Return whether a trace may get a KV connector; some features exclude one.

    These are wake-ups in parts, sessions in a tight pool, and CUDA graphs of hybrid models.
    """
    is_alone = trace.has_sampled(session_with_tight_pool.name) or any(isinstance(each, WakeUp) for each in trace.events)
    return not is_alone and not (trace.spec.layers == "hybrid" and trace.spec.graphs != "none")


def _kv_store_of_states(trace: TraceBuilder) -> None:
    """Add a KV store of blocks and recurrent states to a hybrid model, if possible."""
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
    """Connect a KV store of blocks and recurrent states to a hybrid model."""
    _kv_store_of_states(trace)


@situation(HAS_STORES, _DISTURBS, _STATES_INSIDE, stage="connector")
def hybrid_kv_store_hits_inside_blocks(trace: TraceBuilder) -> None:
    """Connect a KV store to a hybrid model with prefix-cache hits inside blocks."""
    _kv_store_of_states(trace)


@situation(HAS_HANDOFFS, _DISTURBS, _STATES, stage="connector", unless=("hybrid_kv_store",))
def hybrid_handoff(trace: TraceBuilder) -> None:
    """Let a producer compute the prompts of a hybrid model."""
    # With draft tokens each handed-over prompt would be padded, which is a known bug.
    trace.set(recurrent_layers="short_conv", num_speculative_tokens=0)
    _hand_over(trace)


@situation(HAS_STORES, _DISTURBS, _ATTENTION, stage="connector")
def kv_store(trace: TraceBuilder) -> None:
    """Connect a store of limited size to the KV cache through a KV connector."""
    prefix_cache = trace.spec.prefix_cache and trace.one_in(2, "prefix cache")
    transfer = _transfer(trace)
    trace.set(prefix_cache=prefix_cache, num_blocks=_num_blocks(trace.spec, transfer.failures))
    # With async scheduling, another step runs after the step with the lost load; with asynchronous stores, blocks that
    # the step lost are still being stored. So stores are synchronous, and mostly the depth is 1.
    if _recomputes_synchronous_loads(transfer):
        transfer = transfer.model_copy(update={"stores": "synchronous"})
        trace.set(**({"depth": 1} if trace.pick(3, "in turn") else {}))
    trace.set(transfer=transfer)
    _transfer_blocks(trace)


@situation(HAS_OFFLOADING, _ATTENTION, stage="connector")
def offloading(trace: TraceBuilder) -> None:
    """Offload blocks to host memory by the engine's own KV connector."""
    spec = trace.spec.model_copy(update={"prefix_cache": bool(trace.pick(2, "prefix cache"))})
    trace.spec = trace.spec if refusals(spec, ()) else spec
    trace.set(offloading=_offloading(trace, trace.spec.prefix_cache))
    is_simple = trace.spec.offloading is not None and trace.spec.offloading.connector == "simple"
    if is_simple and trace.spec.num_speculative_tokens and trace.engine.allows("drafter", "eagle"):
        # The EAGLE drafter's KV cache entry of a token depends on the next token.
        trace.set(drafter="eagle", draft_sampling="greedy")
    _transfer_blocks(trace)


@situation(HAS_HANDOFFS, _DISTURBS, _ATTENTION, stage="connector")
def handoff(trace: TraceBuilder) -> None:
    """Let a producer compute the prompts (disaggregated prefill), in a trace without sessions."""
    if not _has_session(trace):
        _hand_over(trace)


# In order of application: a trace gets at most one KV connector.
CONNECTORS: tuple[Situation[TraceBuilder], ...] = (
    hybrid_kv_store,
    hybrid_kv_store_hits_inside_blocks,
    hybrid_handoff,
    kv_store,
    offloading,
    handoff,
)


def _num_blocks(spec: EngineSpec, failures: str) -> int:
    """Return the number of KV-cache blocks; twice as many if lost blocks are recomputed."""
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


def _has_session(trace: TraceBuilder) -> bool:
    return any(each.session is not None for _, each in trace.every_submit())


def _recomputes_synchronous_loads(transfer: Transfer) -> bool:
    """Return whether loads are synchronous and lost blocks are recomputed."""
    return (transfer.loads, transfer.failures) == ("synchronous", "recompute")


def _layout_of(trace: TraceBuilder) -> Layout | None:
    """Return the layout of the requests of a trace with a KV connector, or None."""
    spec = trace.spec
    if spec.handoff is not None:
        return LAYOUTS[QUEUED] if trace.has_sampled(QUEUED) else None
    if spec.offloading is not None:
        layout = LAYOUTS.get(trace.choice(OF_OFFLOADING, "layout of offloading"))
        if spec.offloading.connector != "simple":
            return layout
        if spec.num_speculative_tokens and TRAITS[spec.drafter].is_shifted:
            return BRANCHES
        # The simple connector stores the blocks of the prefix cache, which earlier requests must have filled.
        return None if layout is not None and layout.is_calm else layout
    is_waited_for = spec.transfer is not None and spec.transfer.loads == "asynchronous"
    return LAYOUTS.get(trace.choice(OF_STORES, "layout of a store")) if is_waited_for else None


def _transfer_blocks(trace: TraceBuilder) -> None:
    """Give requests prompts of some blocks, and disturb the KV connector's transfers."""
    has_session = _has_session(trace)
    layout = None if has_session else _layout_of(trace)
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
        # The parts of a session keep their order.
        later = trace.pick(LATER_MAX, "later", index) if index and are_apart and each.session is None else 0
        submit = (
            _with_prompt(each.model_copy(update={"tick": each.tick + later}), index, trace)
            if layout is None
            else layout.placed(each, index, trace)
        )
        trace.events += [submit, *_around(submit, index, trace, layout)]
        index += 1
    if layout is not None:
        layout.make_pool(trace)
    if has_session:
        keep_sessions(trace)


def _make_room(trace: TraceBuilder) -> None:
    """Enlarge most KV caches for long prompts, and half of the token budgets for whole prompts."""
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
    # Without spare blocks the longest request just fits.
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
    """Return a request with a prompt of some blocks and a common prefix, if it fits.

    Most requests of an engine with a store end near a block end, with the last block filled by output tokens.
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
    """Yield events that disturb, abort or preempt a request during its block transfers."""

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    spec, is_calm = trace.spec, layout is not None and layout.is_calm
    if layout is BRANCHES:
        # Blocks in the prefix cache are not loaded: reset it.
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
        # Preempt at about the tick that fills a block, which is then stored, or at any time.
        is_filling = filled <= FILLED_MAX and (is_to_last or pick("as it fills up", 3))
        run = 1 + pick("tokens of a step", 1 + spec.num_speculative_tokens)
        fills = steps_of(submit.prompt_length, spec) - 1 + filled // run
        after = 1 + pick("preempt just behind", 3) if is_calm else pick("preempt behind", 5)
        yield Preempt(
            tick=submit.tick + 1 + (fills + after if is_filling else pick("preempt", 12)), request=submit.request
        )
    if spec.offloading is not None and spec.prefix_cache and index and not pick("emptied", 2):
        # Blocks in the prefix cache are not loaded: reset it. With synchronous scheduling, running requests are not
        # preempted: a request that then loads at once crashes the engine.
        yield ResetPrefixCache(tick=submit.tick, running=spec.depth > 1 and not pick("running", 2))
    if spec.layers == "hybrid" and spec.transfer and index and pick("forgotten", 3):
        # After the reset later requests load their blocks, unless another request has computed them again.
        yield ResetPrefixCache(tick=submit.tick)


def _disturbance(submit: Submit, index: int, trace: TraceBuilder, is_calm: bool) -> DisturbTransfer:
    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, index)

    transfer = trace.spec.transfer
    is_whole = is_calm or (transfer is not None and _recomputes_synchronous_loads(transfer) and trace.spec.depth > 1)
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
    """Return after how many ticks to abort: near a load's end, near a store's start, or random."""
    transfer, prompt = trace.spec.transfer, steps_of(submit.prompt_length, trace.spec)
    if transfer is not None and transfer.stores == "asynchronous" and trace.pick(5, "with a store", index) < 2:
        return prompt - 1 + trace.pick(1 + transfer.store_ticks, "abort with a store", index)
    if trace.pick(3, "with a load", index):
        return _load_ticks(trace.spec) + trace.pick(3, "abort with a load", index)
    return trace.pick(6, "abort", index)


def _load_ticks(spec: EngineSpec) -> int:
    """Return the minimum number of ticks that the first load of a request takes."""
    found = [each for each in (spec.transfer, spec.offloading, spec.handoff) if each is not None]
    return found[0].load_ticks + (spec.transfer.lookup_ticks if spec.transfer is not None else 0)
