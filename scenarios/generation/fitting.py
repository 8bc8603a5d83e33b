"""Fitting of a trace to an engine: rescale lengths to its block size, apply its limits.

In rescaled traces lengths keep their position in a block, and pools of blocks stay as tight as they were.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from scenarios.capabilities import Capabilities, Excess, event_limits, lacking, spec_limits, trace_limits
from scenarios.events import AnyEvent, PromptDraw, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems

LENGTH_MAX = 1024
# Bound on the values that one limit changes, and on the rounds until a trace exceeds no limit.
_FIXES_MAX = 64
T = TypeVar("T")


def fitted_to(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return the trace with the engine's block size and without unsupported values."""
    for _ in range(_FIXES_MAX):
        if lacking(trace, capabilities) is None:
            return trace
        trace = _apply_limits(trace, capabilities)
    raise AssertionError(f"changes for one limit exceed another: {lacking(trace, capabilities)}")


def _apply_limits(trace: Trace, capabilities: Capabilities) -> Trace:
    """Apply the engine's limits: to each event, to the specification, to the whole trace."""
    sizes = capabilities.allowed("block_size")
    if sizes is not None and trace.spec.block_size not in sizes:
        trace = with_block_size(trace, sizes[0])
    of_events = event_limits(capabilities, trace.spec)
    events = tuple(each for event in trace.events if (each := _apply(of_events, event)) is not None)
    spec = _apply(spec_limits(capabilities), trace.spec)
    found = _apply(trace_limits(capabilities), trace.model_copy(update={"events": events, "spec": spec}))
    assert found is not None, "a trace can be changed to fit"
    # Remove requests that do not fit into the smaller KV cache or the shorter model.
    wrong = {problem.path[1] for problem in problems(found) if problem.path[0] == "events"}
    fitting = tuple(event for index, event in enumerate(found.events) if index not in wrong)
    return found.model_copy(update={"events": fitting}) if wrong else found


def _apply(limits: Sequence[Callable[[T], Excess[T] | None]], asked: T) -> T | None:
    """Replace an unsupported value by the limits' `fixed` value; None removes the event."""
    for limit in limits:
        for _ in range(_FIXES_MAX):
            excess = limit(asked)
            if excess is None:
                break
            if excess.fixed is None:
                return None
            asked = excess.fixed
    return asked


def with_block_size(trace: Trace, block_size: int) -> Trace:
    """Return a trace with blocks of another size and prompts of the same number of blocks.

    A prompt that ends at the end of a block, or one token before or after it, does so again. Prompts that are written
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
    """Return the number of blocks of the request that needs the most."""
    submits = [event for event in events if isinstance(event, Submit)]
    return max((spec.blocks_needed(event.prompt_length, event.max_tokens) for event in submits), default=1)


def _rescaled(event: AnyEvent, old: int, new: int) -> AnyEvent:
    if not isinstance(event, Submit) or not isinstance(event.prompt, PromptDraw):
        return event
    prompt = event.prompt
    tokens = max(1, min(LENGTH_MAX // 2, _rescaled_length(prompt.tokens, old, new)))
    common = min(tokens, _rescaled_length(prompt.common, old, new))
    # A prompt with common tokens after its own tokens keeps at least one own token.
    own = max(1, _rescaled_length(prompt.common + prompt.own, old, new) - common) if prompt.own else 0
    update = {"tokens": tokens, "common": common, "own": own}
    return event.model_copy(update={"prompt": prompt.model_copy(update=update)})


def _rescaled_length(length: int, old: int, new: int) -> int:
    """Rescale a length in tokens to another block size: whole blocks plus the same fraction."""
    blocks, rest = divmod(length, old)
    if rest == old - 1 and old > 1:
        return blocks * new + new - 1
    return blocks * new + (rest if rest <= 1 else rest * new // old)
