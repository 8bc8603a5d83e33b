"""Reference runs: each runs once per trace, and none after the last needed kind."""

from dataclasses import dataclass, field

import pytest

from scenarios.events import (
    AnyEvent,
    DummyStep,
    LoadWeights,
    Neighbour,
    Pause,
    Resume,
    Schedule,
    SetK,
    Stall,
    Submit,
)
from scenarios.sampling import Output
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBox, SamplerBoxKind
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Site
from workers.record.rules import Reference
from workers.record.verdict import Agreed, Crashed, Diverged
from workers.run.check import check
from workers.run.comparison import Comparison
from workers.run.engine_run import Options
from workers.run.references import References, Requests, one_by_one, references, without_control_plane
from workers.targets.specstorm import Specstorm
from workers.targets.target import DEFAULT_CONFIG, EngineFailed, RunConfig, Watch

TRACE = Trace(spec=EngineSpec(vocab_size=6), events=(Submit(tick=0, request="a", prompt=(1, 3), max_tokens=4),))


@dataclass(frozen=True)
class CountingKind(SamplerBoxKind):
    """Engine kind that stores the traces that it runs."""

    opened: list[Trace] = field(default_factory=list)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        """Start an engine and keep its trace."""
        self.opened.append(trace)
        return SamplerBox(trace, self.breach)


def test_runs_of_one_trace_share_reference_runs() -> None:
    kind, compared, counts = CountingKind(), References(), []
    for _ in range(2):
        verdict = check(TRACE.explicit(), ModelValueCache(), Options(compared=compared), kind)
        assert isinstance(verdict, Agreed)
        counts.append((len(kind.opened), verdict.stats.captures))
    # For one request without drafts both reference runs are the same.
    assert counts == [(2, 2), (3, 2)]


def test_reference_runs_stop_after_last_needed_kind() -> None:
    none, first = (
        check(TRACE.explicit(), ModelValueCache(), Options(compared=compared), CountingKind())
        for compared in (References("none"), References(Reference.SYNCHRONOUS))
    )
    assert isinstance(none, Agreed)
    assert isinstance(first, Agreed)
    assert (none.stats.captures, first.stats.captures) == (0, 1)


@dataclass(frozen=True)
class CrashingKind(SamplerBoxKind):
    """Engine kind that cannot start; stores whether the race detector was on."""

    watched: list[bool] = field(default_factory=list)

    def renew(self, config: RunConfig) -> bool:
        """Pretend to start a new engine."""
        return True

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        """Fail to start an engine."""
        self.watched.append(watch.races)
        raise EngineFailed("IndexError: 7", Site(function="step", file="core.py", line=1))


def test_crash_is_judged_again_with_race_detector() -> None:
    kind = CrashingKind()
    assert isinstance(check(TRACE.explicit(), ModelValueCache(), Options(races=False), kind), Crashed)
    assert kind.watched == [False, True]


@dataclass(frozen=True)
class CrashingReferenceKind(SamplerBoxKind):
    """Engine kind that cannot start with depth 1."""

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        """Start an engine with depth 2 only."""
        if trace.spec.depth == 1:
            raise EngineFailed("AssertionError: ", WHERE)
        return SamplerBox(trace, self.breach)


WHERE = Site(function="schedule", file="scheduler.py", line=7)


def test_failed_reference_run_is_a_finding() -> None:
    verdict = check(TRACE.explicit(), ModelValueCache(), kind=CrashingReferenceKind())
    assert isinstance(verdict, Diverged)
    found = verdict.difference
    assert (found.variable, found.reference) == ("end", Reference.SYNCHRONOUS)
    assert found.made_at == (WHERE,)


def submit(name: str, tick: int) -> Submit:
    return Submit(tick=tick, request=name, prompt=(1,), max_tokens=2)


def calm_events(
    *events: AnyEvent, prefix_cache: bool = False, has_sessions: bool = False
) -> tuple[AnyEvent, ...] | None:
    spec = EngineSpec(layers="attention", prefix_cache=prefix_cache)
    calm = without_control_plane(Trace(spec=spec, events=events), has_sessions)
    return None if calm is None else calm.events


def test_reference_run_has_no_control_plane_events() -> None:
    events = submit("a", 0), Pause(tick=1), Resume(tick=2), DummyStep(tick=3), SetK(tick=3, k=1), Neighbour(tick=4)
    assert calm_events(*events) == (events[0],)
    plain = Trace(events=(submit("a", 0),))
    assert without_control_plane(plain) is plain


def test_reference_run_starts_with_last_weights() -> None:
    first, last = LoadWeights(tick=2, version=1), LoadWeights(tick=5, version=2)
    events = submit("late", 5), submit("before", 4), first, last, submit("behind", 5), submit("later", 9)
    # Events of one tick apply in the order of the trace.
    calm = calm_events(*events)
    assert calm == (last.model_copy(update={"tick": 0}), events[4], events[5])
    assert calm_events(submit("a", 0), last) is None
    trace = without_control_plane(Trace(events=events))
    assert trace is not None
    found = one_by_one(trace, [submit("later", 9)], SamplerBoxKind("").capabilities)
    assert found.events == (calm[0], submit("later", 0))


@dataclass(frozen=True)
class ForgetfulKind(SamplerBoxKind):
    """Engine kind that answers a reused request name with tokens of another prompt."""

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        return ForgetfulBox(trace, self.breach)


class ForgetfulBox(SamplerBox):
    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        prompt = (5,) if event.request in self.requests else event.prompt
        super().submit(event.model_copy(update={"prompt": prompt}), submit, script)


def test_request_with_reused_name_is_compared_with_itself_alone() -> None:
    events = submit("a", 0), submit("b", 1), submit("a", 20)
    trace = Trace(spec=EngineSpec(vocab_size=6), events=events).explicit()
    assert isinstance(check(trace, ModelValueCache(), kind=SamplerBoxKind("")), Agreed)
    verdict = check(trace, ModelValueCache(), kind=ForgetfulKind(""))
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.reference, verdict.difference.request) == (Reference.ALONE, "a")


def test_one_by_one_has_no_events_no_drafts_and_enough_blocks() -> None:
    spec = EngineSpec(layers="attention", prefix_cache=True, max_model_len=40, max_num_batched_tokens=9, num_blocks=11)
    trace = Trace(spec=spec, events=(submit("a", 3), Stall(tick=4, request="a"), submit("b", 3)))
    found = one_by_one(trace, trace.submits(), Specstorm.capabilities)
    assert found.events == (submit("a", 0), submit("b", 0))
    keys = ("depth", "num_speculative_tokens", "max_num_seqs", "prefix_cache", "max_num_batched_tokens", "num_blocks")
    assert [getattr(found.spec, key) for key in keys] == [1, 0, 1, False, 40, 20]


def test_no_reference_run_if_blocks_of_old_weights_may_be_reused() -> None:
    kept = LoadWeights(tick=2, clear_cache=False)
    assert calm_events(submit("a", 0), kept, submit("b", 3), prefix_cache=True) is None
    assert calm_events(submit("a", 0), kept, submit("b", 3), has_sessions=True) is None
    assert calm_events(submit("a", 0), kept, submit("b", 3)) is not None


@pytest.mark.parametrize("events", [(submit("a", 0),), (submit("a", 0), LoadWeights(tick=9))])
def test_synchronous_lazy_run_is_compared_with_eager_run(
    events: tuple[AnyEvent, ...],
) -> None:
    late = Trace(
        spec=EngineSpec(depth=1, layers="attention", prefix_cache=True), events=events, schedule=Schedule(policy="lazy")
    )
    eager = late.model_copy(update={"schedule": Schedule()})
    nobody, capabilities = Requests({}, {}, {}, frozenset()), SamplerBoxKind("").capabilities
    assert next(references(late, late, nobody, capabilities)) == (Reference.SYNCHRONOUS, eager)
    assert (Reference.SYNCHRONOUS, eager) not in references(eager, eager, nobody, capabilities)
    # The device decides when loads end.
    stored = late.model_copy(update={"spec": late.spec.model_copy(update={"transfer": Transfer(store_blocks=8)})})
    assert stored.model_copy(update={"schedule": Schedule()}) not in [
        trace for _, trace in references(stored, stored, nobody, capabilities)
    ]


def test_synchronous_lazy_run_with_sessions_is_compared_with_eager() -> None:
    parts = tuple(submit(name, tick).model_copy(update={"session": "s"}) for tick, name in enumerate(("a", "a.1")))
    spec = EngineSpec(depth=1, layers="attention")
    given = Trace(spec=spec, events=parts, schedule=Schedule(policy="lazy"))
    # As it came to be: requests of their own, which would not wait for each other.
    trace = given.model_copy(update={"events": (submit("a", 0), submit("a.1", 1))})
    requests = Requests({each.request: each for each in trace.submits()}, {}, {}, frozenset())
    first, *others = references(given, trace, requests, SamplerBoxKind("").capabilities)
    assert first == (Reference.SYNCHRONOUS, given.model_copy(update={"schedule": Schedule()}))
    assert all(each.session is None for _, other in others for each in other.submits())


@pytest.mark.parametrize(("drafts", "is_compared"), [(0, True), (2, False)])
def test_synchronous_lazy_run_with_reused_name_is_compared(drafts: int, is_compared: bool) -> None:
    spec = EngineSpec(depth=1, layers="attention", num_speculative_tokens=drafts)
    late = Trace(spec=spec, events=(submit("a", 0), submit("a", 2)), schedule=Schedule(policy="lazy"))
    seen, wanted = ({"a": Output(tokens, "length")} for tokens in ((1, 2), (1, 3)))
    compared = References(only=Reference.SYNCHRONOUS)
    compared.outputs_of(late.model_copy(update={"schedule": Schedule()}), lambda _: wanted)
    # The first one has not ended when the second one comes, unless drafts are accepted.
    requests = Requests({"a": late.submits()[0]}, seen, {"a": "a"}, frozenset())
    kind = SamplerBoxKind("")
    found = Comparison(late, late, ModelValueCache(), kind, DEFAULT_CONFIG, compared, requests).first_difference(
        seen, 9
    )
    assert (found is not None) is is_compared
    if found is not None:
        told = found.plane, found.request, found.position, found.reference
        assert told == ("tokens", "a", 1, Reference.SYNCHRONOUS)
