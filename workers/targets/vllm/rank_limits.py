"""Limits of engine specs and trace events with several ranks.

A limit returns an `Excess` (what is refused, and what is allowed), or None.
"""

from scenarios.capabilities import Excess, SpecLimit
from scenarios.events import AnyEvent, DummyStep, LoadWeights, Neighbour, Sleep, WakeUp
from scenarios.spec import EngineSpec

# Keys that are not simulated for several ranks, with the values that are, and the reason.
_ALLOWED = (
    ("layers", ("attention", "experts"), "states and windows of several ranks are not observed"),
    ("graphs", ("none",), "collectives of a captured graph are not simulated"),
    ("transfer", (None,), "connectors of several ranks are not observed"),
    ("offloading", (None,), "connectors of several ranks are not observed"),
    ("handoff", (None,), "connectors of several ranks are not observed"),
)
# The same for data-parallel ranks.
_ALLOWED_OF_DATA_RANKS = (
    ("layers", ("experts",), "vLLM runs the ranks of a model without experts as independent engines"),
    ("tensor_ranks", (1,), "ranks of several kinds are not simulated together with data-parallel ranks"),
    ("pipeline_ranks", (1,), "ranks of several kinds are not simulated together with data-parallel ranks"),
)
# Other drafters are part of the target, or read hidden states that a model with experts does not return.
_DRAFTERS_OF_EXPERTS = ("eagle", "draft_model", "ngram_gpu", "ngram")


def one_rank_beside_other_features(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with several ranks no recurrent states, windows, CUDA graphs and KV connectors."""
    allowed = (*(_ALLOWED_OF_DATA_RANKS if spec.data_ranks > 1 else ()), *(_ALLOWED if spec.num_ranks > 1 else ()))
    for key, values, reason in allowed:
        seen = getattr(spec, key)
        if seen not in values:
            one_rank = {"tensor_ranks": 1, "pipeline_ranks": 1, "data_ranks": 1}
            fixed = spec.model_copy(update=one_rank if key == "layers" else {key: values[0]})
            name = seen if isinstance(seen, str | int) else "set"
            return Excess(key, name, f"with several ranks {' and '.join(map(str, values))} is allowed", fixed, reason)
    return None


def experts_beside_other_features(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with layers experts only drafters that need nothing of the target's layers, and no CUDA graphs."""
    if spec.layers != "experts":
        return None
    if spec.num_speculative_tokens and spec.drafter not in _DRAFTERS_OF_EXPERTS:
        allowed = f"allowed with layers experts are {', '.join(_DRAFTERS_OF_EXPERTS)}"
        fixed = spec.model_copy(update={"drafter": "eagle"})
        return Excess("drafter", spec.drafter, allowed, fixed, "other drafters need another model")
    if spec.graphs != "none":
        fixed, reason = spec.model_copy(update={"graphs": "none"}), "the experts' kernel is not captured"
        return Excess("graphs", spec.graphs, "with layers experts none is allowed", fixed, reason)
    return None


def at_most_one_rank_per_gpu(gpus: int) -> SpecLimit:
    """Return the limit of a machine with `gpus` GPUs; without any, the trace may run on another machine."""

    def limit(spec: EngineSpec) -> Excess[EngineSpec] | None:
        if not gpus or spec.num_ranks <= gpus:
            return None
        key = "tensor_ranks" if spec.tensor_ranks > 1 else "pipeline_ranks"
        fixed = spec.model_copy(update={key: 1})
        found = f"this machine has {gpus} {'GPU' if gpus == 1 else 'GPUs'} for {spec.num_ranks} ranks"
        return Excess(key, getattr(spec, key), found, fixed)

    return limit


def drafter_supports_pipeline_ranks(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with several pipeline ranks no drafter draft_model, and drafts with asynchronous scheduling only.

    vLLM distributes the draft model's layers over the pipeline ranks as well, but calls it on the last rank only.
    Without asynchronous scheduling it schedules the drafts of a step before the token that the step samples.
    """
    if spec.pipeline_ranks == 1 or not spec.num_speculative_tokens:
        return None
    fixed, seen = spec.model_copy(update={"pipeline_ranks": 1}), spec.pipeline_ranks
    if spec.drafter == "draft_model":
        reason = "vLLM calls the draft model on the last rank only, which has not all of its layers"
        return Excess("pipeline_ranks", seen, "with drafter draft_model 1 is allowed", fixed, reason)
    if spec.depth == 1:
        reason = "vLLM schedules drafts before the token that precedes them, and a rank waits for ever"
        return Excess("pipeline_ranks", seen, "with depth 1 and drafts 1 is allowed", fixed, reason)
    return None


def no_sleep_of_several_ranks(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no sleep, other weights, dummy step or neighbour engine with several ranks."""
    if spec.num_ranks == 1 or not isinstance(event, Sleep | WakeUp | LoadWeights | DummyStep | Neighbour):
        return None
    return Excess("do", event.do, "not allowed with several ranks", None, "it is observed for one rank only")
