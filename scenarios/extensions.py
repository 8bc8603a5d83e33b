"""What random traces ask for only of engines that can do it: their numbers know nothing of it, and stay as they are.

Every draw is labelled by the trace's seed and by what it is about, so an extended trace is a function of the trace and
of what the engine can do. Of an engine that can do nothing beside what numbers stand for it is the trace itself.
"""

from scenarios.capabilities import Capabilities, allowed_values
from scenarios.drafters import DRAFTERS
from scenarios.draw import below
from scenarios.events import AnyEvent, Submit
from scenarios.features import refusals
from scenarios.sampling import BIAS_MAX
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

_SITE = "extension"
# Half of the drafters with weights predict well: what is kept and what is not meet.
QUALITIES = ("good", "good", "mediocre", "bad")
HYBRID_ONE_IN = 6
BIASES = (-BIAS_MAX, BIAS_MAX, -2.0, -0.5, 1.0, 3.0)


def extended(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace that asks besides for what only some engines can do, as far as this one can."""
    spec = _extended_spec(trace.spec, trace.seed, capabilities)
    events = [
        _extended_submit(event, index, trace.seed, spec, capabilities) if isinstance(event, Submit) else event
        for index, event in enumerate(trace.events)
    ]
    is_same = spec == trace.spec and all(one is other for one, other in zip(events, trace.events, strict=True))
    return trace if is_same else trace.model_copy(update={"spec": spec, "events": tuple(events)})


def _extended_spec(spec: EngineSpec, seed: int, capabilities: Capabilities) -> EngineSpec:
    """Return a specification with a quality of its drafter, and one of the drafters that numbers do not know.

    An engine whose hybrid models do without something has such a model in one trace of so many.
    """
    update: dict[str, object] = {}
    if capabilities.hybrid_without:
        if not below(HYBRID_ONE_IN, seed, _SITE, "hybrid", 0):
            nothing = {key: type(getattr(spec, key))() for key in capabilities.hybrid_without}
            # Nobody drafts, whoever would.
            drafter = EngineSpec.model_fields["drafter"].default
            return spec.model_copy(update={"layers": "hybrid", "drafter": drafter, **nothing})
        # Else what does without by chance would be hybrid nearly always.
        update["layers"] = "attention"
    qualities = allowed_values("drafter_quality", capabilities)
    if qualities is None or len(qualities) > 1:
        update["drafter_quality"] = QUALITIES[below(len(QUALITIES), seed, _SITE, "quality", 0)]
    drafters = allowed_values("drafter", capabilities) or DRAFTERS
    others = [drafter for drafter in drafters if drafter not in DRAFTERS]
    # In place of one that the engine does not have either.
    if others and spec.drafter not in drafters and below(2, seed, _SITE, "has drafter", 0):
        other = others[below(len(others), seed, _SITE, "drafter", 0)]
        if not refusals(spec.model_copy(update={"drafter": other}), ()):
            update["drafter"] = other
    return spec.model_copy(update=update) if update else spec


def _extended_submit(event: Submit, index: int, seed: int, spec: EngineSpec, capabilities: Capabilities) -> AnyEvent:
    """Return a submit that asks for logprobs of its prompt in one trace of four, and for biases in half of all."""
    update: dict[str, object] = {}

    def pick(what: str, bound: int, number: int = 0) -> int:
        return below(bound, seed, _SITE, f"{what} of {index}", number)

    has_prompts = "num_prompt_logprobs" in capabilities.features and not below(4, seed, _SITE, "prompts", 0)
    if has_prompts and pick("has prompt", 3):
        update["num_prompt_logprobs"] = 1 + pick("prompt", 6)
    is_beside = bool(spec.num_speculative_tokens) and "logit_bias" in capabilities.features_without_drafts
    has_biases = "logit_bias" in capabilities.features and not is_beside and below(2, seed, _SITE, "biases", 0)
    if has_biases and pick("has biases", 2):
        tokens = sorted({pick("token", spec.vocab_size, number) for number in range(1 + pick("biases", 4))})
        update["logit_bias"] = tuple((token, BIASES[pick("bias", len(BIASES), token)]) for token in tokens)
    return event.model_copy(update={"params": event.params.model_copy(update=update)}) if update else event
