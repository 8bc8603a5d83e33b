"""An engine that reports only outputs: it is run, judged and shrunk like our own engine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.cli import main as cli
from scenarios.capabilities import Capabilities, lacking
from scenarios.codec import dumps, loads
from scenarios.events import Submit
from scenarios.generation.fitting import fitted_to
from scenarios.generation.shards import Shard
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems
from tests.workers.targets.black_box import RACE, SUBMIT, BlackBox, BlackBoxKind, Mistake
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Site, fact
from workers.record.rules import Reference
from workers.record.verdict import Agreed, Crashed, Diverged, NotDrained, Stuck
from workers.record.words import finding_lines
from workers.run.check import check
from workers.run.engine_run import STEPS_MAX, idle_max
from workers.run.shard import judge_shard, judged_by_sample, judged_in_full
from workers.run.worker import Worker
from workers.shrink.fingerprint import signature_of
from workers.targets import registry
from workers.targets.devices import faults_on
from workers.targets.target import EngineFailed, RunConfig, Watch

VALUE_CACHE = ModelValueCache()
KIND = BlackBoxKind()
CONFIG = RunConfig(engine="black_box")
HELD = Site(function="close", file="black_box.py")


def trace_of(seed: int) -> Trace:
    return fitted_to(random_trace(seed), KIND.capabilities).explicit()


@pytest.mark.parametrize("seed", range(30))
def test_generated_trace_is_fitted_to_engine_and_agrees(seed: int) -> None:
    trace = trace_of(seed)
    assert lacking(trace, KIND.capabilities) is None
    assert problems(trace) == []
    kind = BlackBoxKind()
    verdict = check(trace, VALUE_CACHE, kind=kind)
    assert isinstance(verdict, Agreed), verdict
    assert verdict.stats.captures == len(kind.opened) - 1
    assert verdict.stats.captures > 0 or not trace.submits()
    assert all(box.is_closed for box in kind.opened)


@pytest.mark.parametrize(
    ("mistake", "variable", "reference"),
    [
        ("neighbour", "tokens", Reference.ALONE),
        ("ahead", "tokens", Reference.SYNCHRONOUS),
        ("heir", "tokens", Reference.ALONE),
    ],
)
def test_bug_is_found_by_first_reference_run_without_it(mistake: Mistake, variable: str, reference: Reference) -> None:
    verdicts = [check(trace_of(seed), VALUE_CACHE, kind=BlackBoxKind(mistake)) for seed in range(12)]
    found = [verdict.difference for verdict in verdicts if isinstance(verdict, Diverged)]
    assert found
    assert {each.variable for each in found} == {variable}
    assert reference in {each.reference for each in found}


def test_stale_row_state_is_found_by_requests_run_alone() -> None:
    # Both run in the same row, one after the other. Alone, the second request comes first.
    submits = (Submit(tick=tick, request=name, prompt=(1, 2), max_tokens=1) for tick, name in ((0, "a"), (30, "b")))
    trace = Trace(spec=EngineSpec(vocab_size=7), events=tuple(submits))
    verdict = check(trace, VALUE_CACHE, kind=BlackBoxKind("heir"))
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.reference, verdict.difference.request) == (Reference.ALONE, "b")


def test_engine_exception_is_crash_with_source_location() -> None:
    crashed = next(
        verdict
        for seed in range(40)
        if isinstance(verdict := check(trace_of(seed), VALUE_CACHE, kind=BlackBoxKind("crash")), Crashed)
    )
    assert crashed.error == "RuntimeError: three requests are too many"
    assert (crashed.where.function, crashed.where.file) == ("step", "black_box.py")
    assert crashed.where.line
    assert crashed.missing_order == RACE
    # The race is reported first, and its consequence has no source locations.
    assert crashed.made_at == ()
    assert finding_lines(crashed)[0].startswith("missing order: nothing orders ")
    start = check(trace_of(0), VALUE_CACHE, kind=BlackBoxKind("start"))
    assert isinstance(start, Crashed)
    assert start.error == "RuntimeError: no memory is left"


def test_engine_that_does_not_drain_is_stuck() -> None:
    verdict = check(trace_of(0), VALUE_CACHE, kind=BlackBoxKind("endless"))
    assert isinstance(verdict, Stuck)
    assert isinstance(verdict.waits, NotDrained)
    assert verdict.waits.steps == STEPS_MAX + 1
    assert (verdict.missing_order, verdict.made_at) == (None, (SUBMIT,))


@pytest.mark.parametrize("mistake", ["idle", "crash"])
def test_finding_after_a_race_leads_with_it_and_is_the_same_bug(mistake: Mistake) -> None:
    traces = (trace_of(seed) for seed in range(40))
    found = ((trace, check(trace, VALUE_CACHE, kind=BlackBoxKind(mistake))) for trace in traces)
    trace, verdict = next((trace, each) for trace, each in found if isinstance(each, Crashed | Stuck))
    assert (verdict.missing_order, verdict.made_at) == (RACE, ())
    first, *others = finding_lines(verdict)
    assert first.startswith("missing order: nothing orders the write by copy:d2h@0 before the read by host:access@0")
    assert others
    signature = signature_of(verdict, trace)
    assert signature is not None
    assert signature.bug == "lanes copy before host"


def test_engine_without_results_is_stuck_early() -> None:
    trace = trace_of(0)
    verdict = check(trace, VALUE_CACHE, kind=BlackBoxKind("idle"))
    assert isinstance(verdict, Stuck)
    last_tick = max(event.tick for event in trace.events)
    assert verdict.waits == NotDrained(steps=last_tick + 1 + idle_max(trace), idle=idle_max(trace) + 1)
    assert verdict.stats.steps < STEPS_MAX // 4


def test_reported_steps_are_judged_with_right_outputs() -> None:
    verdict = check(trace_of(0), VALUE_CACHE, kind=BlackBoxKind("leak"))
    assert isinstance(verdict, Diverged)
    told = verdict.difference
    assert (told.plane, told.variable) == ("books", "leaks")
    assert (told.expected, told.actual) == (fact("none_held", what="rows"), 2)


class NotGivenBack(BlackBox):
    """The tiny engine, with an exception when it is closed."""

    def close(self) -> None:
        super().close()
        raise EngineFailed("ValueError: two rows are held", HELD)


class NotGivenBackKind(BlackBoxKind):
    """The target kind of tiny engines with an error when they are closed."""

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> BlackBox:
        return NotGivenBack(trace, self.mistake, watch.steps)


def test_error_on_close_is_crash_unless_difference_found() -> None:
    crashed = check(trace_of(0), VALUE_CACHE, kind=NotGivenBackKind())
    assert isinstance(crashed, Crashed)
    assert (crashed.error, crashed.where) == ("ValueError: two rows are held", HELD)
    found = check(trace_of(0), VALUE_CACHE, kind=NotGivenBackKind("leak"))
    assert isinstance(found, Diverged)
    assert found.difference.variable == "leaks"


REFUSED = {
    "{tick: 1, do: preempt, request: a}": "events.1: preempt; allowed events are submit, abort",
    "{tick: 1, do: abort, request: a, at: after_launch}": "events.1.at: after_launch; allowed are before_schedule",
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, stop: [3]}": (
        "events.1: a request with stop; allowed features are none"
    ),
    "{tick: 1, do: submit, request: b, prompt: [1], max_tokens: 2, params: {temperature: 1.0}}": (
        "events.1: a request with temperature; allowed features are none"
    ),
}


@pytest.mark.parametrize("event", REFUSED)
def test_lacking_returns_one_line(event: str) -> None:
    trace = loads(
        f"events:\n  - {{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 2}}\n  - {event}\n", "x"
    )
    assert lacking(trace, KIND.capabilities) == REFUSED[event]
    assert lacking(fitted_to(trace, KIND.capabilities), KIND.capabilities) is None


def test_lacking_names_unsupported_spec_schedule_probe_and_fault() -> None:
    plain = trace_of(3)
    changed: dict[str, tuple[dict[str, object], str]] = {
        "spec": ({"spec": plain.spec.model_copy(update={"pad": False})}, "spec.pad: False; allowed are True"),
        "schedule": (
            {"schedule": plain.schedule.model_copy(update={"policy": "lazy"})},
            "schedule: the engine has no lanes to schedule on this device",
        ),
        "expect": ({"expect": {"abort": 1}}, "expect.abort: allowed probes are none"),
        "faults": ({"faults": ("vllm-id-reuse",)}, "faults: vllm-id-reuse; the engine has no faults to switch on"),
    }
    for update, message in changed.values():
        assert lacking(plain.model_copy(update=update), KIND.capabilities) == message
        assert fitted_to(plain.model_copy(update=update), KIND.capabilities) == plain


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KINDS, "black_box", ("tests.workers.targets.black_box", "BlackBoxKind"))


@pytest.mark.usefixtures("registered")
def test_worker_uses_single_schedule_of_engine_without_lanes() -> None:
    judgement = Worker().judge(trace_of(1), True, CONFIG)
    assert isinstance(judgement.verdict, Agreed)
    assert judgement.schedules == 1
    report = judge_shard(Shard(profile="labelled", seed=1, number=0), VALUE_CACHE, lambda trace: None, CONFIG)
    assert report.runs == report.traces == 12
    assert report.hits == ()


class Costly(BlackBoxKind):
    """The tiny engine, with the property `is_costly`."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, is_costly=True)


def costly_neighbour() -> Costly:
    return Costly("neighbour")


def costly_ahead() -> Costly:
    return Costly("ahead")


@pytest.mark.parametrize("wrong", [costly_neighbour, costly_ahead])
def test_costly_engine_is_sampled_and_findings_judged_in_full(
    wrong: Callable[[], Costly], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [trace_of(seed).model_copy(update={"seed": seed}) for seed in range(1, 13)]
    monkeypatch.setitem(registry._KINDS, "black_box", (__name__, "Costly"))
    for trace in traces:
        policies, [verdict], _ = judged_by_sample(trace, VALUE_CACHE, CONFIG)
        assert (policies, isinstance(verdict, Agreed)) == (("eager",), True)
        assert verdict.stats.captures <= 1
    assert max(judged_in_full(trace, VALUE_CACHE, CONFIG).verdicts[0].stats.captures for trace in traces) > 1
    monkeypatch.setitem(registry._KINDS, "black_box", (__name__, wrong.__name__))
    found = [judged_by_sample(trace, VALUE_CACHE, CONFIG).verdicts[-1] for trace in traces]
    in_full = [judged_in_full(trace, VALUE_CACHE, CONFIG).verdicts[-1] for trace in traces]
    assert any(isinstance(verdict, Diverged) for verdict in found)
    assert all(isinstance(one, Agreed) or one == other for one, other in zip(found, in_full, strict=True))


@pytest.mark.usefixtures("registered")
def test_command_refuses_unsupported_scenario_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults_on(CONFIG) == []
    for given in ((), ("vllm-38556-backup-token",)):
        assert cli.run(["faults", "measure", *given, "--engine", "black_box"]) == 2
        assert "engine black_box has no faults to switch on" in capsys.readouterr().err
    assert cli.run(["replay", "scenarios/smoke/preempt_in_flight.yaml", "--engine", "black_box"]) == 2
    message = capsys.readouterr().err.strip().splitlines()
    assert message == [
        "specstorm: scenarios/smoke/preempt_in_flight.yaml: engine black_box cannot run it: "
        "events.0: a request with accept; allowed features are none"
    ]


@pytest.mark.usefixtures("registered")
def test_command_on_folder_skips_unsupported_scenarios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "scn", str(tmp_path / "out")
    folder.mkdir()
    (folder / "a.yaml").write_text(dumps(trace_of(1)))
    lacks = "events.0: a request with stop; allowed features are none"
    (folder / "b.yaml").write_text(dumps(trace_of(1)).replace("max_tokens:", "stop: [1], max_tokens:", 1))
    refused = f"specstorm: {folder / 'b.yaml'}: engine black_box cannot run it: {lacks}"
    command = ["run", "--engine", "black_box", "--ray", "off"]
    assert cli.run([*command, str(folder), "--out", out]) == 2
    told = capsys.readouterr()
    assert "1 scenario: 1 agreed" in told.out
    assert "skipped: 1 scenario that the engine cannot run" in told.out
    assert refused in told.err.splitlines()
    # A named scenario, or all of them, cannot run: an error.
    (folder / "a.yaml").unlink()
    for path in (folder / "b.yaml", folder):
        assert cli.run([*command, str(path), "--out", out]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err.splitlines()) == ("", [refused])
