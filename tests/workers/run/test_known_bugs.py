"""Known bugs of a finding: the minimal set of fixes that removes it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBox, SamplerBoxKind
from workers.edits.edit import Edit
from workers.edits.fix import ALL, Fix, SelectedEdits
from workers.edits.functions import name_of
from workers.edits.proofs import AGREES, Proof
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Judgement, Verdict, required_fixes, with_known_causes
from workers.run import known_bugs
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.known_bugs import KnownBugs, smallest, with_needed_fixes
from workers.shrink.fingerprint import signature_of
from workers.targets.target import DeviceError, RunConfig, Watch

TRACE = Trace(
    spec=EngineSpec(vocab_size=6), events=(Submit(tick=0, request="a", prompt=(1, 3), max_tokens=4),)
).explicit()
NAMES = tuple(f"box_{name}" for name in "abcdefgh")


@dataclass(frozen=True)
class FixableKind(SamplerBoxKind):
    """Engine kind that violates a contract unless one of the sets of fixes `cures` is applied.

    With `causes`, it breaks it only if one of these sets is applied, too.
    """

    cures: tuple[frozenset[str], ...] = ()
    causes: tuple[frozenset[str], ...] = (frozenset(),)
    run_names: frozenset[str] = frozenset(NAMES)
    broken: str = ""
    runs: list[frozenset[str]] = field(default_factory=list)

    def fixed(self, config: RunConfig) -> SelectedEdits:
        names = NAMES if config.fixes == ALL else tuple(name for name in config.fixes.split(",") if name)
        return SelectedEdits(names=names)

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        return [name_of("box.py", name) for name in sorted(self.run_names)]

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        made = frozenset(self.fixed(config).names)
        self.runs.append(made)
        if self.broken in made:
            raise DeviceError(f"engine box does not start with {self.broken}")
        is_broken = any(cause <= made for cause in self.causes) and not any(cure <= made for cure in self.cures)
        return SamplerBox(trace, self.breach if is_broken else "none")


def named(
    kind: FixableKind, monkeypatch: pytest.MonkeyPatch, fixes: str = "", times: int = 1, proofs: Sequence[Proof] = ()
) -> tuple[str, ...]:
    """Return the known bugs that explain the finding of an engine kind with fixes.

    With several runs, return the last answer.
    """
    bugs, verdict, config = found_by(kind, monkeypatch, fixes, proofs)
    for _ in range(times):
        found = bugs.of(verdict, TRACE, config)
    return found


def found_by(
    kind: FixableKind,
    monkeypatch: pytest.MonkeyPatch,
    fixes: str,
    proofs: Sequence[Proof] = (),
    races: Collection[str] = (),
) -> tuple[KnownBugs, Verdict, RunConfig]:
    """Return a `KnownBugs`, the finding of a kind of engine with fixes, and its configuration."""
    every = {
        name: Fix(summary="s", race=name in races, edits=(Edit(at=f"box:{name}", without="pass"),)) for name in NAMES
    }
    monkeypatch.setattr(known_bugs, "target_kind", lambda engine: kind)
    monkeypatch.setattr(known_bugs, "fixes_of", lambda package: every)
    monkeypatch.setattr(known_bugs, "proofs_of", lambda: {each.name: each for each in proofs})
    config = RunConfig(fixes=fixes)
    verdict: Verdict = check(TRACE, ModelValueCache(), Options(confirm="never"), kind, config)
    assert isinstance(verdict, Diverged)
    kind.runs.clear()
    return KnownBugs(ModelValueCache()), verdict, config


def test_finding_that_one_fix_removes_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_c"}),))
    assert named(kind, monkeypatch) == ("box_c",)


def test_finding_that_no_fix_removes_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens")
    assert named(kind, monkeypatch) == ()
    assert kind.runs[0] == frozenset(NAMES)


def test_finding_that_two_fixes_remove_together_is_known_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_b", "box_g"}),))
    assert named(kind, monkeypatch) == ("box_b", "box_g")


def test_fix_of_a_function_that_did_not_run_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_c"}),), run_names=frozenset({"box_c", "box_d"}))
    assert named(kind, monkeypatch) == ("box_c",)
    assert all(made <= {"box_c", "box_d"} for made in kind.runs if made != frozenset(NAMES))


def test_second_finding_of_a_signature_takes_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_c"}),))
    named(kind, monkeypatch)
    once = len(kind.runs)
    kind.runs.clear()
    assert named(kind, monkeypatch, times=2) == ("box_c",)
    runs_of_one_check = len(kind.runs) - once
    assert kind.runs[-1] == frozenset({"box_c"})
    assert runs_of_one_check <= 2


def test_known_bugs_of_the_same_fingerprint_are_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_c"}),))
    signature = signature_of(check(TRACE, ModelValueCache(), kind=kind), TRACE)
    assert signature is not None
    proof = Proof(
        name="box_c", engine="box", version="1", bug=signature.bug, released="diverged", fixed=AGREES, all_fixed=AGREES
    )
    assert named(kind, monkeypatch, proofs=[proof]) == ("box_c",)
    assert set(kind.runs) == {frozenset({"box_c"})}
    wrong = proof.model_copy(update={"name": "box_d"})
    assert named(kind, monkeypatch, proofs=[wrong]) == ("box_c",)


def test_engine_that_does_not_start_with_a_fix_loses_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_c"}),), broken="box_a")
    assert named(kind, monkeypatch) == ()


def test_finding_on_the_engine_with_all_fixes_is_new_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens")
    assert named(kind, monkeypatch, fixes=ALL) == ()
    assert kind.runs == []


def test_finding_that_one_fix_causes_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", causes=(frozenset({"box_c"}),))
    bugs, verdict, config = found_by(kind, monkeypatch, ALL)
    assert bugs.needed(verdict, TRACE, config) == ("box_c",)
    judgement = Judgement(verdict=verdict, trace=TRACE, schedules=1)
    assert required_fixes(with_needed_fixes(judgement, config).verdict) == ("box_c",)
    known = judgement.model_copy(update={"verdict": with_known_causes(verdict, ("box_a",))})
    assert with_needed_fixes(known, config) == known


def test_finding_that_two_fixes_cause_together_needs_both(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", causes=(frozenset({"box_b", "box_g"}),), run_names=frozenset({"box_b"}))
    bugs, verdict, config = found_by(kind, monkeypatch, ALL)
    assert bugs.needed(verdict, TRACE, config) == ("box_b", "box_g")


def test_finding_with_race_fixes_alone_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens")
    bugs, verdict, config = found_by(kind, monkeypatch, ALL, races=["box_a", "box_h"])
    assert bugs.needed(verdict, TRACE, config) == ()
    assert set(kind.runs) == {frozenset({"box_a", "box_h"})}


def test_finding_with_fixes_of_races_alone_needs_none_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens")
    bugs, verdict, config = found_by(kind, monkeypatch, "box_a,box_h", races=["box_a", "box_h"])
    assert bugs.needed(verdict, TRACE, config) == ()
    assert kind.runs == []


def test_engine_that_does_not_start_with_part_of_the_fixes_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FixableKind("max_tokens", causes=(frozenset({"box_c"}),))
    _, verdict, config = found_by(kind, monkeypatch, ALL)
    broken = replace(kind, broken="box_c")
    monkeypatch.setattr(known_bugs, "target_kind", lambda engine: broken)
    assert KnownBugs(ModelValueCache()).needed(verdict, TRACE, config) == ()


@st.composite
def some_needed(draw: st.DrawFn) -> tuple[int, set[int]]:
    """Generate some names, one to three of which are needed."""
    count = draw(st.integers(1, 60))
    return count, draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))


@given(some_needed())
def test_smallest_returns_needed_names_in_few_tries(drawn: tuple[int, set[int]]) -> None:
    count, needed = drawn
    names, wanted, tries = [f"{number:02}" for number in range(count)], {f"{number:02}" for number in needed}, []

    def holds(tried: Sequence[str]) -> bool:
        tries.append(tried)
        return wanted <= {*tried}

    assert smallest(holds, names) == tuple(sorted(wanted))
    assert len(tries) <= 2 * len(wanted) * (ceil(log2(count)) + 1) if count > 1 else not tries


def test_agreed_run_of_a_fixed_engine_is_no_finding() -> None:
    kind = FixableKind("max_tokens", cures=(frozenset({"box_a"}),))
    assert isinstance(check(TRACE, ModelValueCache(), kind=kind, config=RunConfig(fixes="box_a")), Agreed)
