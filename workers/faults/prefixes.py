"""Prefix-cache faults: lookup, registration, references."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from workers.engine.functions import EngineFunctions
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import Request
from workers.faults.fault import Reached, fault, in_place_of

CACHED = (("prefix_cache", True), ("layers", "attention"), ("drafter", "eagle"))


@fault(
    id="specstorm-losses-kept",
    source="made up: a cache reset that only forgets hashes",
    symptom="blocks keep the KV words of tokens from before a cache reset",
    trigger="a reset of the prefix cache loses blocks",
    plane="kv",
    requires=CACHED,
)
@in_place_of("blocks_still_lost")
def _lost_blocks_are_kept(
    functions: EngineFunctions, reached: Reached, earlier: Sequence[int], lost: Sequence[int]
) -> list[int]:
    if lost:
        reached()
    return []


@fault(
    id="specstorm-forgotten-parent",
    source="derived from inference-sim issue #196, where blocks after a chunk ignore the tokens before it",
    symptom="a block is found for a prefix that it was not computed for, or not cached for its own",
    trigger="equal blocks follow different prefixes",
    plane="prefix",
    requires=CACHED,
)
def _parent_is_forgotten(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    """Fault: the hash of a KV block does not include the tokens before the block.

    Reached if equal blocks follow different parent blocks.
    """
    parents: dict[int, int] = {}

    def block_hash(parent: int, tokens: Iterable[int]) -> int:
        found = functions.block_hash(0, tokens)
        if parents.setdefault(found, parent) != parent:
            reached()
        return found

    return replace(functions, block_hash=block_hash)


@fault(
    id="sglang-10846-last-match",
    source="sglang PR #10846, vllm PR #50438",
    symptom="a drafter continues from a KV entry that was computed for another continuation",
    trigger="a prompt has a prefix-cache hit of at least one block",
    plane="books",
    requires=CACHED,
)
@in_place_of("usable_hits")
def _last_match_is_used(functions: EngineFunctions, reached: Reached, blocks: list[int]) -> list[int]:
    if blocks:
        reached()
    return blocks


@fault(
    id="sglang-22897-overshoot",
    source="sglang PR #22897",
    symptom="prefix-cache blocks are found by tokens that were never delivered",
    trigger="a request ends inside accepted draft tokens that fill a block after the end",
    plane="prefix",
    requires=CACHED,
)
@in_place_of("tokens_to_cache")
def _overshoot_is_cached(
    functions: EngineFunctions, reached: Reached, request: Request, cut: Sequence[int]
) -> list[int]:
    if cut:
        reached()
    return [*functions.tokens_to_cache(request, cut), *cut]


@fault(
    id="vllm-54288-last-token",
    source="vllm issue #54193, PR #54288",
    symptom="a prefix-cache block has a last KV entry of a rejected draft token, or none",
    trigger="the last token of a request fills a block",
    plane="prefix",
    requires=CACHED,
)
@in_place_of("num_cacheable")
def _last_token_is_cached(functions: EngineFunctions, reached: Reached, num_tokens: int, num_computed: int) -> int:
    if num_computed >= num_tokens:
        reached()
    return min(num_computed, num_tokens)


@fault(
    id="xllm-1146-references",
    source="xllm PR #1146",
    symptom="blocks keep references without an owner and are never released",
    trigger="a waiting request has a prefix-cache hit, and there are too few other blocks",
    plane="blocks",
    requires=CACHED,
)
@in_place_of("take_blocks")
def _references_are_kept(
    functions: EngineFunctions, reached: Reached, pool: CachingPool, shared: Sequence[int], count: int
) -> tuple[int, ...] | None:
    if shared and not pool.has_room(shared, count):
        reached()
    pool.share(shared)
    return pool.take(count)
