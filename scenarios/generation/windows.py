"""Situations of sliding-window layers, in attention-only traces without KV connector."""

from scenarios.capabilities import lacking
from scenarios.features import refusals
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.fitting import fitted_to
from scenarios.generation.situation import ATTENTION, Situation, allows, situation
from scenarios.trace import problems

# Window sizes inside a block, at block ends, and past them.
WINDOWS = (5, 31, 32, 33, 33, 34, 40, 63, 64, 65, 96)
TOKENS_OF_A_STEP_MIN = 48


@situation(ATTENTION, allows("layers", "windows"), stage="window")
def sliding_windows(trace: TraceBuilder) -> None:
    """Use sliding-window and full-attention layers, if the engine supports them in this trace."""
    before = trace.spec
    is_wide = trace.engine.allows("window_heads", 4) and trace.has("wide_window_heads")
    trace.set(layers="windows", window=WINDOWS[trace.pick(len(WINDOWS), "window")])
    if is_wide:
        trace.set(window_heads=4, prefix_cache=True)
    is_replaced = trace.spec.drafter == "draft_model" and not trace.has("windows_with_draft_model")
    if is_replaced or lacking(trace.trace, trace.engine) is not None:
        # A target with sliding windows supports fewer drafters; eagle also drops a block of each prefix-cache hit.
        trace.set(drafter="eagle")
    if lacking(trace.trace, trace.engine) is not None or refusals(trace.spec, ()):
        trace.spec = before
    elif is_wide or trace.has("prompts_longer_than_windows"):
        _lengthen(trace)


PARTS: tuple[Situation[TraceBuilder], ...] = tuple(
    Situation(name=name, needs=(allows(*allowed),), part_of="sliding_windows")
    for name, allowed in (
        ("wide_window_heads", ("window_heads", 4)),
        ("windows_with_draft_model", ("layers", "windows")),
        ("prompts_longer_than_windows", ("layers", "windows")),
    )
)


def _lengthen(trace: TraceBuilder) -> None:
    """Make prompts longer than windows, with a common prefix, if the trace stays valid."""
    block_size, block = trace.spec.block_size, trace.spec.block_size * trace.spec.window_heads
    before, longest = (trace.spec, [*trace.events]), 0
    for index, submit in trace.submits():
        blocks, part = 1 + trace.pick(2, "blocks", index), trace.pick(block, "part", index)
        common = block * blocks + part + block_size
        tokens = common + 1 + trace.pick(block_size, "own", index)
        if trace.pick(3, "at an end", index):
            # The prompt ends at a block end, or one token after it.
            tokens = -(-tokens // block_size) * block_size + trace.pick(2, "behind it", index)
        trace.lengthen(index, tokens, common)
        longest = max(longest, tokens + submit.max_tokens)
    length = max(trace.spec.max_model_len, longest + 1 + trace.spec.num_speculative_tokens)
    trace.at_least(max_model_len=length, num_blocks=-(-length // block_size))
    trace.at_least(max_num_batched_tokens=TOKENS_OF_A_STEP_MIN)
    if problems(fitted_to(trace.trace, trace.engine)):
        trace.spec, trace.events = before
    else:
        trace.fit()
