"""Artefacts: a file that loads as the trace of a finding, with a comment."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dispatch.job import build
from cluster.storage.artefact import artefact_name, artefact_text, write_artefact
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import LANES, Schedule
from scenarios.scenario_file import RunOn
from tests.cluster.fake_judge import FakeJudge, difference, trace
from workers.record.evidence import Site
from workers.record.verdict import NO_STATS, Crashed, Diverged, Judgement, Outcome, Stats, plane
from workers.record.words import outcome_lines
from workers.targets.target import RunConfig

STATS = Stats(requests=1, steps=1, commits=1, captures=1, run_ahead_max=0, digest="", probes={})


@pytest.mark.parametrize("request_name", ["diverge", "crash", "stuck"])
def test_an_artefact_loads_as_the_trace_of_its_finding(tmp_path: Path, request_name: str) -> None:
    judgement = FakeJudge().judge(trace(request_name), True)
    path = write_artefact(tmp_path, judgement, "scenarios/smoke/a.yaml")
    assert path.name == artefact_name(judgement)
    assert codec.load(path) == judgement.trace
    assert list(tmp_path.iterdir()) == [path]


def test_the_comment_says_what_was_found_where_and_how_to_see_it_again() -> None:
    judgement = FakeJudge().judge(trace("diverge"), True)
    head = [line for line in artefact_text(judgement, "scenarios/smoke/a.yaml").splitlines() if line.startswith("#")]
    assert head == [
        "# diverged: found by scenarios/smoke/a.yaml",
        "# missing order: nothing orders the write by d2h_counts:copy_counts@7 before the read by host:access@8 "
        "(both use accepted_counts)",
        "# request diverge at position 3, commit diverge/0/7, step 9",
        "# state is 8f31, expected 02c7   (plane: recurrent)",
        "# last writers, newest first: compute:recurrent_update@9, compute:state_copy@8",
        "# the race is reported whatever the timing; tokens is wrong under lazy, and no value under eager",
        "# under eager: agreed",
        "# under lazy: diverged: tokens of a/0/7 at step 9",
        f"# replay: specstorm replay {artefact_name(judgement)}",
    ]


def test_artefact_has_the_run_configuration_in_command_and_keys(tmp_path: Path) -> None:
    judgement = FakeJudge().judge(trace("diverge"), True)
    path = write_artefact(tmp_path, judgement, "a.yaml", RunConfig(engine="other", device="cuda"))
    command = f"specstorm replay --engine other --device cuda {artefact_name(judgement)}"
    assert f"# replay: {command}\n" in path.read_text()
    assert codec.run_on(path) == RunOn(engine="other", device="cuda")
    assert codec.load(path) == judgement.trace
    assert codec.run_on(write_artefact(tmp_path, judgement, "a.yaml")) == RunOn(version=build())


@given(st.text(max_size=200), st.text(max_size=40))
def test_no_text_in_a_finding_can_break_out_of_the_comment(error: str, name: str) -> None:
    outcomes = (Outcome(schedule=Schedule(), kind="diverged", variable=error, commit=name, step=1),)
    crashed = Crashed(stats=STATS, error=error, where=Site(function=name, file=error, line=3))
    judgement = Judgement(verdict=crashed, trace=trace("r0").explicit(), schedules=1, outcomes=outcomes)
    assert codec.loads(artefact_text(judgement, "a.yaml"), "artefact") == judgement.trace


def test_the_same_finding_has_the_same_name_and_another_trace_another() -> None:
    first, other = FakeJudge().judge(trace("diverge"), True), FakeJudge().judge(trace("diverge", seed=1), True)
    assert artefact_name(first) == artefact_name(FakeJudge().judge(trace("diverge"), True))
    assert artefact_name(first) != artefact_name(other)
    assert artefact_name(first).startswith("recurrent-")


def test_only_findings_have_a_plane() -> None:
    assert plane(Diverged(stats=STATS, difference=difference("r0"))) == "recurrent"
    with pytest.raises(ValueError, match="agreed is not a finding"):
        plane(FakeJudge().judge(trace("agree"), True).verdict)


def test_a_long_line_of_a_comment_is_cut() -> None:
    assert len(comment(["x" * 100_000])) < 2_000


CRASH = Crashed(stats=NO_STATS, error="KeyError: 3", where=Site(function="condense"))


def test_artefact_names_the_lane_order_that_triggers_the_finding() -> None:
    outcomes = tuple(
        Outcome(
            schedule=Schedule(policy="lane_order", order=order),
            kind="agreed" if order.index("h2d") < order.index("host") else "diverged",
        )
        for order in permutations(LANES)
    )
    lazy = Outcome(schedule=Schedule(policy="lazy"), kind="crashed")
    assert outcome_lines(CRASH, (lazy, *outcomes)) == [
        "shows under: lazy, 60 lane orders",
        "does not show under: 60 lane orders",
        "it shows in exactly those lane orders with host before h2d",
    ]
    assert outcome_lines(CRASH, (lazy,)) == ["shows under: lazy"]
