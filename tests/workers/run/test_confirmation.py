"""Confirmation of a finding with slower kernels; other findings raise Unconfirmed."""

from dataclasses import dataclass, field

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBox, SamplerBoxKind
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import fact
from workers.record.verdict import Diverged
from workers.record.words import finding_lines
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.target import Confirmation, Kernels, RunConfig, Unconfirmed, Watch

SUBMIT = Submit(tick=0, request="a", prompt=(1, 3), max_tokens=4)
TRACE = Trace(spec=EngineSpec(vocab_size=6), events=(SUBMIT,)).explicit()
BOTH: tuple[Kernels, ...] = ("defined", "interpreted")


@dataclass(frozen=True)
class DefinedKind(SamplerBoxKind):
    """Engine kind that violates a contract with some kinds of kernels; stores which it ran."""

    wrong: tuple[Kernels, ...] = BOTH
    steps_max: int = 100
    is_left_behind: bool = False
    restarted: list[Kernels] = field(default_factory=list)
    ran: list[Kernels] = field(default_factory=list)

    def renew(self, config: RunConfig) -> bool:
        return True

    def restart(self, config: RunConfig) -> None:
        self.restarted.append(config.kernels)

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Return a confirmation with interpreted kernels."""
        interpreted = config.model_copy(update={"kernels": "interpreted"})
        if config.kernels == "interpreted":
            return None
        return Confirmation(interpreted, "a definition is wrong", self.steps_max)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        self.ran.append(config.kernels)
        is_wrong = config.kernels in self.wrong and not (self.is_left_behind and self.restarted)
        return SamplerBox(trace, self.breach if is_wrong else "none")


def test_finding_is_reported_after_confirmation() -> None:
    kind = DefinedKind("max_tokens")
    assert isinstance(check(TRACE, ModelValueCache(), kind=kind), Diverged)
    assert set(kind.ran) == {*BOTH}


def test_finding_without_confirmation_raises_unconfirmed() -> None:
    with pytest.raises(Unconfirmed, match="a definition is wrong"):
        check(TRACE, ModelValueCache(), kind=DefinedKind("max_tokens", wrong=("defined",)))


def test_finding_that_new_process_does_not_show_is_unconfirmed() -> None:
    kind = DefinedKind("max_tokens", wrong=("defined",), is_left_behind=True)
    with pytest.raises(Unconfirmed, match="does not reproduce in a new process"):
        check(TRACE, ModelValueCache(), kind=kind)
    assert kind.restarted == ["defined"]


def test_shrinker_candidates_are_not_confirmed() -> None:
    kind = DefinedKind("max_tokens")
    assert isinstance(check(TRACE, ModelValueCache(), Options(confirm="never"), kind), Diverged)
    assert set(kind.ran) == {"defined"}


def test_finding_with_too_many_steps_is_unconfirmed() -> None:
    kind = DefinedKind("max_tokens", wrong=("defined",), steps_max=2)
    verdict = check(TRACE, ModelValueCache(), kind=kind)
    assert isinstance(verdict, Diverged)
    assert verdict.unconfirmed == fact("unconfirmed", steps=verdict.stats.steps, steps_max=2)
    assert finding_lines(verdict)[-1].startswith("not confirmed with interpreted kernels: it has ")
    assert set(kind.ran) == {"defined"}


def test_confirm_later_returns_finding_as_unconfirmed() -> None:
    kind = DefinedKind("max_tokens", wrong=("defined",))
    verdict = check(TRACE, ModelValueCache(), Options(confirm="later"), kind)
    assert isinstance(verdict, Diverged)
    assert verdict.unconfirmed == fact("unconfirmed_yet")
    assert finding_lines(verdict)[-1] == "not confirmed with interpreted kernels yet"
    assert set(kind.ran) == {"defined"}


def test_run_with_slower_kernels_is_not_confirmed_again() -> None:
    kind = DefinedKind("max_tokens")
    assert isinstance(check(TRACE, ModelValueCache(), kind=kind, config=RunConfig(kernels="interpreted")), Diverged)
    assert set(kind.ran) == {"interpreted"}
