"""Rescaling of a trace to cache blocks of another size: lengths keep their place in a block, pools their tightness."""

from scenarios.events import AnyEvent, PromptDraw, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

LENGTH_MAX = 1024


def rescaled(trace: Trace, block_size: int) -> Trace:
    """Return a trace whose blocks have another size, with prompts that are as many blocks long.

    A prompt that ends at the end of a block, or one token before or behind it, does so again. Prompts that are written
    down stay as they are.
    """
    spec = trace.spec
    if spec.block_size == block_size:
        return trace
    events = tuple(_rescaled(event, spec.block_size, block_size) for event in trace.events)
    factor = max(1, block_size // spec.block_size)
    update = {
        "block_size": block_size,
        "max_model_len": min(LENGTH_MAX, spec.max_model_len * factor),
        "long_prefill_token_threshold": min(8192, spec.long_prefill_token_threshold * factor),
    }
    wider = EngineSpec(**{**dict(spec), **update})
    before, after = _blocks_needed(trace.events, spec), _blocks_needed(events, wider)
    spare = max(0, spec.num_blocks - before)
    num_blocks = after + spare * after // before
    return trace.model_copy(
        update={"spec": wider.model_copy(update={"num_blocks": max(1, num_blocks)}), "events": events}
    )


def _blocks_needed(events: tuple[AnyEvent, ...], spec: EngineSpec) -> int:
    """Return the most blocks that one of the requests can hold."""
    submits = [event for event in events if isinstance(event, Submit)]
    return max((spec.blocks_needed(event.prompt_length, event.max_tokens) for event in submits), default=1)


def _rescaled(event: AnyEvent, old: int, new: int) -> AnyEvent:
    if not isinstance(event, Submit) or not isinstance(event.prompt, PromptDraw):
        return event
    prompt = event.prompt
    tokens = max(1, min(LENGTH_MAX // 2, _place(prompt.tokens, old, new)))
    common = min(tokens, _place(prompt.common, old, new))
    # Whoever goes on with common tokens still does.
    own = max(1, _place(prompt.common + prompt.own, old, new) - common) if prompt.own else 0
    update = {"tokens": tokens, "common": common, "own": own}
    return event.model_copy(update={"prompt": prompt.model_copy(update=update)})


def _place(length: int, old: int, new: int) -> int:
    """Return the length at the same place in blocks of size `new` as `length` in blocks of size `old`."""
    blocks, rest = divmod(length, old)
    if rest == old - 1 and old > 1:
        return blocks * new + new - 1
    return blocks * new + (rest if rest <= 1 else rest * new // old)
