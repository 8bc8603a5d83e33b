"""The shrinker: small results for any batch size, bounded, resumable, only valid candidates."""

from collections.abc import Callable
from functools import cache
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.capabilities import lacking
from scenarios.events import Schedule, Submit
from scenarios.generation.strategies import random_trace, traces
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from tests.workers.faults.seeds import FOUND_AT
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Access, Difference, MissingOrder, Site
from workers.record.verdict import Crashed, Diverged, Stats, Stuck, plane
from workers.run.check import check
from workers.run.shard import first_matching_candidate
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Finding, Shrinking, TriedCandidates, num_exceptions, shrink
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM

VALUE_CACHE = ModelValueCache()
ACCEPTED = "vllm-38556-accepted-counts"
EAGER = Schedule()
NOTHING = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
CRASH = Crashed(stats=NOTHING, error="KeyError: 3", where=Site(function="condense", file="engine.py", line=9))


def attempt(candidates: list[Trace], target: Signature) -> TriedCandidates:
    """Run candidates on the engine."""
    return first_matching_candidate(candidates, target, VALUE_CACHE)


@cache
def first_finding(fault: str, schedule: Schedule = EAGER, in_plane: str | None = None) -> tuple[Trace, Finding]:
    """Return a random trace that finds a fault, if given in this plane."""
    for seed in dict.fromkeys((*FOUND_AT.get(fault, ()), *range(400))):
        trace = random_trace(seed).explicit()
        spec = trace.spec.model_copy(update=dict(FAULTS[fault].requires))
        trace = trace.model_copy(update={"spec": spec, "schedule": schedule, "faults": (fault,)})
        verdict = check(trace, VALUE_CACHE) if not problems(trace) else None
        if isinstance(verdict, Diverged | Crashed | Stuck) and in_plane in (None, plane(verdict)):
            return trace, verdict
    raise AssertionError(f"no random trace finds {fault}")


class FailsWith:
    """Attempt without an engine: a candidate fails if it has events of all given kinds."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.tried: list[Trace] = []

    def __call__(self, candidates: list[Trace], target: Signature) -> TriedCandidates:
        for count, candidate in enumerate(candidates, 1):
            self.tried.append(candidate)
            if set(self.kinds) <= {event.do for event in candidate.events}:
                return TriedCandidates(count=count, found=CRASH)
        return TriedCandidates(count=len(candidates))


def test_faults_shrink_to_few_events_within_a_small_budget() -> None:
    sizes, exceptions = [], []
    for fault in sorted(FAULTS)[::18]:
        trace, verdict = first_finding(fault)
        small = shrink(Shrinking.of(trace, verdict, limit=120), attempt, 8)
        again = check(small.trace, VALUE_CACHE)
        assert again == small.verdict
        assert isinstance(again, Diverged | Crashed | Stuck)
        assert small.target.matches(Shrinking.of(small.trace, again).target)
        sizes.append(len(small.trace.events))
        exceptions.append(num_exceptions(small.trace))
    assert median(sizes) <= 8
    assert median(exceptions) <= 3


def test_shrinker_skips_traces_that_the_engine_cannot_run() -> None:
    strict = random_trace(0).explicit().model_copy(update={"spec": EngineSpec()})
    assert lacking(strict, target_kind(VLLM).capabilities) is not None
    target = Signature(plane="tokens", variable="tokens", writer="")
    assert first_matching_candidate([strict, strict], target, VALUE_CACHE, RunConfig(engine=VLLM)) == TriedCandidates(
        count=2
    )


@pytest.mark.parametrize("fault", ["vllm-28787-resumed-tokens", ACCEPTED])
def test_shrink_result_is_independent_of_batch_size(fault: str) -> None:
    start = Shrinking.of(*first_finding(fault), limit=24)
    one_by_one = shrink(start, attempt, 1)
    assert one_by_one.spent <= 24
    for most in (5, 1000):
        assert shrink(start, attempt, most) == one_by_one


def test_shrinking_resumes_from_a_stored_state() -> None:
    state = Shrinking.of(*first_finding("vllm-48419-swap-views"))
    whole = shrink(state, attempt, 5)
    while candidates := state.proposals(5):
        tried = attempt(candidates, state.wanted)
        state = Shrinking.model_validate_json(state.after(tried).model_dump_json())
    assert state == whole


def test_hidden_harm_is_found_with_few_schedule_exceptions() -> None:
    device_last = Schedule(policy="lane_order", order=("host", "d2h_output", "h2d", "compute", "d2h_counts"))
    trace, verdict = first_finding(ACCEPTED, device_last, "counts")
    assert isinstance(verdict, Diverged)
    assert verdict.difference.plane == "counts"
    small = shrink(Shrinking.of(trace, verdict), attempt, 8).trace
    assert small.schedule.policy == "eager"
    assert len(small.schedule.holds) == 1


@settings(max_examples=20)
@given(traces(), st.sampled_from([(), ("submit",), ("submit", "preempt"), ("stall", "reorder")]))
def test_every_candidate_is_a_new_valid_trace_and_shrinking_ends(trace: Trace, kinds: tuple[str, ...]) -> None:
    trial = FailsWith(kinds)
    end = Shrinking.of(trace.explicit(), CRASH, limit=20_000)
    while candidates := end.proposals(8):
        assert end.trace not in candidates
        end = end.after(trial(candidates, end.target))
    assert end.spent < 20_000
    assert all(problems(candidate) == [] for candidate in trial.tried)
    if set(kinds) <= {event.do for event in trace.events}:
        # A request that is held back has been submitted.
        left = sorted(event.do for event in end.trace.events)
        assert left in (sorted(kinds), sorted({*kinds, "submit"}))
        assert all(event.tick == 0 for event in end.trace.events)
        assert end.trace.spec == type(end.trace.spec)()


def test_request_is_removed_with_all_its_events() -> None:
    trace, verdict = first_finding("vllm-28787-resumed-tokens")
    candidates = list(Shrinking.of(trace, verdict).proposals(10))
    assert candidates
    for candidate in candidates:
        names = {event.request for event in candidate.events if event.do == "submit"}
        asked = {event.request for event in trace.events if event.do == "submit"}
        gone = asked - names
        assert not any(getattr(event, "request", None) in gone for event in candidate.events)


def test_parameters_are_removed_singly_and_rates_with_their_method() -> None:
    spec = EngineSpec(sampling="synthetic", synthetic_rates=(0.5,), max_num_seqs=2)
    params = SamplingParams(temperature=0.5, min_tokens=2)
    submit = Submit(tick=0, request="r", prompt=(1,), max_tokens=3, accept="1", params=params)

    def attempt_needing_temperature(candidates: list[Trace], target: Signature) -> TriedCandidates:
        for count, candidate in enumerate(candidates, 1):
            drawn = any(event.params.temperature for event in candidate.submits())
            if drawn and candidate.spec.max_num_seqs == 2:
                return TriedCandidates(count=count, found=CRASH)
        return TriedCandidates(count=len(candidates))

    end = shrink(Shrinking.of(Trace(spec=spec, events=(submit,)), CRASH), attempt_needing_temperature, 8)
    assert end.trace.spec == EngineSpec(max_num_seqs=2)
    (event,) = end.trace.submits()
    assert event.params == SamplingParams(temperature=1.0)


def test_bare_race_shrinks_to_a_trace_with_a_wrong_value() -> None:
    trace, verdict = first_finding(ACCEPTED, in_plane="races")
    start = Shrinking.of(trace, verdict)
    end = shrink(start, attempt, 8)
    assert (plane(verdict), plane(end.verdict)) == ("races", "counts")
    assert end.target.lanes == start.target.lanes == ("d2h_counts", "host")
    assert len(end.trace.events) == 2
    assert all(event.prompt == (0,) and event.params == SamplingParams() for event in end.trace.submits())


def test_race_without_effect_shrinks_as_a_bare_race() -> None:
    order = MissingOrder(first=Access(lane="a", op="x", step=1), second=Access(lane="b", op="y", step=1), memory="m")
    bare = Difference(plane="races", variable="m", step=1, expected=None, actual=None, missing_order=order)
    race = Diverged(stats=NOTHING, difference=bare)
    wanted = []

    def attempt_of_race(candidates: list[Trace], target: Signature) -> TriedCandidates:
        wanted.append(target.plane)
        if target == start.target.harm:
            return TriedCandidates(count=len(candidates))
        return TriedCandidates(count=1, found=race)

    start = Shrinking.of(random_trace(3).explicit(), race)
    end = shrink(start, attempt_of_race, 8)
    assert end.target == start.target
    assert "races" in wanted
    assert wanted[-1] == start.target.harm.plane


def failing_where(needed: Callable[[Trace], bool]) -> Callable[[list[Trace], Signature], TriedCandidates]:
    """Return an attempt without an engine: a candidate fails if it has the needed parts."""

    def attempting(candidates: list[Trace], target: Signature) -> TriedCandidates:
        for count, candidate in enumerate(candidates, 1):
            if needed(candidate):
                return TriedCandidates(count=count, found=CRASH)
        return TriedCandidates(count=len(candidates))

    return attempting


def test_grammars_lists_and_prompts_are_simplified() -> None:
    grammar = (tuple((token, token % 3) for token in range(20)), ((5, 0), (6, 2)), ((7, 1), (8, 2)))
    params = SamplingParams(grammar=grammar, bad_words=((1, 2, 3), (4,), (5,)), min_tokens=9, logit_bias=((1, 2.0),))
    submit = Submit(tick=0, request="r", prompt=(9, 8, 7, 6, 5, 4), max_tokens=20, accept="1", params=params)

    def needed(trace: Trace) -> bool:
        (event,) = (*trace.submits(), None)[:1]
        if event is None or not isinstance(event.prompt, tuple) or 7 not in event.prompt:
            return False
        edges = [edge for state in event.params.grammar for edge in state]
        return any(token == 6 and to != 0 for token, to in edges) and (4,) in event.params.bad_words

    end = shrink(Shrinking.of(Trace(events=(submit,)), CRASH), failing_where(needed), 8)
    (event,) = end.trace.submits()
    assert event.prompt == (7,)
    assert event.params.bad_words == ((4,),)
    assert sum(map(len, event.params.grammar)) <= 2
    assert (event.params.min_tokens, event.params.logit_bias) == (0, ())


def test_two_fields_are_simplified_together() -> None:
    params = SamplingParams(grammar=(((1, 1),), ()))
    first = Submit(tick=0, request="a", prompt=(0,) * 9, max_tokens=1, accept="1")
    second = Submit(tick=0, request="b", prompt=(0,), max_tokens=2, accept="1", params=params, priority=3)

    def needed(trace: Trace) -> bool:
        requests = {event.request: event for event in trace.submits()}
        if set(requests) != {"a", "b"}:
            return False
        lengths = len(requests["a"].prompt) == 1, requests["b"].priority == 0  # type: ignore[arg-type]
        return lengths in ((False, False), (True, True)) and len(requests["a"].prompt) in (1, 9)  # type: ignore[arg-type]

    end = shrink(Shrinking.of(Trace(events=(first, second)), CRASH), failing_where(needed), 8)
    assert [event.prompt for event in end.trace.submits()] == [(0,), (0,)]
    assert [event.priority for event in end.trace.submits()] == [0, 0]


def test_unneeded_fault_is_removed() -> None:
    trace = random_trace(3).explicit().model_copy(update={"faults": (ACCEPTED,)})
    assert shrink(Shrinking.of(trace, CRASH), failing_where(lambda _: True), 8).trace.faults == ()


def test_shrinking_tries_at_most_limit_candidates() -> None:
    trial = FailsWith(("submit",))
    start = Shrinking.of(random_trace(3).explicit(), CRASH, limit=7)
    assert shrink(start, trial, 4).spent == 7
    assert len(trial.tried) <= 7
