"""CUDA graphs of an engine: arguments for the spec key `graphs`, and observers of replays.

A replay calls no Python method of the model, so its inputs are observed where the replay is launched. If all draft
passes are in one graph, tasks captured with the graph observe each pass; only the simulated device supports this.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeAlias

import torch

from scenarios.spec import EngineSpec
from workers.simulated_torch.device import activate
from workers.targets.vllm.engine_sizes import graph_sizes

BREAKABLE = "VLLM_USE_BREAKABLE_CUDAGRAPH"


def arguments_of(spec: EngineSpec) -> Mapping[str, Any]:
    """Return engine arguments for CUDA graphs, without compilation and kernel warm-up."""
    if spec.graphs == "none":
        return {"enforce_eager": True}
    sizes = list(graph_sizes(spec))
    config = {"mode": 0, "cudagraph_mode": spec.graphs.upper(), "cudagraph_capture_sizes": sizes}
    return {"compilation_config": config, "kernel_config": {"enable_jit_warmup": False}}


def prepare_graphs(spec: EngineSpec) -> None:
    """Reset CUDA graph state before the next engine: new memory pool, piecewise or full mode.

    The engine's graphs get a memory pool of their own, as in a separate process. Piecewise graphs are broken at
    attention layers, because nothing is compiled; vLLM caches this environment variable, so the cache is disabled.
    """
    from vllm import envs  # noqa: PLC0415  import after our replacements in vLLM
    from vllm.platforms import current_platform  # noqa: PLC0415  import after our replacements in vLLM

    type(current_platform)._global_graph_pool = None
    os.environ[BREAKABLE] = str(int("piecewise" in spec.graphs))
    envs.disable_envs_cache()


def _always_breakable(before: Any) -> Callable[..., Any]:
    names = before.__globals__

    @wraps(before)
    def eager_break_during_capture(function: Callable[..., Any]) -> Any:
        asked = names["is_breakable_cudagraph_enabled"]
        names["is_breakable_cudagraph_enabled"] = lambda: True
        try:
            return before(function)
        finally:
            names["is_breakable_cudagraph_enabled"] = asked

    return eager_break_during_capture


# Module, name, reason, and function that makes the replacement.
GRAPH_REPLACEMENT = (
    "vllm.compilation.breakable_cudagraph",
    "eager_break_during_capture",
    "a module decides at import whether its graphs are broken at a layer, hence for all later engines",
    _always_breakable,
)

# Callback with a point's name and its tensors by name, with their values at that time.
Callback: TypeAlias = Callable[[str, Mapping[str, torch.Tensor]], None]


class CapturedPasses:
    """Draft passes captured in CUDA graphs, with tasks that report their inputs on replay."""

    def __init__(self, proposer: Any, layer: str) -> None:
        # Set during a session only.
        self.callback: Callback | None = None
        self._layer = layer
        self._forward: Callable[..., Any] = proposer.model.forward
        self._logits: Callable[..., Any] = proposer.model.compute_logits
        proposer.model.forward = self._captured_forward
        proposer.model.compute_logits = self._captured_logits

    def end_capture(self, proposer: Any) -> None:
        """Restore the drafter's methods after the capture."""
        del proposer.model.forward, proposer.model.compute_logits

    def _captured_forward(self, *arguments: Any, **options: Any) -> Any:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415  import after our replacements in vLLM

        # A piecewise graph is observed where it is launched.
        is_whole = not get_forward_context().cudagraph_runtime_mode.value
        if is_whole and torch.cuda.is_current_stream_capturing():
            self._capture("drafting", pass_inputs(options, self._layer))
        made = self._forward(*arguments, **options)
        if is_whole and torch.cuda.is_current_stream_capturing():
            self._capture("hidden_states", {"hidden_states": passed_on(made)})
        return made

    def _captured_logits(self, *arguments: Any, **options: Any) -> Any:
        logits = self._logits(*arguments, **options)
        if torch.cuda.is_current_stream_capturing():
            self._capture("margins", {"margins": logits})
        return logits

    def _capture(self, point: str, tensors: Mapping[str, torch.Tensor]) -> None:
        device = activate()
        views = {name: device.host_view(tensor) for name, tensor in tensors.items()}

        def tell() -> None:
            if self.callback is not None:
                self.callback(point, views)

        device.enqueue("observe", tell)


def pass_inputs(options: Mapping[str, Any], layer: str) -> dict[str, torch.Tensor]:
    """Return the input tensors of a forward pass, with the attention metadata of one layer."""
    from vllm.forward_context import get_forward_context  # noqa: PLC0415  import after our replacements in vLLM

    context = get_forward_context()
    metadata = context.attn_metadata[layer]
    return {
        "input_ids": options["input_ids"],
        "positions": options["positions"],
        "slots": context.slot_mapping[layer],
        "starts": metadata.query_start_loc,
        "seq_lens": metadata.seq_lens,
        "tables": metadata.block_table,
        **({"hidden_states": options["hidden_states"]} if "hidden_states" in options else {}),
    }


def passed_on(returned: Any) -> torch.Tensor:
    """Return the hidden states that a drafter's model passes to the next draft pass, given what it returned."""
    found: torch.Tensor = returned[1] if isinstance(returned, tuple) else returned
    return found


def bounds_of(layer: str) -> list[int]:
    """Return the host's upper bound of each row's sequence length; [] if it has none."""
    from vllm.forward_context import get_forward_context  # noqa: PLC0415

    bounds: list[int] = getattr(get_forward_context().attn_metadata[layer], "bounds", [])
    return bounds


def observe_calls(model: Any, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Wrap the calls of a model or of its CUDA graph wrapper; return a function that unwraps.

    A wrapper that replays CUDA graphs does not call the model's methods, so the wrapper itself is wrapped.
    """
    if isinstance(model, torch.nn.Module):
        model.forward = made(model.forward)
        return lambda: delattr(model, "forward")
    kind = type(model)
    called = made(partial(kind.__call__, model))

    class Observed(kind):  # type: ignore[misc, valid-type]
        """Subclass of the model's graph wrapper, with observed calls."""

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return called(*arguments, **options)

    model.__class__ = Observed

    def release() -> None:
        model.__class__ = kind

    return release
