"""Extended traces: those of our own engine stay as they are, others ask for what their engine has besides."""

from dataclasses import replace

from scenarios.capabilities import CONTINUES, FEATURES, Limits, Without, lacking, within
from scenarios.extensions import extended
from scenarios.sampling import SamplingParams
from scenarios.strategies import random_trace
from scenarios.trace import Trace, problems
from tests.scenarios.drawn import drawn, random_traces
from workers.targets.specstorm import Specstorm
from workers.targets.vllm.names import VLLM, VLLM_V1

OURS = Specstorm().capabilities
MORE = replace(OURS, features=FEATURES, spec={**OURS.spec, "drafter_quality": ()})


def test_traces_of_our_own_engine_stay_as_they_are() -> None:
    for seed in range(100):
        trace = random_traces()[seed]
        assert extended(trace, OURS) is trace
        assert within(trace, OURS) == trace


def test_an_engine_with_more_features_gets_them_in_valid_traces() -> None:
    fewer = replace(MORE, spec={**MORE.spec, "drafter": ("eagle", "eagle3")})
    without = Without(("logit_bias",), when=lambda spec: spec.num_speculative_tokens > 0)
    beside = replace(MORE, limits=Limits(features=(without,)))
    for capabilities in (MORE, fewer, beside):
        traces = [extended(trace, capabilities) for trace in random_traces()[:120]]
        assert all(problems(trace) == [] for trace in traces)
        assert all(lacking(within(trace, capabilities), capabilities) is None for trace in traces)
        submits = [event for trace in traces for event in trace.submits()]
        assert any(trace.spec.drafter == "eagle3" for trace in traces) is (capabilities is fewer)
        assert {event.params.num_prompt_logprobs for event in submits} == set(range(7))
        for feature in set(FEATURES) - {CONTINUES, "session", *OURS.features}:
            default = SamplingParams.model_fields[feature].default
            assert any(getattr(event.params, feature) != default for event in submits), feature
        assert {trace.spec.drafter_quality for trace in traces} == {"good", "mediocre", "bad"}
        # The same again, whatever was drawn before.
        assert extended(random_trace(7), capabilities) == traces[7]


def test_first_runners_get_logits_reasoning_and_processors_where_these_may_be() -> None:
    traces = drawn(VLLM_V1)
    assert {trace.spec.logprobs_mode for trace in traces} == {"raw", "processed", "raw_logits", "processed_logits"}
    assert any(trace.spec.reasoning_end is not None and has_grammar(trace) for trace in traces)
    processed = [trace for trace in traces if trace.spec.logits_processor]
    assert processed
    assert all(trace.spec.num_speculative_tokens == 0 for trace in processed)
    assert any(submit.params.no_repeats for trace in processed for submit in trace.submits())
    assert not any(trace.spec.logits_processor for trace in drawn(VLLM))


def has_grammar(trace: Trace) -> bool:
    return any(submit.params.grammar for submit in trace.submits())
