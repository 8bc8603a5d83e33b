"""Layouts of random traces with transfers: requests that meet in a pool or a store that is just too small for them.

Every draw is labelled by the trace's seed and its subject.
"""

from typing import Literal, TypeAlias

from scenarios.drafters import TRAITS
from scenarios.draw import below
from scenarios.events import PromptDraw, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems

SITE = "transfer"
# One request goes on beside short ones, whose chunks evict its own, perhaps with nothing else that happens; the pool of
# blocks has room for one request after the other; the short ones come while a producer reads a long one; one after the
# other they part behind whole blocks; or none of these.
Layout: TypeAlias = Literal["beside one", "undisturbed", "in turn", "behind one", "branches", "any"]
_ONE: tuple[Layout, ...] = ("beside one", "undisturbed", "undisturbed", "undisturbed")
OFFLOADED: tuple[Layout, ...] = (*_ONE, "in turn", "undisturbed", "in turn", "any", "any", "any")
STORED: tuple[Layout, ...] = ("in turn", "any", "any", "any")
# Of this store nobody meets the end.
STORE_OF_ALL = 64
# Blocks of a prompt.
BLOCKS_MAX = 4
# Tokens by which a prompt is shorter than whole blocks that its output fills up.
SHORT_BY = 8
# Tokens behind the end of these blocks: the last one delivered is not computed, and drafts may pass the end.
BEHIND_BLOCKS = (0, 1, 1, 2)


def layout_of(trace: Trace) -> Layout:
    """Return how the requests of a trace with transfers meet."""
    spec, seed = trace.spec, trace.seed
    if spec.handoff is not None:
        return "behind one" if is_crowded(trace) else "any"
    if spec.offloading is not None:
        chosen = OFFLOADED[below(len(OFFLOADED), seed, SITE, "layout", 0)]
        if spec.offloading.connector != "simple":
            return chosen
        if spec.num_speculative_tokens and TRAITS[spec.drafter].is_shifted:
            return "branches"
        # It stores what a prefix cache has, which others have left there.
        return "any" if is_calm(chosen) else chosen
    is_waited_for = spec.transfer is not None and spec.transfer.loads == "asynchronous"
    return STORED[below(len(STORED), seed, SITE, "layout", 0)] if is_waited_for else "any"


def is_crowded(trace: Trace) -> bool:
    """Tell whether a producer has little room for the prompts of a trace."""
    return below(3, trace.seed, SITE, "crowded", 0) > 0


def crowded(trace: Trace) -> Trace:
    """Return a trace of which a producer has little room and computes long prompts by chunks."""
    spec, seed = trace.spec, trace.seed
    longest = max((spec.blocks_needed(each.prompt_length, 1) for each in trace.submits()), default=1)
    length = spec.block_size * max(longest, 3 + below(3, seed, SITE, "longest", 0))
    chunk = spec.block_size + below(spec.block_size, seed, SITE, "chunk", 0)
    keys = {
        "max_model_len": length,
        "num_blocks": max(spec.num_blocks, length // spec.block_size),
        "long_prefill_token_threshold": min(chunk, length),
        "max_num_batched_tokens": max(spec.max_num_batched_tokens, 3 * spec.block_size),
        "max_num_seqs": max(spec.max_num_seqs, 4),
    }
    return trace.model_copy(update={"spec": spec.model_copy(update=keys)})


def goes_on(layout: Layout, index: int) -> bool:
    """Tell whether a request, of so many before it, goes on beside short ones."""
    return layout in _ONE and index < 2


def arranged(trace: Trace, layout: Layout) -> Trace:
    """Return a trace whose engine is one for a layout, but for its pool of blocks."""
    spec, seed = trace.spec, trace.seed

    def pick(what: str, bound: int) -> int:
        return below(bound, seed, SITE, what, 0)

    if layout in _ONE and spec.offloading is not None:
        pool: dict[str, object] = {"chunks": 3 + pick("chunks beside one", 2), "blocks_per_chunk": 1, "stored": "all"}
        keys: dict[str, object] = {}
        if layout == "undisturbed":
            # It is known when the last chunk of the first request is stored, and whoever is preempted loads.
            pool |= {"chunks": 3, "eviction": "lru", "load_ticks": 0, "store_ticks": 3 + pick("store beside one", 2)}
            keys = _undrafted(spec)
        spec = spec.model_copy(update={**keys, "offloading": spec.offloading.model_copy(update=pool)})
    elif layout == "branches":
        assert spec.offloading is not None, "they part in a store"
        length = max(spec.max_model_len, (BLOCKS_MAX + 1) * spec.block_size)
        pool = {"chunks": STORE_OF_ALL, "store_ticks": min(1, spec.offloading.store_ticks)}
        keys = {"max_model_len": length, "num_blocks": max(spec.num_blocks, 2 * -(-length // spec.block_size))}
        spec = spec.model_copy(update={**keys, "offloading": spec.offloading.model_copy(update=pool)})
    elif layout == "in turn":
        most = max(spec.max_num_batched_tokens, BLOCKS_MAX * spec.block_size)
        length = max(spec.max_model_len, (BLOCKS_MAX + 1) * spec.block_size)
        keys = {"max_num_batched_tokens": most, "max_num_seqs": max(spec.max_num_seqs, 3), "max_model_len": length}
        keys["num_blocks"] = max(spec.num_blocks, -(-length // spec.block_size))
        # What others have left is loaded.
        keys["prefix_cache"] = False
        if spec.transfer is not None:
            keys["transfer"] = spec.transfer.model_copy(update={"store_blocks": STORE_OF_ALL})
        if spec.offloading is not None:
            pool = {"chunks": STORE_OF_ALL, **({"blocks_per_chunk": 1} if pick("chunks of a block", 4) else {})}
            pool["store_ticks"] = max(1, spec.offloading.store_ticks)
            keys["offloading"] = spec.offloading.model_copy(update=pool)
        spec = spec.model_copy(update=keys)
    return trace.model_copy(update={"spec": spec})


def _undrafted(spec: EngineSpec) -> dict[str, object]:
    """Return keys of an engine whose steps overlap, a prompt in one of them, a token of each request in the next."""
    keys = {key: EngineSpec.model_fields[key].default for key in ("drafter", "draft_sampling", "policy")}
    most = max(spec.max_num_batched_tokens, 2 * BLOCKS_MAX * spec.block_size)
    rows, num_blocks = max(spec.max_num_seqs, 5), max(spec.num_blocks, 3 * BLOCKS_MAX)
    keys |= {"num_speculative_tokens": 0, "long_prefill_token_threshold": 0, "max_num_batched_tokens": most}
    keys["max_model_len"] = max(spec.max_model_len, (BLOCKS_MAX + 1) * spec.block_size)
    return {**keys, "depth": 2, "prefix_cache": False, "max_num_seqs": rows, "num_blocks": num_blocks}


def is_calm(layout: Layout) -> bool:
    """Tell whether nothing happens in a layout but what meets in it."""
    return layout in ("undisturbed", "in turn", "branches")


def first_of_their_names(trace: Trace) -> tuple[Submit, ...]:
    """Return the submits of a trace with prompts of their own, of each name the first one."""
    own = [submit for submit in trace.submits() if isinstance(submit.prompt, PromptDraw)]
    return tuple({submit.request: submit for submit in reversed(own)}.values())[::-1]


def placed(event: Submit, index: int, trace: Trace, layout: Layout) -> Submit:
    """Return a request, of so many before it, with the prompt, the output and the tick that it has in a layout."""
    fields = _FIELDS[layout](index, trace)
    tick = fields.pop("tick")
    assert isinstance(tick, int), "it is a number"
    changed = event.model_copy(update={**fields, "tick": tick, "stop": ()})
    is_drawn = isinstance(event.prompt, PromptDraw)
    return changed if is_drawn and not problems(trace.model_copy(update={"events": (changed,)})) else event


def _beside_one(index: int, trace: Trace) -> dict[str, object]:
    """Return a prompt that an output fills up to the end of a block for the first request, short ones for the others.

    So of what is stored of the first some blocks are used again, and others make room for its last. The second one has
    a prompt of its own and goes on as long, so that steps overlap.
    """

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    size = trace.spec.block_size
    short_by = min(size, 6 + pick("short of the last", 14))
    tokens = size + 1 + pick("short", 8) if index else 3 * size - short_by
    is_own = index == 1 or (index > 1 and not pick("shared", 3))
    return {
        "prompt": PromptDraw(tokens=tokens, common=0 if is_own else tokens),
        "max_tokens": 1 + pick("few", 4) if index > 1 else short_by + 4 + pick("behind the last", 8),
        "tick": 1 + pick("beside", 10) if index > 1 else index * pick("second", 2),
    }


def _undisturbed(index: int, trace: Trace) -> dict[str, object]:
    """Return the same so that all short prompts are loaded in part before the last chunk of the first is stored."""

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

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


def _behind_one(index: int, trace: Trace) -> dict[str, object]:
    """Return as long a prompt as fits for the first request, short ones for the others, which come while that is read.

    So a producer has no room for the next chunk of the first, with others behind it in flight. Who is alone is computed
    in whole steps: the second one comes with it.
    """

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    size, longest = trace.spec.block_size, trace.spec.max_model_len
    tokens = 1 + pick("short", size + 4) if index else longest - 2 - pick("short of the longest", size)
    return {
        "prompt": PromptDraw(tokens=max(1, tokens), common=0),
        "max_tokens": 1 + pick("few", 6),
        "tick": pick("behind one", steps_of(longest, trace.spec)) if index > 1 else 0,
    }


def _in_turn(index: int, trace: Trace) -> dict[str, object]:
    """Return a prompt of some blocks, most of them the second one's, that its output fills up.

    Others begin as the first does, of which they load a part: there is room for what two of them load, but not for what
    either has behind it. Or nobody has anything in common, and takes all blocks of who ends.
    """

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    size = trace.spec.block_size
    blocks = BLOCKS_MAX if index == 1 else 2 + pick("blocks in turn", BLOCKS_MAX - 2)
    tokens = max(1, blocks * size - 1 - pick("short by", SHORT_BY))
    is_shared = trace.spec.offloading is None or not below(3, trace.seed, SITE, "shared in turn", 0)
    common = (size * (1 + pick("common in turn", 2)) if index else tokens) if is_shared else 0
    behind = BEHIND_BLOCKS[pick("behind blocks", len(BEHIND_BLOCKS))]
    return {
        "prompt": PromptDraw(tokens=tokens, common=min(tokens, common)),
        "max_tokens": blocks * size - tokens + (min(behind, 1) if index == 1 else behind),
        "tick": index + pick("together", 2),
    }


def _branches(index: int, trace: Trace) -> dict[str, object]:
    """Return a prompt that begins with some whole blocks of the first one, when those before it have ended."""

    def pick(what: str, bound: int) -> int:
        return below(bound, trace.seed, SITE, what, index)

    size = trace.spec.block_size
    longest = BLOCKS_MAX * size
    common = size * (1 + pick("blocks of a branch", 2)) if index else longest - pick("short of a branch", size)
    return {
        "prompt": PromptDraw(tokens=common + (1 + pick("own of a branch", 8) if index else 0), common=common),
        "max_tokens": 2 + pick("output of a branch", 8),
        "tick": index * (steps_of(longest, trace.spec) + 16),
    }


_FIELDS = {
    "beside one": _beside_one,
    "undisturbed": _undisturbed,
    "behind one": _behind_one,
    "in turn": _in_turn,
    "branches": _branches,
}


def with_a_pool(trace: Trace, layout: Layout) -> Trace:
    """Return a trace with a pool of blocks for its requests: those in turn have room for the longest one."""
    spec, submits = trace.spec, trace.submits()
    if layout != "in turn" or not submits:
        return trace
    # The last token is computed by nobody.
    longest = max(spec.length_limit(each.prompt_length, each.max_tokens) - 1 for each in submits)
    num_blocks = -(-longest // spec.block_size)
    keys = {"max_model_len": num_blocks * spec.block_size, "num_blocks": num_blocks}
    return trace.model_copy(update={"spec": spec.model_copy(update=keys)})


def steps_of(tokens: int, spec: EngineSpec) -> int:
    """Return how many steps so many tokens of a prompt take if nobody else has a share of them."""
    most = spec.max_num_batched_tokens
    return -(-tokens // min(most, spec.long_prefill_token_threshold or most))
