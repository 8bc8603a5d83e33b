"""Limits of engines: `fitted_to` replaces each refused value by a supported one and changes nothing else.

Covers request features, specification keys and probes, with and without draft tokens.
"""

from dataclasses import replace

import pytest

from scenarios.capabilities import (
    FEATURES,
    Capabilities,
    Excess,
    ExcludedBy,
    KeyAtMost,
    Limits,
    OneOf,
    ParamAtMost,
    Without,
    lacking,
)
from scenarios.events import AnyEvent, Preempt, Schedule, Submit
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from tests.scenarios.generated_traces import random_traces
from workers.targets.registry import known_engines, target_kind

# An engine that supports some, not all, values of each kind of capability.
SOME = Capabilities(
    events=("abort", "preempt"),
    hooks=("before_schedule", "after_launch"),
    features=tuple(feature for feature in FEATURES if feature != "grammar"),
    spec={
        **dict.fromkeys(EngineSpec.model_fields, ()),
        "block_size": (8, 16),
        "num_speculative_tokens": (0, 2),
        # A generated trace of a hybrid model has the default drafter, which supports no other values of these keys.
        "draft_sampling": ("greedy",),
        "last_match": ("dropped",),
    },
    devices={"sim": ("streams",)},
    policies=("eager", "lazy"),
    probes=("abort",),
    limits=Limits(
        features=(Without(("stop", "top_k"), when=lambda spec: spec.num_speculative_tokens > 0),),
        events=(OneOf(Preempt, "mode", ("drop",), "modes"), ParamAtMost("num_logprobs", lambda submit: 2)),
        spec=(
            ExcludedBy("prefix_cache", other=("layers", "hybrid"), fallback="attention", reason="states are lost"),
            KeyAtMost("max_num_seqs", lambda spec: spec.num_blocks, "num_blocks"),
        ),
    ),
)
ENGINES = {name: target_kind(name).capabilities for name in known_engines()} | {
    "nothing": Capabilities(),
    "some": SOME,
    "some without lanes": replace(SOME, devices={"sim": ()}),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_within_changes_only_refused_traces_until_supported(engine: str) -> None:
    capabilities = ENGINES[engine]
    for seed in range(60):
        original = random_traces()[seed]
        for trace in (original, for_engine(original, capabilities)):
            fixed = fitted_to(trace, capabilities)
            assert (fixed == trace) is (lacking(trace, capabilities) is None)
            assert lacking(fixed, capabilities) is None
            assert problems(fixed) == []
            assert fitted_to(fixed, capabilities) is fixed


SPEC = EngineSpec(block_size=8, num_speculative_tokens=2)
ASKED = Submit(tick=0, request="a", prompt=(1, 2), max_tokens=3)
BASE = Trace(spec=SPEC, events=(ASKED,))


def asking(**update: object) -> Trace:
    return BASE.model_copy(update={"events": (ASKED.model_copy(update=update),)})


def specified(**update: object) -> Trace:
    return BASE.model_copy(update={"spec": SPEC.model_copy(update=update)})


# For each message: the refused trace, and the trace that `fitted_to` returns.
REFUSED: dict[str, tuple[Trace, Trace]] = {
    "events.1.mode: deliver; allowed modes are drop": (
        BASE.model_copy(update={"events": (ASKED, Preempt(tick=1, request="a", mode="deliver"))}),
        BASE.model_copy(update={"events": (ASKED, Preempt(tick=1, request="a", mode="drop"))}),
    ),
    "events.0.at: before_process; allowed are before_schedule, after_launch": (
        asking(at="before_process"),
        asking(tick=1),
    ),
    "events.0.params.num_logprobs: 5; at most 2 is allowed": (
        asking(params=SamplingParams(num_logprobs=5)),
        asking(params=SamplingParams(num_logprobs=2)),
    ),
    "spec.num_speculative_tokens: 1; allowed are 0, 2": (
        specified(num_speculative_tokens=1),
        specified(num_speculative_tokens=0),
    ),
    "spec.prefix_cache: True; with layers hybrid False is allowed: states are lost": (
        specified(prefix_cache=True),
        specified(prefix_cache=True, layers="attention"),
    ),
    "spec.max_num_seqs: 200; num_blocks allows at most 128": (specified(max_num_seqs=200), specified(max_num_seqs=128)),
    "schedule.policy: random; allowed are eager, lazy": (
        BASE.model_copy(update={"schedule": Schedule(policy="random")}),
        BASE,
    ),
    "expect.resume: allowed probes are abort": (
        BASE.model_copy(update={"expect": {"abort": 1, "resume": 2}}),
        BASE.model_copy(update={"expect": {"abort": 1}}),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_limit_message_and_replacement_cover_one_value(message: str) -> None:
    trace, fixed = REFUSED[message]
    assert lacking(trace, SOME) == message
    assert fitted_to(trace, SOME) == fixed


def test_feature_unsupported_with_drafts_is_removed_only_there() -> None:
    trace = asking(stop=(5,), params=SamplingParams(temperature=1.0, top_k=3))
    message = lacking(trace, SOME) or ""
    assert message.startswith(
        "events.0: a request with stop; allowed features are accept, priority, session, data_rank, continues, "
    )
    assert "top_k" not in message
    assert fitted_to(trace, SOME) == asking(params=SamplingParams(temperature=1.0))
    plain = trace.model_copy(update={"spec": SPEC.model_copy(update={"num_speculative_tokens": 0})})
    assert lacking(plain, SOME) is None


def test_lacking_reports_first_event_for_any_order_of_limits() -> None:
    events = (ASKED, ASKED.model_copy(update={"stop": (1,)}), ASKED.model_copy(update={"at": "before_process"}))
    trace = BASE.model_copy(update={"events": events, "spec": SPEC.model_copy(update={"num_speculative_tokens": 1})})
    assert (lacking(trace, SOME) or "").startswith("events.1: a request with stop")


def test_within_removes_request_too_large_for_new_specification() -> None:
    long = ASKED.model_copy(update={"request": "b", "prompt": tuple(range(30))})
    small = Capabilities(spec={**dict.fromkeys(EngineSpec.model_fields, ()), "num_blocks": (2,)})
    fixed = fitted_to(Trace(spec=SPEC, events=(ASKED, long)), small)
    assert fixed.spec.num_blocks == 2
    assert [event.request for event in fixed.submits()] == ["a"]


def test_within_asserts_if_limits_exceed_each_other() -> None:
    def to(value: int) -> ParamAtMost:
        return ParamAtMost("num_logprobs", lambda submit: value)

    def never_none(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        wants_more = isinstance(event, Submit) and event.params.num_logprobs < 2
        fixed = event.model_copy(update={"params": SamplingParams(num_logprobs=3)})
        return Excess("params.num_logprobs", "few", "more are wanted", fixed) if wants_more else None

    with pytest.raises(AssertionError, match="changes for one limit exceed another"):
        fitted_to(BASE, replace(SOME, limits=Limits(events=(to(1), never_none))))
