"""Observer of drafters that have a model: inputs of each draft pass, and draft tokens.

Drafters without a model are not observed, nor are passes in CUDA graphs without observing tasks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from workers.targets.child.inside.observations import Observations, digests, margins
from workers.targets.child.inside.readback import Parts
from workers.targets.vllm.inside.graphs import CapturedPasses, bounds_of, observe_calls, pass_inputs, passed_on

# Attribute of a proposer with the observed passes of its CUDA graphs.
CAPTURED = "captured_passes"
# Traits for a drafter without a model.
NO_DRAFTER: Mapping[str, Any] = {
    "draft_shift": 0,
    "chunk_ends_known": True,
    "mask_token": None,
    "drafts_max": 0,
    "lookups_filled_up": False,
    "receives_hidden_states": False,
    "keeps_draft_logits": False,
}


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter that has a model: proposer, attention layer, KV caches, drafter traits.

    A drafter that reads hidden states gets, with each state, the token after it. At the end of a prefill chunk the
    first runner gives it a later token instead: `findings/vllm_drafter_chunk_ends`.
    """

    proposer: Any
    layer: str
    caches: list[torch.Tensor]
    traits: Mapping[str, Any]
    captured: CapturedPasses | None


def drafter_of(runner: Any) -> Drafter | None:
    """Return a model runner's drafter; None if the drafter has no model with a KV cache."""
    is_second = hasattr(runner, "speculator")
    proposer = runner.speculator if is_second else getattr(runner, "drafter", None)
    layers = getattr(proposer, "_draft_attn_layer_names", None) or getattr(proposer, "draft_attn_layer_names", None)
    if proposer is None or not layers:
        return None
    config = proposer.speculative_config
    is_parallel = config.method == "dflash"
    in_graphs = is_second and in_one_graph(runner)
    if in_graphs and not hasattr(proposer, CAPTURED):
        return None
    traits = {
        "draft_shift": int(not (config.uses_draft_model() or is_parallel)),
        # The fix of that finding adds this attribute to the first runner's batch.
        "chunk_ends_known": is_second or hasattr(runner.input_batch, "seq_lens_cpu"),
        "mask_token": proposer.parallel_drafting_token_id if is_parallel else None,
        "drafts_max": config.num_speculative_tokens,
        "lookups_filled_up": False,
        "receives_hidden_states": is_second and not config.uses_draft_model(),
        "keeps_draft_logits": is_second and proposer.draft_logits is not None,
    }
    of_layers = proposer.vllm_config.compilation_config.static_forward_context
    caches = [of_layers[name].kv_cache for name in sorted(layers)]
    return Drafter(proposer, min(layers), caches, traits, getattr(proposer, CAPTURED, None))


def in_one_graph(runner: Any) -> bool:
    """Return whether a full CUDA graph may contain all draft passes of a step (second runner)."""
    return bool(runner.compilation_config.cudagraph_mode.has_full_cudagraphs())


@contextmanager
def observing_captured_passes(runner: Any) -> Iterator[None]:
    """Add observing tasks to the draft passes of CUDA graphs while these are captured.

    Not for dflash, which writes part of its KV cache outside of its graph.
    """
    proposer: Any = getattr(runner, "speculator", None)
    layers = getattr(proposer, "draft_attn_layer_names", None)
    if not (layers and in_one_graph(runner)) or proposer.speculative_config.method == "dflash":
        yield
        return
    captured = CapturedPasses(proposer, min(layers))
    setattr(proposer, CAPTURED, captured)
    yield
    captured.end_capture(proposer)


class DrafterObserver:
    """Observes the passes of one drafter by wrapping its methods, until `release`.

    For passes in CUDA graphs, the pass index is counted when the device executes the pass.
    """

    def __init__(self, drafter: Drafter, runner: Any, record: Observations) -> None:
        self._drafter, self._runner, self._record = drafter, runner, record
        # Requests of the step that is being drafted for; empty for dummy runs.
        self._names: list[str] = []
        self._index = 0
        # The same for the step that the device executes.
        self._reached: tuple[list[str], int] = [], -1
        self._index_reached = 0
        proposer = drafter.proposer
        self._propose: Callable[..., Any] = proposer.propose
        self._logits: Callable[..., Any] = proposer.model.compute_logits
        proposer.propose = self._observed_propose
        self._release_calls = observe_calls(proposer.model, self._observed_calls)
        self._pieces = getattr(proposer, "prefill_cudagraph_manager", None)
        if self._pieces is not None:
            self._run_pieces: Callable[..., Any] = self._pieces.run_pw_graph
            self._pieces.run_pw_graph = self._observed_pieces
        proposer.model.compute_logits = self._observed_logits
        if drafter.captured is not None:
            drafter.captured.callback = self._record_captured
        self._receives_states = drafter.traits["receives_hidden_states"]
        # By digest of a combined hidden state, the digest of the hidden states of several layers that it is made from.
        self._combined: dict[int, int] = {}
        self._combines = self._receives_states and hasattr(proposer.model, "combine_hidden_states")
        if self._combines:
            self._combine: Callable[..., Any] = proposer.model.combine_hidden_states
            proposer.model.combine_hidden_states = self._observed_combine
        self._is_parallel = drafter.traits["mask_token"] is not None
        if self._is_parallel:
            self._keep: Callable[..., Any] = proposer.model.precompute_and_store_context_kv
            proposer.model.precompute_and_store_context_kv = self._observed_keep

    def release(self) -> None:
        """Restore the drafter's unwrapped methods."""
        model = self._drafter.proposer.model
        del self._drafter.proposer.propose, model.compute_logits
        self._release_calls()
        if self._pieces is not None:
            del self._pieces.run_pw_graph
        if self._drafter.captured is not None:
            self._drafter.captured.callback = None
        if self._combines:
            del model.combine_hidden_states
        if self._is_parallel:
            del model.precompute_and_store_context_kv

    def _observed_propose(self, *arguments: Any, **options: Any) -> Any:
        if options.get("dummy_run"):
            self._begin([])
            return self._propose(*arguments, **options)
        # The second runner passes its batch; the first runner has one batch object for all steps.
        batch = arguments[0] if arguments else self._runner.input_batch
        self._begin(list(batch.req_ids))
        drafts = self._propose(*arguments, **options)
        # The second runner's buffer may have more columns, with stale drafts of earlier steps.
        proposed = drafts[:, : options["num_speculative_tokens"]]
        self._record.observe("proposed", self._names, {"proposed": proposed})
        self._names = []
        return drafts

    def _begin(self, names: list[str]) -> None:
        """Begin a step's draft passes; `names` has its request ids, none for a dummy run."""
        self._names, self._index = names, 0
        if self._drafter.captured is None:
            return

        def reach(step: int) -> None:
            self._reached, self._index_reached = (names, step), 0

        self._record.call_when_reached(reach)

    def _next(self) -> int:
        """Count a draft pass that the device runs; return its index within the step."""
        self._index_reached += 1
        return self._index_reached - 1

    def _record_captured(self, point: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record the tensors of a draft pass that a CUDA graph has replayed."""
        names, step = self._reached
        if not names:
            return
        views = {name: [each] for name, each in self._observed(_without_padding(tensors, len(names))).items()}
        match point:
            case "margins":
                self._record.keep(point, names, step, **self._of_logits({"logits": [tensors[point][: len(names)]]}))
            case "hidden_states":
                if self._receives_states:
                    self._record.keep(point, names, step, draft_pass=self._index_reached - 1, **self._inputs(views))
            case _:
                read = self._inputs(views)
                self._record.keep(point, names, step, index=self._next(), blocks=[], bounds=[], **read)

    def _inputs(self, views: Mapping[str, Parts]) -> dict[str, Any]:
        """Return the inputs of a draft pass; hidden states as digests of what they were combined from, if anything."""
        states = [self._combined.get(digest, digest) for digest in digests(views.get("hidden_states", ()))]
        others = {name: parts for name, parts in views.items() if name != "hidden_states"}
        found = {name: [value for part in parts for value in part.tolist()] for name, parts in others.items()}
        return {**found, "hidden_states": states}

    def _observed(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the tensors to observe: without hidden states if the drafter receives none, or the first runner's."""
        return {name: each for name, each in tensors.items() if self._receives_states or name != "hidden_states"}

    def _of_logits(self, views: Mapping[str, Parts]) -> Mapping[str, Any]:
        kept = digests(views["logits"]) if self._drafter.traits["keeps_draft_logits"] else []
        return {"margins": margins(views["logits"][0]), "draft_logits": kept}

    def _observed_combine(self, states: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        combined = self._combine(states, *arguments, **options)

        def keep(views: Mapping[str, Parts]) -> None:
            pairs = zip(digests(views["combined"]), digests(views["states"]), strict=True)
            self._combined = dict(pairs)

        self._record.look({"states": states, "combined": combined}, keep)
        return combined

    def _observed_keep(self, states: Any, positions: Any, slots: Any = None, *arguments: Any, **options: Any) -> None:
        if slots is not None and self._names:
            slots_of_layer = slots[0] if isinstance(slots, list) else slots
            tensors = {"positions": positions, "slots": slots_of_layer, "hidden_states": states}
            self._record.read("context", self._names, self._observed(tensors), self._inputs)
        self._keep(states, positions, slots, *arguments, **options)

    def _observed_logits(self, *arguments: Any, **options: Any) -> Any:
        logits = self._logits(*arguments, **options)
        if self._names:
            self._record.read("margins", self._names, {"logits": logits}, self._of_logits)
        return logits

    def _observed_calls(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*arguments: Any, **options: Any) -> Any:
            self._pass(options)
            return self._returned(forward(*arguments, **options))

        return observed

    def _observed_pieces(self, model: Any, inputs: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        self._pass(inputs)
        return self._returned(self._run_pieces(model, inputs, *arguments, **options))

    def _returned(self, made: Any) -> Any:
        """Observe the hidden states that the model passes to the next draft pass; return what it returned."""
        if self._names and self._receives_states:
            index = self._index - 1 if self._drafter.captured is None else lambda: self._index_reached - 1
            states = {"hidden_states": passed_on(made)}
            self._record.read("hidden_states", self._names, states, self._inputs, draft_pass=index)
        return made

    def _pass(self, options: Mapping[str, Any]) -> None:
        """Observe the model inputs of a draft pass, unless it is a dummy pass."""
        if not self._names:
            return
        tensors = self._observed(_without_padding(pass_inputs(options, self._drafter.layer), len(self._names)))
        index = self._index if self._drafter.captured is None else self._next
        bounds = bounds_of(self._drafter.layer)[: len(self._names)]
        self._record.read("drafting", self._names, tensors, self._inputs, index=index, blocks=[], bounds=bounds)
        self._index += 1


def _without_padding(tensors: Mapping[str, torch.Tensor], count: int) -> dict[str, torch.Tensor]:
    """Return the tensors of a draft pass cut to the first `count` requests, without padding."""
    num = {"starts": count + 1, "seq_lens": count, "tables": count}
    return {name: tensor[: num[name]] if name in num else tensor for name, tensor in tensors.items()}
