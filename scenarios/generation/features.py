"""Situations for features that only some engines have; applied before lengths are rescaled."""

from collections.abc import Mapping, Sequence

from scenarios.capabilities import Capabilities, ExcludedBy
from scenarios.drafters import DRAFTERS, Drafter
from scenarios.features import refusals
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.control_plane import control_plane_events
from scenarios.generation.situation import (
    HYBRID,
    OWN_DRAFTS,
    Requirement,
    Situation,
    allows,
    allows_any,
    feature,
    situation,
)
from scenarios.generation.weights import TABLE
from scenarios.sampling import PARAMS, Feature
from scenarios.spec import EngineSpec

# Half of the drafters with weights predict well, so that both accepted and rejected drafts occur.
QUALITIES = ("good", "good", "mediocre", "bad")
# Drafters that mostly occur with hybrid models; these numbers balance them for attention-only models.
WITHOUT_STATES: tuple[Drafter, ...] = ("draft_model", "draft_model", "eagle", "eagle", "ngram_gpu")


@situation(allows("logprobs_mode", "raw_logits"), allows("logprobs_mode", "processed_logits"), stage="feature")
def logprobs_are_logits(trace: TraceBuilder) -> None:
    """Let every request return logits instead of logprobs."""
    trace.set(logprobs_mode=f"{trace.spec.logprobs_mode}_logits")
    trace.add_param("num_logprobs")


@situation(allows_any("reasoning_end"), stage="feature")
def grammars_wait_for_reasoning(trace: TraceBuilder) -> None:
    """Let grammars apply only after a reasoning-end token."""
    trace.set(reasoning_end=trace.pick(trace.spec.vocab_size, "reasoning end"))


@situation(HYBRID, allows("recurrent_layers", "gated_delta"), stage="feature")
def gated_delta_layers(trace: TraceBuilder) -> None:
    """Use gated delta nets as the recurrent layers."""
    trace.set(recurrent_layers="gated_delta")


def _not_with_hybrids(engine: Capabilities) -> Sequence[str]:
    """Return the feature keys that the engine does not support with hybrid models."""
    limits = [limit for limit in engine.limits.spec if isinstance(limit, ExcludedBy)]
    return [limit.key for limit in limits if limit.other == ("layers", "hybrid")]


def _defaults(*keys: str) -> Mapping[str, object]:
    return {key: EngineSpec.model_fields[key].default for key in keys}


@situation(
    Requirement("hybrid models without some features", engine=lambda engine: bool(_not_with_hybrids(engine))),
    stage="feature",
)
def hybrid_model(trace: TraceBuilder) -> None:
    """Use a hybrid model (attention and recurrent layers), without features it excludes."""
    nothing = {key: type(getattr(trace.spec, key))() for key in _not_with_hybrids(trace.engine)}
    # There are no draft tokens, so the drafter is the default.
    trace.set(layers="hybrid", **_defaults("drafter", "draft_sampling"), **nothing)


@situation(OWN_DRAFTS, stage="feature", unless=("hybrid_model",))
def drafters_of_the_engine(trace: TraceBuilder) -> None:
    """Replace drafters that the engine lacks, and a third of the others, by the engine's own."""
    spec, engine = trace.spec, trace.engine
    if _not_with_hybrids(engine):
        # Otherwise nearly all traces without the excluded features would be hybrid.
        trace.set(layers="attention")
    qualities = engine.allowed("drafter_quality")
    if qualities is None or len(qualities) > 1:
        trace.set(drafter_quality=QUALITIES[trace.pick(len(QUALITIES), "quality")])
    drafters = engine.allowed("drafter") or DRAFTERS
    has_others = any(drafter not in DRAFTERS for drafter in drafters)
    is_replaced = spec.drafter not in drafters or trace.one_in(3, "another drafter")
    if has_others and is_replaced and spec.num_speculative_tokens:
        other = drafters[trace.pick(len(drafters), "drafter")]
        if not refusals(spec.model_copy(update={"drafter": other}), ()):
            trace.set(drafter=other)
    is_guessed = trace.spec.drafter == "draft_model" and spec.draft_sampling == "greedy"
    has_hybrids = engine.allows("layers", "hybrid") and not engine.scripts_drafts
    if is_guessed and spec.num_speculative_tokens and has_hybrids:
        # All drafters of this engine predict tokens, so sampled requests do not need the draft model.
        other = WITHOUT_STATES[trace.pick(len(WITHOUT_STATES), "without states")]
        if engine.allows("drafter", other):
            trace.set(drafter=other, layers="attention")


def _of_parameter(key: str) -> Situation[TraceBuilder]:
    """Return a situation that gives requests the sampling parameter `key`."""

    def add(trace: TraceBuilder) -> None:
        trace.add_param(key)

    along_with = "logprobs_are_logits" if key == "num_prompt_logprobs" else ""
    return Situation(name=key, needs=(feature(key),), change=add, stage="feature", along_with=along_with)


FEATURES: tuple[Situation[TraceBuilder], ...] = (
    control_plane_events,
    logprobs_are_logits,
    grammars_wait_for_reasoning,
    gated_delta_layers,
    hybrid_model,
    drafters_of_the_engine,
    *(_of_parameter(key) for key, each in PARAMS.items() if each.added is not Feature().added and key in TABLE),
)
