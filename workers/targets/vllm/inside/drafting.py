"""Observer of a drafter's model: what it is given in each of its passes, and what is proposed.

A drafter that is no model is not observed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

# Traits of what is no model.
NO_DRAFTER: Mapping[str, Any] = {"draft_shift": 0, "chunk_ends_known": True, "mask_token": None}


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter with a model, one of its layers, the caches of all, and its traits as the recorder tells them.

    A model that is given hidden states of the target is given with each the token that follows. Where a chunk of a
    prompt ends that is a later one in the first runner: `docs/findings/vllm_drafter_chunk_ends.md`.
    """

    proposer: Any
    layer: str
    caches: list[torch.Tensor]
    traits: Mapping[str, Any]


def drafter_of(runner: Any) -> Drafter | None:
    """Return the drafter of either runner, if it has a model with a cache."""
    is_second = hasattr(runner, "speculator")
    proposer = runner.speculator if is_second else getattr(runner, "drafter", None)
    layers = getattr(proposer, "_draft_attn_layer_names", None) or getattr(proposer, "draft_attn_layer_names", None)
    if proposer is None or not layers:
        return None
    config = proposer.speculative_config
    is_at_once = config.method == "dflash"
    traits = {
        "draft_shift": int(not (config.uses_draft_model() or is_at_once)),
        "chunk_ends_known": is_second,
        "mask_token": proposer.parallel_drafting_token_id if is_at_once else None,
    }
    of_layers = proposer.vllm_config.compilation_config.static_forward_context
    return Drafter(proposer, min(layers), [of_layers[name].kv_cache for name in sorted(layers)], traits)


def _margins(logits: torch.Tensor) -> list[float]:
    """Return how far the likeliest token of each row is above the next."""
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    margins: list[float] = (first - second).tolist()
    return margins


class DrafterObserver:
    """Observer of one drafter, which wraps it until it is released; `observe` is told tensors by name."""

    def __init__(self, drafter: Drafter, runner: Any, observe: Callable[..., None]) -> None:
        self._drafter, self._runner, self._observe = drafter, runner, observe
        # Of the requests in the step that is being drafted for; none otherwise.
        self._names: list[str] = []
        self._index = 0
        proposer = drafter.proposer
        self._propose: Callable[..., Any] = proposer.propose
        self._forward: Callable[..., Any] = proposer.model.forward
        self._logits: Callable[..., Any] = proposer.model.compute_logits
        proposer.propose = self._observed_propose
        proposer.model.forward = self._observed_forward
        proposer.model.compute_logits = self._observed_logits
        self._is_at_once = drafter.traits["mask_token"] is not None
        if self._is_at_once:
            self._keep: Callable[..., Any] = proposer.model.precompute_and_store_context_kv
            proposer.model.precompute_and_store_context_kv = self._observed_keep

    def release(self) -> None:
        """Leave the drafter as it was."""
        model = self._drafter.proposer.model
        del self._drafter.proposer.propose, model.forward, model.compute_logits
        if self._is_at_once:
            del model.precompute_and_store_context_kv

    def _observed_propose(self, *arguments: Any, **options: Any) -> Any:
        if options.get("dummy_run"):
            self._names = []
            return self._propose(*arguments, **options)
        # The second runner hands its batch over, the first has one for all steps.
        batch = arguments[0] if arguments else self._runner.input_batch
        self._names, self._index = list(batch.req_ids), 0
        drafts = self._propose(*arguments, **options)
        # Behind those of this step the second runner's buffer has what steps with more drafts left.
        self._observe("proposed", self._names, {"proposed": drafts[:, : options["num_speculative_tokens"]]})
        self._names = []
        return drafts

    def _observed_keep(self, states: Any, positions: Any, slots: Any = None) -> None:
        if slots is not None and self._names:
            slots_of_layer = slots[0] if isinstance(slots, list) else slots
            self._observe("context", self._names, {"positions": positions, "slots": slots_of_layer})
        self._keep(states, positions, slots)

    def _observed_logits(self, *arguments: Any, **options: Any) -> Any:
        logits = self._logits(*arguments, **options)
        if self._names:
            self._observe("margins", self._names, {"margins": logits}, _margins)
        return logits

    def _observed_forward(self, *arguments: Any, **options: Any) -> Any:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415  what they replace must be replaced by then

        context, layer = get_forward_context(), self._drafter.layer
        if not self._names:
            # It is no pass of a step but a dummy one.
            return self._forward(*arguments, **options)
        metadata, count = context.attn_metadata[layer], len(self._names)
        tensors = {
            "input_ids": options["input_ids"],
            "positions": options["positions"],
            "slots": context.slot_mapping[layer],
            "starts": metadata.query_start_loc[: count + 1],
            "seq_lens": metadata.seq_lens[:count],
            "tables": metadata.block_table[:count],
        }
        self._observe("drafting", self._names, tensors, index=self._index, blocks=[])
        self._index += 1
        return self._forward(*arguments, **options)
