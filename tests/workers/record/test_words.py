"""Each kind of evidence has a sentence; no fingerprint and no name depends on its wording.

Verifies: every kind of fact and every rule in the source against its phrase; for all regressions that evidence survives
JSON, has a sentence, and does not change if every phrase is reworded.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

from cluster.storage.artefact import artefact_name
from scenarios.codec import find_scenarios, load
from scenarios.events import Schedule
from workers.oracle.model_values import ModelValueCache
from workers.record import phrases
from workers.record.evidence import (
    Access,
    Difference,
    Elsewhere,
    Fact,
    Harm,
    MissingOrder,
    Site,
    fact,
    plain_value,
    violation,
)
from workers.record.rules import Reference, Rule
from workers.record.verdict import (
    NO_STATS,
    Crashed,
    Diverged,
    Judgement,
    NotDrained,
    Outcome,
    Stuck,
    Verdict,
    is_finding,
    with_known_causes,
    with_required_fixes,
)
from workers.record.words import actual_text, finding_lines, headline_text, outcome_lines, shown_text, value_text
from workers.run.check import check
from workers.run.engine_run import Options
from workers.shrink.fingerprint import signature_of

ROOT = Path(__file__).resolve().parents[3]
REGRESSIONS = find_scenarios([ROOT / "scenarios" / "regressions"])
TABLES: tuple[Mapping[Any, str], ...] = (
    phrases.FACTS,
    phrases.RULES,
    phrases.REFERENCES,
    phrases.TASK_DIFFERENCES,
    phrases.HARMS,
)
VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
# What makes facts and violations, and where their kind stands.
MAKERS = ("fact", "violation", "LogError")
# Where a rule is passed on to one of them.
PASSES_ON = "workers/oracle/state_oracle.py"
# Values that a call gives by `**`: by rule.
SPREAD = {"SHAPE": {"rows", "tokens"}}


class Call(NamedTuple):
    """A call that makes evidence: its kind, text or rule name, and the names of its values."""

    where: str
    maker: str
    kind: str | None
    values: frozenset[str]


def target_kind(argument: ast.expr) -> list[str | None]:
    """Return the kind given by an argument, or both alternatives of a conditional."""
    match argument:
        case ast.Constant(value=str(kind)):
            return [kind]
        case ast.Attribute(value=ast.Name(id="Rule"), attr=name):
            return [name]
        case ast.IfExp(body=first, orelse=second):
            return [*target_kind(first), *target_kind(second)]
    return [None]


def calls_in(path: Path) -> Iterator[Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            given = frozenset(keyword.arg for keyword in node.keywords if keyword.arg is not None)
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            for kind in target_kind(node.args[0]):
                yield Call(where, node.func.id, kind, given)


@cache
def calls() -> tuple[Call, ...]:
    """Return every call in `workers` that makes evidence."""
    return tuple(call for path in sorted((ROOT / "workers").rglob("*.py")) for call in calls_in(path))


def names_in(template: str) -> set[str]:
    """Return the names of the values that a phrase shows."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_every_fact_kind_has_a_phrase_with_all_its_values() -> None:
    facts = [call for call in calls() if call.maker == "fact"]
    assert [call.where for call in facts if call.kind not in phrases.FACTS] == []
    wrong = [call for call in facts if names_in(phrases.FACTS[str(call.kind)]) != call.values]
    assert wrong == []
    assert {call.kind for call in facts} == set(phrases.FACTS)


def test_every_rule_has_a_phrase_with_its_values_and_is_judged() -> None:
    broken = [call for call in calls() if call.maker != "fact"]
    assert set(phrases.RULES) == set(Rule)
    assert [call.where.partition(":")[0] for call in broken if call.kind is None] == [PASSES_ON]
    named_rules = {call: Rule[call.kind] for call in broken if call.kind is not None}
    wrong = [
        call
        for call, rule in named_rules.items()
        if names_in(phrases.RULES[rule]) != call.values | SPREAD.get(rule.name, set())
    ]
    assert wrong == []
    assert {call.where.split("/")[1] for call in named_rules} == {"judge", "oracle"}
    assert set(named_rules.values()) == set(Rule)


def test_every_reference_and_task_difference_has_a_phrase() -> None:
    assert set(phrases.REFERENCES) == set(Reference)
    assert set(phrases.TASK_DIFFERENCES) == set(get_args(Harm.model_fields["what"].annotation))


@cache
def verdict_of(path: Path) -> Verdict:
    return check(load(path).explicit(), ModelValueCache(), Options(blame=True))


def reworded(template: str) -> str:
    """Return different wording with the same values."""
    parts = Formatter().parse(template)
    shown_parts = (f"{{{name}{f'!{how}' if how else ''}:{form}}}" for _, name, form, how in parts if name is not None)
    return f"{len(template)} ~ {' ~ '.join(shown_parts)} ~"


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in TABLES:
        for key, template in table.items():
            monkeypatch.setitem(table, key, reworded(template))


def named(path: Path, verdict: Verdict) -> tuple[str, str]:
    """Return the fingerprint of a finding and the name of its artefact."""
    trace = load(path).explicit()
    signature = signature_of(verdict, trace)
    assert signature is not None
    return signature.bug, artefact_name(Judgement(verdict=verdict, trace=trace, schedules=1))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: str(path.stem))
def test_fingerprints_are_independent_of_wording(path: Path, request: pytest.FixtureRequest) -> None:
    verdict = verdict_of(path)
    assert is_finding(verdict)
    plain = named(path, verdict)
    request.getfixturevalue("other_words")
    again = check(load(path).explicit(), ModelValueCache(), Options(blame=True))
    assert again == verdict
    assert named(path, again) == plain


def test_rewording_changes_sentences(request: pytest.FixtureRequest) -> None:
    found = Diverged(stats=NO_STATS, difference=difference(fact("digest"), violation(Rule.IDLE, count=3)))
    lines = finding_lines(found)
    request.getfixturevalue("other_words")
    assert finding_lines(found) != lines


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: str(path.stem))
def test_finding_of_a_regression_survives_json_and_has_a_sentence(path: Path) -> None:
    verdict = verdict_of(path)
    stored = VERDICT.validate_json(VERDICT.dump_json(verdict))
    assert stored == verdict
    assert finding_lines(stored) == finding_lines(verdict) != []
    assert all(line and "{" not in line for line in finding_lines(verdict))


def difference(expected: object, actual: object) -> Difference:
    """Return a difference between two pieces of evidence."""
    return Difference.model_validate(
        {"plane": "logits", "variable": "logprobs", "step": 3, "expected": expected, "actual": actual}
    )


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 1.0, -2.5e-7, np.float32(0.1)])
def test_number_that_json_lacks_survives_json_and_has_a_text(number: float) -> None:
    told = fact("token_with", token=np.int32(3), logprob=number)
    among = difference(plain_value((3, number, None, True)), fact("held_too", before=told, what="drafts", request="a"))
    for each in (difference(told, plain_value(number)), among):
        assert Difference.model_validate_json(each.model_dump_json()) == each
    assert shown_text(told) == f"token 3 with {number:.4f}"
    assert actual_text(among) == f"token 3 with {number:.4f}, drafts of request a"


def test_states_and_hashes_are_hexadecimal_and_survive_json() -> None:
    found = difference((1 << 64) - 1, ((1 << 63) + 7, 5))
    assert Difference.model_validate_json(found.model_dump_json()) == found
    assert actual_text(found) == f"[{(1 << 63) + 7}, 5]"
    assert value_text((1 << 64) - 1) == "f" * 16


def test_shown_with_another_type_raises() -> None:
    with pytest.raises(TypeError, match="cannot store a dict as evidence"):
        fact("entry", entry={})
    with pytest.raises(AssertionError, match="plain values"):
        plain_value((Fact(kind="nothing"),))


ORDER = MissingOrder(
    first=Access(lane="d2h_counts", op="copy", step=1), second=Access(lane="host", op="access", step=2), memory="counts"
)
EAGER, LAZY = Schedule(), Schedule(policy="lazy")
SCHEDULES = [Outcome(schedule=schedule, kind="agreed") for schedule in (EAGER, LAZY)]


def race(plane: str, variable: str) -> Diverged:
    """Return a race without harm yet, or with a wrong value."""
    found = difference("x", "y").model_copy(update={"plane": plane, "variable": variable, "missing_order": ORDER})
    return Diverged(stats=NO_STATS, difference=found)


def test_race_harm_text_names_timing_and_effect_in_one_sentence() -> None:
    bare, wrong = race("races", "counts"), race("counts", "accepted_read")
    told = "the race is reported whatever the timing; "
    assert finding_lines(bare)[0] == "nothing orders two uses of counts   (plane: races)"
    assert outcome_lines(bare, SCHEDULES) == [f"{told}in none of 2 schedules tried was a value wrong"]
    assert outcome_lines(bare, ()) == [f"{told}other schedules were not tried"]
    late = Outcome.of(LAZY, wrong)
    assert outcome_lines(wrong, [SCHEDULES[0], late]) == [
        f"{told}accepted_read is wrong under lazy, and no value under eager"
    ]
    held = "accepted_read is wrong under the trace's own schedule, and no value under eager, lazy"
    assert outcome_lines(wrong, SCHEDULES) == [told + held]
    crashed = late.model_copy(update={"kind": "crashed"})
    assert outcome_lines(wrong, [crashed]) == [f"{told}the engine crashes under lazy"]


def test_finding_with_a_race_leads_with_the_race() -> None:
    wrong = race("counts", "accepted_read")
    crashed = Crashed(stats=NO_STATS, error="KeyError: 3", where=Site(function="f"), missing_order=ORDER)
    stuck = Stuck(stats=NO_STATS, waits=NotDrained(steps=70), missing_order=ORDER)
    symptoms: dict[str, Verdict] = {
        "accepted_read is y, expected x": wrong,
        "the engine ends in f: KeyError: 3": crashed,
        "the engine makes no progress: not drained after 70 steps": stuck,
    }
    for symptom, verdict in symptoms.items():
        assert finding_lines(verdict)[0].startswith("missing order: nothing orders the write by d2h_counts:copy@1 ")
        assert headline_text(verdict) == f"nothing orders two uses of counts; {symptom}"
    assert headline_text(race("races", "counts")) == "nothing orders two uses of counts"
    assert headline_text(stuck.model_copy(update={"missing_order": None})) == symptom


def test_broken_contract_says_whether_another_run_keeps_it() -> None:
    broken = race("contracts", "min_tokens").difference.model_copy(
        update={
            "missing_order": None,
            "actual": plain_value(fact("token", token=21)),
            "expected": plain_value(fact("no_stop_among", count=9)),
            "elsewhere": Elsewhere(reference=Reference.SYNCHRONOUS, how="keeps"),
        }
    )
    assert headline_text(Diverged(stats=NO_STATS, difference=broken)) == (
        "contract min_tokens is broken: token 21, expected no stop token among the first 9; "
        "the synchronous run keeps the contract"
    )


def test_harm_reported_by_an_engine_is_in_the_finding() -> None:
    harmful = ORDER.model_copy(update={"harm": Harm(kind="harmful", error="KeyError: 3")})
    bare = race("races", "counts").difference.model_copy(update={"missing_order": harmful})
    lines = finding_lines(Diverged(stats=NO_STATS, difference=bare))
    assert lines[-1] == "harm: harmful: under lazy the engine ends: KeyError: 3"


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (("vllm_grammar_rows",), "known: vllm_grammar_rows (not found with its fix)"),
        (("vllm_a", "vllm_b"), "known: vllm_a and vllm_b (not found with their fixes)"),
    ],
)
def test_finding_of_known_bugs_names_them(known: tuple[str, ...], line: str) -> None:
    found = Diverged(stats=NO_STATS, difference=race("races", "counts").difference)
    crashed = Crashed(stats=NO_STATS, error="KeyError: 3", where=Site(file="a.py", line=3, function="f"))
    for verdict in (found, crashed):
        assert finding_lines(with_known_causes(verdict, known)) == [*finding_lines(verdict), line]


@pytest.mark.parametrize(("needs", "fixes"), [(("vllm_a",), "fix of vllm_a"), (("a", "b"), "fixes of a and b")])
def test_finding_that_needs_fixes_names_them(needs: tuple[str, ...], fixes: str) -> None:
    found = Diverged(stats=NO_STATS, difference=race("races", "counts").difference)
    line = f"needs the {fixes} (the trace agrees without: a side effect, or a bug that was hidden)"
    assert finding_lines(with_required_fixes(found, needs)) == [*finding_lines(found), line]
