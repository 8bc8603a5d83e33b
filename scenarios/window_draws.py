"""Draws of layers with sliding windows, in a share of the traces of attention alone; these have no transfers."""

from scenarios.capabilities import Capabilities, lacking, within
from scenarios.draw import below
from scenarios.events import AnyEvent, PromptDraw, Submit
from scenarios.features import refusals
from scenarios.trace import Trace, problems

_SITE = "windows"
# Of traces that may have them; of these have so many more heads, and so many have long prompts that begin alike.
ONE_IN = 7
WIDE_ONE_IN, ALIKE_ONE_IN = 4, 2
# Of draft models so many stay.
DRAFT_MODELS_ONE_IN = 3
# Inside a block, about its ends, and past it.
WINDOWS = (5, 31, 32, 33, 33, 34, 40, 63, 64, 65, 96)
TOKENS_OF_A_STEP_MIN = 48


def with_windows(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with windows, for an engine that has them; the trace itself in most cases."""
    if trace.spec.layers != "attention" or not capabilities.allows("layers", "windows"):
        return trace
    seed = trace.seed
    if below(ONE_IN, seed, _SITE, "has any", 0):
        return trace
    is_wide = capabilities.allows("window_heads", 4) and not below(WIDE_ONE_IN, seed, _SITE, "wide", 0)
    update: dict[str, object] = {"layers": "windows", "window": WINDOWS[below(len(WINDOWS), seed, _SITE, "window", 0)]}
    if is_wide:
        update |= {"window_heads": 4, "prefix_cache": True}
    found = trace.model_copy(update={"spec": trace.spec.model_copy(update=update)})
    is_asked = found.spec.drafter == "draft_model" and below(DRAFT_MODELS_ONE_IN, seed, _SITE, "draft model", 0)
    if is_asked or lacking(found, capabilities) is not None:
        # Such a target has not every drafter, and of these one drops a block of each hit.
        found = found.model_copy(update={"spec": found.spec.model_copy(update={"drafter": "eagle"})})
    if lacking(found, capabilities) is not None or refusals(found.spec, ()):
        return trace
    if is_wide or not below(ALIKE_ONE_IN, seed, _SITE, "alike", 0):
        alike = within(_alike(found), capabilities)
        found = found if problems(alike) else alike
    return found


def _alike(trace: Trace) -> Trace:
    """Return a trace whose drawn prompts are longer than windows, and begin alike for some blocks."""
    spec, seed = trace.spec, trace.seed
    block = spec.block_size * spec.window_heads
    events: list[AnyEvent] = list(trace.events)
    longest = 0
    for place, event in enumerate(trace.events):
        if isinstance(event, Submit) and isinstance(event.prompt, PromptDraw):
            blocks, part = 1 + below(2, seed, _SITE, "blocks", place), below(block, seed, _SITE, "part", place)
            common = block * blocks + part + spec.block_size
            tokens = common + 1 + below(spec.block_size, seed, _SITE, "own", place)
            if below(3, seed, _SITE, "at an end", place):
                # A block, or one token more.
                tokens = -(-tokens // spec.block_size) * spec.block_size + below(2, seed, _SITE, "behind it", place)
            prompt = event.prompt.model_copy(update={"tokens": tokens, "common": common})
            events[place] = event.model_copy(update={"prompt": prompt})
            longest = max(longest, tokens + event.max_tokens)
    length = max(spec.max_model_len, longest + 1 + spec.num_speculative_tokens)
    keys = {
        "max_model_len": length,
        "num_blocks": max(spec.num_blocks, -(-length // spec.block_size)),
        "max_num_batched_tokens": max(spec.max_num_batched_tokens, TOKENS_OF_A_STEP_MIN),
    }
    return trace.model_copy(update={"spec": spec.model_copy(update=keys), "events": tuple(events)})
