"""Situations of sizes, at most one per trace: chunks, max_model_len, small KV caches.

Random traces are generated for small blocks and then rescaled, after which chunks, lengths and pools are no longer
exactly large enough. These situations choose the sizes again for an engine's block size.
"""

from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import ATTENTION, RUNS, Situation, situation

# Maximum number of prefill chunks of a prompt.
CHUNKS_MAX = 16
# Ticks from a request's arrival within which it mostly ends.
TURN_AFTER = 24


@situation(stage="size")
def chunks_up_to_a_run(trace: TraceBuilder) -> None:
    """Limit prefill chunks to K + 1 tokens, as many as a step verifies."""
    chunk = 1 + trace.pick(1 + trace.spec.num_speculative_tokens, "chunk")
    trace.set(long_prefill_token_threshold=chunk)
    for index, submit in trace.submits():
        trace.lengthen(index, min(submit.prompt_length, CHUNKS_MAX * chunk))


@situation(stage="size")
def drafts_up_to_max_model_len(trace: TraceBuilder) -> None:
    """Set max_model_len K + 1 tokens after a block end, and end most prompts near it.

    1 of 2 traces has a prefix cache.
    """
    run = 1 + trace.spec.num_speculative_tokens
    length = trace.spec.block_size * (1 + trace.pick(3, "blocks")) + run
    trace.set(max_model_len=length)
    trace.at_least(num_blocks=-(-length // trace.spec.block_size))
    if trace.one_in(2, "end cached"):
        trace.cache_prefixes()
    for index, submit in trace.submits():
        if trace.pick(3, "at the end", index):
            tokens = max(1, length - 1 - trace.pick(1 + run, "before the end", index))
            trace.lengthen(index, tokens, tokens if trace.spec.prefix_cache else None)
        else:
            trace.lengthen(index, min(length - 1, submit.prompt_length))


@situation(stage="size")
def outgrown_pool(trace: TraceBuilder) -> None:
    """Size the KV cache so that several prompts fit together, but not with their outputs.

    1 of 2 traces has priorities.
    Prompts end up to 8 tokens before a block end, and all outputs pass it.
    """
    block, blocks = trace.spec.block_size, 1 + trace.pick(2, "blocks of prompts")
    num_blocks = max(2 * blocks, blocks + 1) + trace.pick(2, "spare")
    trace.set(num_blocks=num_blocks, max_model_len=block * (blocks + 1))
    trace.at_least(max_num_seqs=2, max_num_batched_tokens=block)
    is_urgent = trace.one_in(2, "urgent")
    if is_urgent:
        trace.set_if_allowed(policy="priority")
    submits = trace.submits()
    for index, submit in submits:
        trace.lengthen(index, blocks * block - 1 - trace.pick(8, "behind the prompt", index))
        # Each later request has a higher priority, or priorities are random.
        priority = trace.pick(3, "priority", index) if trace.pick(2, "any priority") else len(submits) - index
        trace.change(
            index,
            tick=trace.pick(4, "together", index) + (TURN_AFTER if submit.tick > TURN_AFTER else 0),
            max_tokens=12 + trace.pick(12, "output", index),
            priority=max(0, priority) if is_urgent else submit.priority,
        )


@situation(stage="size")
def uneven_chunks(trace: TraceBuilder) -> None:
    """Use prefill chunks and common prefixes that end inside a block."""
    block, blocks = trace.spec.block_size, 5
    chunk = block + 1 + trace.pick(max(1, block - 1), "part of a block")
    trace.cache_prefixes()
    trace.set(max_num_batched_tokens=max(chunk, 1 + trace.spec.num_speculative_tokens))
    trace.at_least(max_model_len=block * blocks, num_blocks=blocks + trace.pick(blocks, "spare blocks"))
    for index, _ in trace.submits():
        common = block * (1 + trace.pick(3, "common blocks", index)) + trace.pick(block, "common part", index)
        tokens = common + 1 + trace.pick(block, "own", index)
        trace.lengthen(index, min(tokens, block * blocks - 1), common)


@situation(RUNS, ATTENTION, stage="size")
def hits_at_model_end(trace: TraceBuilder) -> None:
    """Set max_model_len near a block end, and cache all but one token of most prompts.

    In three of four traces the drafter is one that reuses the last matching block.
    """
    spec, run = trace.spec, 1 + trace.spec.num_speculative_tokens
    block, blocks = spec.block_size, 1 + trace.pick(3, "blocks before the end")
    is_after = trace.pick(4, "end behind a block")
    length = block * blocks + (
        2 + trace.pick(run - 1, "behind a block") if is_after else -trace.pick(run, "before a block")
    )
    trace.set(max_model_len=length, long_prefill_token_threshold=0)
    num_blocks = blocks + 1 + trace.pick(2 * blocks, "spare blocks")
    trace.at_least(num_blocks=num_blocks, max_num_seqs=2, max_num_batched_tokens=block)
    drafter = ("draft_model", "draft_model", "dflash", spec.drafter)[trace.pick(4, "drafter behind hits")]
    trace.set_if_allowed(drafter=drafter, draft_sampling="greedy")
    trace.set_if_allowed(prefix_cache=bool(trace.pick(4, "hits at the end")))
    for number, (index, submit) in enumerate(trace.submits()):
        tokens = block * blocks + 1 if is_after else length - 1 - trace.pick(run, "short of it", index)
        # Later requests arrive after the prefill of the first one.
        trace.change(index, tick=blocks + 2 + trace.pick(TURN_AFTER, "behind the first", index) if number else 0)
        if not trace.pick(4, "another length", index):
            tokens = min(length - 1, submit.prompt_length)
        trace.lengthen(index, tokens, tokens)
    trace.is_complete = True


SIZES: tuple[Situation[TraceBuilder], ...] = (
    chunks_up_to_a_run,
    drafts_up_to_max_model_len,
    outgrown_pool,
    uneven_chunks,
    hits_at_model_end,
)
