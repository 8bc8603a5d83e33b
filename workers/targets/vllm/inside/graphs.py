"""Graphs of an engine: what of vLLM's is asked for by the key `graphs`, and how what is in them is observed.

A replay calls nothing of a model: what it is given is observed where the replay is launched. A drafter's passes that
are all in one graph have no such place; on the simulated device, whose graphs have tasks of any kind, each is observed
by a task that was captured with it.
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
    """Return vLLM's arguments for the graphs of a specification: nothing is compiled, or run to warm kernels up."""
    if spec.graphs == "none":
        return {"enforce_eager": True}
    sizes = list(graph_sizes(spec))
    config = {"mode": 0, "cudagraph_mode": spec.graphs.upper(), "cudagraph_capture_sizes": sizes}
    return {"compilation_config": config, "kernel_config": {"enable_jit_warmup": False}}


def begin_graphs(spec: EngineSpec) -> None:
    """Prepare the process for the graphs of the next engine.

    They have memory of their own, as in a process of its own. Where a model's pieces are graphs, vLLM breaks these at
    layers of attention while they are captured, as nothing is compiled. What the environment was for the engine before
    it remembers.
    """
    from vllm import envs  # noqa: PLC0415  what they replace must be replaced by then
    from vllm.platforms import current_platform  # noqa: PLC0415  what they replace must be replaced by then

    type(current_platform)._global_graph_pool = None
    os.environ[BREAKABLE] = str(int("piecewise" in spec.graphs))
    envs.disable_envs_cache()


def _broken_always(before: Any) -> Callable[..., Any]:
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


# Module, name, reason, and what is made of it.
OF_GRAPHS = (
    "vllm.compilation.breakable_cudagraph",
    "eager_break_during_capture",
    "whether graphs are broken at a layer is settled where its module is loaded: by an engine that comes before theirs",
    _broken_always,
)

# Is told tensors by name, as they are when it is.
Told: TypeAlias = Callable[[str, Mapping[str, torch.Tensor]], None]


class CapturedPasses:
    """Passes of a drafter in graphs: while one is captured, a task is too that tells its tensors in each replay."""

    def __init__(self, proposer: Any, layer: str) -> None:
        # Nobody but a session's observer is told.
        self.told: Told | None = None
        self._layer = layer
        self._forward: Callable[..., Any] = proposer.model.forward
        self._logits: Callable[..., Any] = proposer.model.compute_logits
        proposer.model.forward = self._captured_forward
        proposer.model.compute_logits = self._captured_logits

    def is_complete(self, proposer: Any) -> None:
        """Leave the drafter as it was: nothing more is captured."""
        del proposer.model.forward, proposer.model.compute_logits

    def _captured_forward(self, *arguments: Any, **options: Any) -> Any:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415  what they replace must be replaced by then

        # A graph of pieces is launched at a place of its own, where it is observed.
        is_whole = not get_forward_context().cudagraph_runtime_mode.value
        if is_whole and torch.cuda.is_current_stream_capturing():
            self._capture("drafting", given_to(options, self._layer))
        return self._forward(*arguments, **options)

    def _captured_logits(self, *arguments: Any, **options: Any) -> Any:
        logits = self._logits(*arguments, **options)
        if torch.cuda.is_current_stream_capturing():
            self._capture("margins", {"margins": logits})
        return logits

    def _capture(self, point: str, tensors: Mapping[str, torch.Tensor]) -> None:
        device = activate()
        views = {name: device.host_view(tensor) for name, tensor in tensors.items()}

        def tell() -> None:
            if self.told is not None:
                self.told(point, views)

        device.enqueue("observe", tell)


def given_to(options: Mapping[str, Any], layer: str) -> dict[str, torch.Tensor]:
    """Return what a model is given in a pass, of which a layer of attention is."""
    from vllm.forward_context import get_forward_context  # noqa: PLC0415  what they replace must be replaced by then

    context = get_forward_context()
    metadata = context.attn_metadata[layer]
    return {
        "input_ids": options["input_ids"],
        "positions": options["positions"],
        "slots": context.slot_mapping[layer],
        "starts": metadata.query_start_loc,
        "seq_lens": metadata.seq_lens,
        "tables": metadata.block_table,
    }


def bounds_of(layer: str) -> list[int]:
    """Return the bounds of lengths that the host has for the pass under way, row by row; none where it keeps none."""
    from vllm.forward_context import get_forward_context  # noqa: PLC0415

    bounds: list[int] = getattr(get_forward_context().attn_metadata[layer], "bounds", [])
    return bounds


def observe_calls(model: Any, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Have each call of a model be one of what is made of it; return what takes that back.

    A wrapper that replays graphs calls no method of the model that it is of.
    """
    if isinstance(model, torch.nn.Module):
        model.forward = made(model.forward)
        return lambda: delattr(model, "forward")
    kind = type(model)
    called = made(partial(kind.__call__, model))

    class Observed(kind):  # type: ignore[misc, valid-type]
        """The wrapper, whose calls are observed."""

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return called(*arguments, **options)

    model.__class__ = Observed

    def release() -> None:
        model.__class__ = kind

    return release
