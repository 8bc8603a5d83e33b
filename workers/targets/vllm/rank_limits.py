"""Limits of engine specs and trace events with several ranks.

A limit returns an `Excess` (what is refused, and what is allowed), or None.
"""

from scenarios.capabilities import Excess
from scenarios.events import AnyEvent, DummyStep, LoadWeights, Neighbour, Sleep, WakeUp
from scenarios.spec import EngineSpec

# Keys that are not simulated for several ranks, with their only value, and the reason.
_ONLY = (
    ("layers", "attention", "states and windows of several ranks are not observed"),
    ("graphs", "none", "collectives of a captured graph are not simulated"),
    ("transfer", None, "connectors of several ranks are not observed"),
    ("offloading", None, "connectors of several ranks are not observed"),
    ("handoff", None, "connectors of several ranks are not observed"),
)


def one_rank_beside_other_features(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with several ranks only attention layers, no CUDA graphs and no KV connector."""
    for key, only, reason in _ONLY if spec.num_ranks > 1 else ():
        seen = getattr(spec, key)
        if seen != only:
            fixed = spec.model_copy(update={"tensor_ranks": 1, "pipeline_ranks": 1})
            name = seen if isinstance(seen, str) else "set"
            return Excess(key, name, f"with several ranks {only} is allowed", fixed, reason)
    return None


def drafter_supports_pipeline_ranks(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no drafter draft_model with several pipeline ranks.

    vLLM distributes the draft model's layers over the pipeline ranks as well, but calls it on the last rank only.
    """
    if spec.pipeline_ranks == 1 or not spec.num_speculative_tokens or spec.drafter != "draft_model":
        return None
    fixed = spec.model_copy(update={"pipeline_ranks": 1})
    reason = "vLLM calls the draft model on the last rank only, which has not all of its layers"
    return Excess("pipeline_ranks", spec.pipeline_ranks, "with drafter draft_model 1 is allowed", fixed, reason)


def no_sleep_of_several_ranks(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no sleep, other weights, dummy step or neighbour engine with several ranks."""
    if spec.num_ranks == 1 or not isinstance(event, Sleep | WakeUp | LoadWeights | DummyStep | Neighbour):
        return None
    return Excess("do", event.do, "not allowed with several ranks", None, "it is observed for one rank only")
