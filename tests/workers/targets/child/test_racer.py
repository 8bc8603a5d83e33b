"""An engine on the simulated device in a child process: its races are found and named."""

import sys
from pathlib import Path

import pytest

from scenarios.capabilities import Capabilities
from scenarios.codec import loads
from scenarios.events import Policy, Schedule
from scenarios.trace import Trace
from tests.workers.simulated_torch.processes import needs_device
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged, Judgement, Verdict
from workers.record.words import finding_lines
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.worker import Worker
from workers.shrink.fingerprint import signature_of
from workers.targets import registry
from workers.targets.child.process import Keeper, Launch
from workers.targets.child.target import ChildKind
from workers.targets.target import RunConfig

ROOT = Path(__file__).resolve().parents[4]
TRACE = loads(
    "spec: {depth: 1, num_speculative_tokens: 0}\n"
    "events:\n  - {tick: 0, do: submit, request: a, prompt: [3, 5], max_tokens: 4}\n",
    "racer.yaml",
)
MEMORY = "runner.buffers.results"


class Racer(ChildKind):
    """The kind of the racer engine, optionally with its race."""

    name = "racer"
    capabilities = Capabilities(
        spec={"depth": (1,), "num_speculative_tokens": (0,), "layers": ()},
        devices={"sim": ("streams",)},
        policies=("eager", "lazy", "random"),
        planes=("races",),
    )

    def __init__(self, *arguments: str) -> None:
        command = (sys.executable, "-m", "tests.workers.targets.child.racer_child", *arguments)
        self.kept = Keeper(self.name, lambda: Launch(command, {}, ROOT))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def judged(kind: Racer, policy: Policy = "eager") -> Verdict:
    try:
        return check(
            TRACE.model_copy(update={"schedule": Schedule(policy=policy)}),
            ModelValueCache(),
            Options(blame=True),
            kind=kind,
        )
    finally:
        kind.kept.stop()


CHILD_FILE = "tests/workers/targets/child/racer_child.py"


@needs_device
def test_engine_that_waits_for_its_copies_agrees_under_lazy() -> None:
    assert isinstance(judged(Racer(), "lazy"), Agreed)


@needs_device
def test_unordered_copy_is_a_race_with_memory_lines_and_harm() -> None:
    verdict = judged(Racer("unordered"))
    assert isinstance(verdict, Diverged)
    found = verdict.difference
    assert (found.plane, found.variable) == ("races", "step and step")
    order = found.missing_order
    assert order is not None
    assert order.memory == MEMORY
    assert [side.site.file for side in (order.first, order.second) if side.site] == [CHILD_FILE] * 2
    assert order.harm is not None


def swept(racer: Racer, monkeypatch: pytest.MonkeyPatch, trace: Trace = TRACE, sweep: bool = True) -> Judgement:
    """Return a worker's judgement of a trace."""
    monkeypatch.setattr(f"{__name__}.the_racer", lambda: racer, raising=False)
    monkeypatch.setitem(registry._KINDS, "racer", (__name__, "the_racer"))
    try:
        return Worker().judge(trace, sweep, RunConfig(engine="racer"))
    finally:
        racer.kept.stop()


def leads_with_its_race(judgement: Judgement) -> bool:
    """Return whether a finding prints its race first, and has it in its fingerprint."""
    signature = signature_of(judgement.verdict, judgement.trace)
    lines = finding_lines(judgement.verdict)[:2]
    is_first = any(line.startswith("missing order: nothing orders ") and MEMORY in line for line in lines)
    return is_first and signature is not None and signature.lanes == ("step", "step")


@needs_device
@pytest.mark.parametrize(("symptom", "kind"), [("token", "diverged"), ("stuck", "stuck"), ("crash", "crashed")])
def test_finding_of_a_sweep_leads_with_its_race(symptom: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judgement = swept(Racer("unordered", symptom), monkeypatch)
    assert (judgement.verdict.kind, judgement.trace.schedule.policy) == (kind, "lazy")
    assert leads_with_its_race(judgement)


@needs_device
def test_crash_of_the_process_leads_with_the_race_of_an_eager_run(monkeypatch: pytest.MonkeyPatch) -> None:
    late = TRACE.model_copy(update={"schedule": Schedule(policy="lazy")})
    judgement = swept(Racer("unordered", "exit"), monkeypatch, late, sweep=False)
    assert isinstance(judgement.verdict, Crashed)
    assert leads_with_its_race(judgement)
