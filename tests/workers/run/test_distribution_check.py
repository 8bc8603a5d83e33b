"""Distribution check: agrees on correct engines, finds a changed distribution."""

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec, SamplingMethod
from scenarios.trace import Trace
from tests.workers.targets.black_box import BlackBoxKind
from tests.workers.targets.sampler_box import SamplerBoxKind
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Fact, fact
from workers.record.verdict import Agreed, Diverged, Verdict
from workers.run.distribution_check import check_distribution, without_drafts
from workers.shrink.fingerprint import signature_of
from workers.targets.specstorm import Specstorm

VALUE_CACHE = ModelValueCache()
PARAMS = {
    "hot": SamplingParams(temperature=4.0),
    "likely": SamplingParams(temperature=2.0, top_k=5),
    "greedy": SamplingParams(),
}


def trace_of(sampling: SamplingMethod = "standard", faults: tuple[str, ...] = ()) -> Trace:
    spec = EngineSpec(
        sampling=sampling,
        vocab_size=10,
        layers="attention",
        drafter="draft_model",
        num_speculative_tokens=2,
        max_num_seqs=8,
        max_model_len=16,
    )
    submits = tuple(
        Submit(tick=0, request=name, prompt=(3, index), max_tokens=4, accept="10", params=params)
        for index, (name, params) in enumerate(PARAMS.items())
    )
    return Trace(spec=spec, events=submits, faults=faults).explicit()


def checked(trace: Trace, num_copies: int) -> Verdict:
    return check_distribution(trace, VALUE_CACHE, Specstorm(), num_copies)


def test_distribution_check_agrees_on_correct_engine() -> None:
    assert isinstance(checked(trace_of("standard"), 160), Agreed)
    assert isinstance(checked(trace_of("block"), 160), Agreed)


def test_distribution_check_finds_engine_that_accepts_all_drafts() -> None:
    trace = trace_of(faults=("ascend-13470-no-noise",))
    verdict = checked(trace, 160)
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == ("tokens", "distribution")
    assert verdict.difference.request in ("hot", "likely")
    assert isinstance(verdict.difference.expected, Fact)
    assert verdict.difference.expected.kind in ("same_law", "same_law_of_several")
    assert verdict.difference.expected.values["copies"] == 160
    signature = signature_of(verdict, trace)
    assert signature is not None
    assert signature.bug == "tokens distribution"


@pytest.mark.parametrize("leaks", [False, True])
def test_distribution_check_compares_output_engine_with_depth_1(leaks: bool) -> None:
    kind = SamplerBoxKind("leak" if leaks else "none")
    spec = EngineSpec(vocab_size=10, max_model_len=16)
    submit = Submit(tick=0, request="a", prompt=(3, 4), max_tokens=4, params=SamplingParams(temperature=1.0))
    verdict = check_distribution(Trace(spec=spec, events=(submit,)), VALUE_CACHE, kind, 480)
    assert isinstance(verdict, Diverged if leaks else Agreed)


def test_distribution_check_reports_engine_error() -> None:
    kind = BlackBoxKind("crash")
    spec = EngineSpec(vocab_size=10)
    submit = Submit(tick=0, request="a", prompt=(3, 4), max_tokens=9, params=PARAMS["hot"])
    verdict = check_distribution(Trace(spec=spec, events=(submit,)), VALUE_CACHE, kind, 10)
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.variable, verdict.difference.actual) == ("end", fact("failed", error="RuntimeError"))


def test_distribution_check_refuses_unsuitable_traces() -> None:
    synthetic = trace_of().spec.model_copy(update={"sampling": "synthetic", "synthetic_rates": (0.5,)})
    greedy = tuple(submit for submit in trace_of().submits() if submit.request == "greedy")
    alike = EngineSpec(depth=1, num_speculative_tokens=0)
    for update, message in (
        ({"spec": synthetic}, "synthetic accepts draft tokens"),
        ({"events": greedy}, "no request has a temperature"),
        ({"spec": alike}, "nothing to compare with"),
    ):
        with pytest.raises(ValueError, match=message):
            checked(trace_of().model_copy(update=update), 10)


def test_plain_changes_only_supported_keys() -> None:
    trace = trace_of()
    ours, box = (without_drafts(trace, kind.capabilities).spec for kind in (Specstorm(), SamplerBoxKind()))
    assert (ours.depth, ours.num_speculative_tokens) == (1, 0)
    assert (box.depth, box.num_speculative_tokens) == (1, 2)
