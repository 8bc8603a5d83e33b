"""Extensions of random traces: features that only some engines have, added by draws of their own.

Every draw is labelled by the trace's seed and by its subject, so an extended trace is a function of the trace and the
engine's capabilities, and the trace's own numbers stay as they are. Without such features it is the trace itself.
"""

from scenarios.capabilities import Capabilities, NothingBeside
from scenarios.control_draws import controlled
from scenarios.drafters import DRAFTERS, Drafter
from scenarios.draw import below
from scenarios.draw_params import added_params
from scenarios.events import Submit
from scenarios.features import refusals
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

_SITE = "extension"
# Half of the drafters with weights predict well, so that both accepted and rejected drafts occur.
QUALITIES = ("good", "good", "mediocre", "bad")
HYBRID_ONE_IN = 6
GATED_ONE_IN = 2
LOGITS_ONE_IN = 8
REASONING_ONE_IN = 4
# Drafters that are drawn beside hybrid models as well, and so seldom beside others.
WITHOUT_STATES: tuple[Drafter, ...] = ("draft_model", "draft_model", "eagle", "eagle", "ngram_gpu")


def extended(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with features and events added that only some engines have, as far as this one has them."""
    trace = controlled(trace, capabilities)
    spec = _extended_spec(trace.spec, trace.seed, capabilities)
    features = capabilities.features_on(spec)
    events = [
        added_params(event, index, trace.seed, spec, features) if isinstance(event, Submit) else event
        for index, event in enumerate(trace.events)
    ]
    is_same = spec == trace.spec and all(one is other for one, other in zip(events, trace.events, strict=True))
    return trace if is_same else trace.model_copy(update={"spec": spec, "events": tuple(events)})


def _extended_spec(spec: EngineSpec, seed: int, capabilities: Capabilities) -> EngineSpec:
    """Return a specification with a drafter quality, and perhaps a drafter that `flat_traces` does not know.

    In one trace of LOGITS_ONE_IN logits come in the place of logprobs, in one of REASONING_ONE_IN grammars
    wait for a token. Keys of one engine alone are its own draws.

    Of hybrid models one in GATED_ONE_IN has gated delta nets, where there are any.

    An engine whose hybrid models lack some features gets such a model in one trace of HYBRID_ONE_IN.
    """
    update = dict(capabilities.own_draws.keys(lambda bound, what, index: below(bound, seed, _SITE, what, index)))
    if capabilities.allows("logprobs_mode", f"{spec.logprobs_mode}_logits") and not below(
        LOGITS_ONE_IN, seed, _SITE, "logits", 0
    ):
        update["logprobs_mode"] = f"{spec.logprobs_mode}_logits"
    if capabilities.allowed("reasoning_end") is None and not below(REASONING_ONE_IN, seed, _SITE, "reasoning", 0):
        update["reasoning_end"] = below(spec.vocab_size, seed, _SITE, "reasoning end", 0)
    has_gated = spec.layers == "hybrid" and capabilities.allows("recurrent_layers", "gated_delta")
    if has_gated and not below(GATED_ONE_IN, seed, _SITE, "gated", 0):
        update["recurrent_layers"] = "gated_delta"
    limits = [limit for limit in capabilities.limits.spec if isinstance(limit, NothingBeside)]
    without = [limit.key for limit in limits if limit.beside == ("layers", "hybrid")]
    if without:
        if not below(HYBRID_ONE_IN, seed, _SITE, "hybrid", 0):
            nothing = {key: type(getattr(spec, key))() for key in without}
            # Nothing is drafted, so the drafter is the default one.
            drafting = {key: EngineSpec.model_fields[key].default for key in ("drafter", "draft_sampling")}
            return spec.model_copy(update={**update, "layers": "hybrid", **drafting, **nothing})
        # Otherwise a specification that lacks these features by chance would nearly always be hybrid.
        update["layers"] = "attention"
    qualities = capabilities.allowed("drafter_quality")
    if qualities is None or len(qualities) > 1:
        update["drafter_quality"] = QUALITIES[below(len(QUALITIES), seed, _SITE, "quality", 0)]
    drafters = capabilities.allowed("drafter") or DRAFTERS
    has_others = any(drafter not in DRAFTERS for drafter in drafters)
    # In the place of one that this engine lacks, and of one in three others.
    is_replaced = spec.drafter not in drafters or not below(3, seed, _SITE, "another drafter", 0)
    if has_others and is_replaced and spec.num_speculative_tokens:
        other = drafters[below(len(drafters), seed, _SITE, "drafter", 0)]
        if not refusals(spec.model_copy(update={"drafter": other}), ()):
            update["drafter"] = other
    is_guessed = update.get("drafter", spec.drafter) == "draft_model" and spec.draft_sampling == "greedy"
    has_hybrids = capabilities.allows("layers", "hybrid") and not capabilities.scripts_drafts
    if is_guessed and spec.num_speculative_tokens and has_hybrids:
        # Drafts of any drafter are its own here: who has to predict need not be a draft model.
        other = WITHOUT_STATES[below(len(WITHOUT_STATES), seed, _SITE, "without states", 0)]
        if capabilities.allows("drafter", other):
            update |= {"drafter": other, "layers": "attention"}
    return spec.model_copy(update=update) if update else spec
