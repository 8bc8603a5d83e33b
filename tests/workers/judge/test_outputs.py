"""Output comparison: exact for exact engines, else up to near ties in both runs."""

from math import inf
from typing import Any

import pytest

from scenarios.events import Abort, AnyEvent, Pause, Submit
from scenarios.sampling import Output, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBoxKind
from workers.judge.outputs import Comparison, compare
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import NEAR_TIE, check

SPEC = EngineSpec(vocab_size=8)
MARGIN = 1e-4
# The two most likely tokens after any tokens, and a third one.
HIGH, LOW = -0.5, -0.50001


def trace_of(count: int = 3, spec: EngineSpec = SPEC, is_given_up: bool = False, **asked: Any) -> Trace:
    params = SamplingParams.model_validate({"num_logprobs": count, **asked})
    submit = Submit(tick=0, request="a", prompt=(1,), max_tokens=3, params=params)
    events: tuple[AnyEvent, ...] = (submit, Abort(tick=2, request="a")) if is_given_up else (submit,)
    return Trace(spec=spec, events=events)


def output(*groups: tuple[int | float, ...], reason: str = "length") -> Output:
    """Return an output with one group of logprobs per token, its own first."""
    return Output(tuple(int(group[0]) for group in groups), reason, tuple(value for group in groups for value in group))


def compared(seen: Output, wanted: Output, margin: float = MARGIN, trace: Trace | None = None) -> Comparison:
    return compare(trace or trace_of(), {"a": seen}, {"a": wanted}, margin)


FIRST = (4, -0.1, 4, -0.1, 2, -3.0)
SEEN = output(FIRST, (5, HIGH, 5, HIGH, 6, LOW), (0, -0.2, 0, -0.2, 1, -2.0))
WANTED = output(FIRST, (6, HIGH, 6, HIGH, 5, LOW), (7, -0.2, 7, -0.2, 1, -2.0))


def test_compare_stops_at_near_tie() -> None:
    assert compared(SEEN, WANTED) == Comparison(None, ("a",))
    assert compared(SEEN, SEEN) == Comparison(None, ())
    shorter = output(FIRST, (6, HIGH, 6, HIGH, 5, LOW), reason="stop")
    assert compared(SEEN, shorter) == Comparison(None, ("a",))


def test_compare_request_aborted_by_pause_by_common_tokens() -> None:
    trace = trace_of()
    paused = trace.model_copy(update={"events": (*trace.events, Pause(tick=2, mode="abort"))})
    short = output(FIRST, reason="abort")
    assert compared(short, SEEN, trace=paused) == Comparison(None, ())
    assert compared(short, SEEN).difference is not None
    assert compared(output(FIRST), SEEN, trace=paused).difference is not None


def test_compare_exact_engine_has_no_near_ties() -> None:
    found = compared(SEEN, WANTED, 0.0).difference
    assert found is not None
    assert (found.variable, found.position, found.expected, found.actual) == ("tokens", 1, 6, 5)
    assert compare(trace_of(), {"a": SEEN}, {"a": WANTED}).difference == found


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ((5, HIGH, 5, HIGH, 6, HIGH - 0.001), (6, HIGH, 6, HIGH, 5, LOW)),
        ((5, HIGH, 5, HIGH, 6, LOW), (6, HIGH, 6, HIGH, 5, HIGH - 0.001)),
        ((5, HIGH, 5, HIGH, 3, LOW), (6, HIGH, 6, HIGH, 5, LOW)),
        ((5, HIGH, 5, HIGH, 6, LOW), (6, HIGH, 6, HIGH, 3, LOW)),
        ((5, HIGH), (6, HIGH)),
    ],
)
def test_compare_near_tie_needs_logprobs_of_both_runs(
    seen: tuple[int | float, ...], wanted: tuple[int | float, ...]
) -> None:
    found = compared(output(seen), output(wanted), trace=trace_of(len(seen) // 2)).difference
    assert found is not None
    assert (found.variable, found.position) == ("tokens", 0)


def test_compare_sampled_token_is_no_near_tie() -> None:
    found = compared(SEEN, WANTED, trace=trace_of(temperature=1.0)).difference
    assert found is not None
    assert found.variable == "tokens"


def test_compare_tokens_before_near_tie() -> None:
    other = output((4, -0.2, 4, -0.2, 2, -3.0), *[(6, HIGH, 6, HIGH, 5, LOW)])
    found = compared(SEEN, other).difference
    assert found is not None
    assert found.variable == "logprobs"


def test_compare_near_tie_of_raw_logprobs_includes_penalties() -> None:
    # The second token came once: a penalty of 1 makes up for a logprob that is 1 more.
    first = (6, -0.1, 6, -0.1, 2, -3.0)
    seen = output(first, (5, -1.6, 6, -0.6, 5, -1.6))
    wanted = output(first, (6, -0.6, 6, -0.6, 5, -1.6))
    for key in ("presence_penalty", "frequency_penalty"):
        enough: dict[str, Any] = {key: 1.0}
        less: dict[str, Any] = {key: 0.5}
        assert compared(seen, wanted, trace=trace_of(**enough)).near_ties == ("a",)
        assert compared(seen, wanted, trace=trace_of(**less)).difference is not None
    pushed: dict[str, Any] = {"logit_bias": ((6, -1.0),)}
    assert compared(seen, wanted, trace=trace_of(**pushed)).near_ties == ("a",)
    both: dict[str, Any] = {"presence_penalty": 1.0, "repetition_penalty": 2.0}
    assert compared(seen, wanted, trace=trace_of(**both)).difference is not None, "its effect on the logit is unknown"
    processed = SPEC.model_copy(update={"logprobs_mode": "processed"})
    assert compared(seen, wanted, trace=trace_of(spec=processed, presence_penalty=1.0)).difference is not None
    assert compared(SEEN, WANTED, trace=trace_of(spec=processed, **both)).near_ties == ("a",)


def test_compare_only_requested_logprobs() -> None:
    wide, narrow = output(FIRST, FIRST, FIRST), output(*[(4, -0.1, 4, -0.1)] * 3)
    other = output(*[(4, -0.1, 4, -0.1, 3, -2.5)] * 3)
    assert compared(wide, narrow, trace=trace_of(2)).difference is None
    assert compared(wide, other, trace=trace_of(2)).difference is None
    assert compared(wide, Output(wide.tokens, "length"), trace=trace_of(0)).difference is None
    for less in (narrow, other, Output(wide.tokens, "length")):
        found = compared(wide, less, trace=trace_of(3)).difference
        assert found is not None
        assert found.variable == "logprobs"


def test_compare_tolerance_is_relative_for_unlikely_tokens() -> None:
    likely, seen, wanted = (1, 0.0), (2, -22.631347), (2, -22.631454)
    assert compared(output((*likely, *seen)), output((*likely, *wanted))).difference is None
    assert compared(output((*likely, 2, -22.6311)), output((*likely, *wanted))).difference is not None


@pytest.mark.parametrize(("value", "is_close"), [(-0.10009, True), (-0.1002, False)])
def test_compare_logprobs_within_tolerance(value: float, is_close: bool) -> None:
    seen = output((4, value, 4, value, 2, -3.0))
    for margin in (0.0, MARGIN):
        assert (compared(seen, output(FIRST), margin).difference is None) is is_close


@pytest.mark.parametrize(("margin", "is_close"), [(MARGIN, False), (1e-3, True)])
def test_compare_logprobs_within_logit_margin(margin: float, is_close: bool) -> None:
    # Found with vLLM and two allowed tokens: a request alone, and the same request in a batch of four rows.
    seen, wanted = (
        output((14, first, 14, first, 21, second)) for first, second in ((-0.203805, -1.690762), (-0.203834, -1.690634))
    )
    assert (compared(seen, wanted, margin).difference is None) is is_close


@pytest.mark.parametrize(
    ("mode", "params", "is_close"),
    [
        ("processed", {"repetition_penalty": 0.125}, True),
        ("processed", {"repetition_penalty": 8.0}, True),
        ("processed", {"temperature": 0.125}, True),
        ("processed", {"repetition_penalty": 2.0}, False),
        ("raw", {"repetition_penalty": 0.125}, False),
    ],
)
def test_compare_tolerance_of_processed_logprobs_scales_with_factor(
    mode: str, params: dict[str, float], is_close: bool
) -> None:
    asked = SamplingParams.model_validate({"num_logprobs": 1, **params})
    event = Submit(tick=0, request="a", prompt=(1,), max_tokens=1, params=asked)
    trace = Trace(spec=SPEC.model_copy(update={"logprobs_mode": mode}), events=(event,))
    seen, wanted = (output((3, value, 3, value)) for value in (-1.0, -1.0003))
    assert (compared(seen, wanted, trace=trace).difference is None) is is_close


def test_compare_ranks_may_swap_in_near_tie() -> None:
    one, other = (4, -0.1, 4, -0.1, 2, -3.0, 3, -3.00001), (4, -0.1, 4, -0.1, 3, -3.0, 2, -3.00001)
    trace = trace_of(4)
    assert compared(output(one), output(other), trace=trace).difference is None
    assert compared(output(one), output(other), 0.0, trace).difference is not None
    last = (4, -0.1, 4, -0.1, 2, -3.0, 7, -3.00001)
    assert compared(output(last), output(one), trace=trace).difference is None, "the next one is not shown"
    apart = (4, -0.1, 4, -0.1, 2, -3.0, 3, -3.00001, 5, -4.0)
    swapped = (4, -0.1, 4, -0.1, 2, -3.0, 5, -3.00001, 3, -4.0)
    assert compared(output(apart), output(swapped), trace=trace_of(5)).difference is not None
    own = (4, -0.1, 3, -0.1, 2, -3.0)
    assert compared(output(own), output(FIRST)).difference is not None


def test_compare_forbidden_tokens_may_differ() -> None:
    one, other = (4, -0.1, 4, -0.1, 2, -inf), (4, -0.1, 4, -0.1, 3, -inf)
    assert compared(output(one), output(other)).difference is None
    assert compared(output(one), output(other), 0.0).difference is not None
    assert compared(output(one), output(FIRST)).difference is not None
    # A request in the same batch has a top-p: practically impossible tokens are masked in all rows.
    least = (4, -0.1, 4, -0.1, 2, -114.3)
    assert compared(output(least), output(other)).difference is None
    assert compared(output(least), output(other), 0.0).difference is not None
    assert compared(output((4, -0.1, 4, -0.1, 2, -80.0)), output(other)).difference is not None


@pytest.mark.parametrize(("gap", "is_possible"), [(184.0, False), (80.0, True)])
def test_compare_logit_far_below_largest_is_impossible(gap: float, is_possible: bool) -> None:
    spec = trace_of().spec.model_copy(update={"logprobs_mode": "processed_logits"})
    trace = trace_of().model_copy(update={"spec": spec})
    shown, masked = (output((4, 281.9, 4, 281.9, token, logit)) for token, logit in ((2, 281.9 - gap), (3, -inf)))
    assert (compared(shown, masked, trace=trace).difference is not None) is is_possible
    assert compared(shown, masked, 0.0, trace).difference is not None
    # As logprobs, these values are above 0: the bound is not relative to the largest one.
    assert compared(shown, masked).difference is not None


def test_compare_different_number_of_logprobs_is_reported() -> None:
    found = compared(Output((4, 4), "length", FIRST), Output((4, 4), "length", FIRST + FIRST)).difference
    assert found is not None
    assert found.variable == "logprobs"


def test_compare_aborted_request_by_common_tokens() -> None:
    trace = trace_of(is_given_up=True)
    one, two = output(FIRST, reason="abort"), output(FIRST, FIRST, reason="abort")
    assert compared(one, two, trace=trace).difference is None
    assert compared(two, one, trace=trace).difference is None
    other = output((4, -0.3, 4, -0.3, 2, -3.0), reason="abort")
    assert compared(other, two, trace=trace).difference is not None
    assert compared(one, two).difference is not None


def test_check_inexact_engine_agrees_within_logit_margin() -> None:
    submits = tuple(
        Submit(
            tick=0,
            request=f"r{index}",
            prompt=(index, 3),
            max_tokens=12,
            params=SamplingParams(num_logprobs=6, presence_penalty=index % 2),
        )
        for index in range(6)
    )
    trace = Trace(spec=EngineSpec(vocab_size=6), events=submits).explicit()
    exact, loose = (
        check(trace, ModelValueCache(), kind=SamplerBoxKind(wobble=1e-5, logit_margin=m)) for m in (0.0, MARGIN)
    )
    assert isinstance(exact, Diverged)
    assert exact.difference.variable == "tokens"
    assert isinstance(loose, Agreed)
    assert loose.stats.probes[NEAR_TIE] >= 2
    far = check(trace, ModelValueCache(), kind=SamplerBoxKind(wobble=1e-2, logit_margin=MARGIN))
    assert isinstance(far, Diverged)
