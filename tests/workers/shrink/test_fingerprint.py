"""Signatures: equal for one bug on different traces, different for other bugs, else None."""

from typing import Literal

import pytest

from scenarios.events import Abort, Submit
from scenarios.trace import Trace
from workers.record.evidence import HOST, Access, Difference, MissingOrder, Site, Violation, fact, violation
from workers.record.rules import Reference, Rule
from workers.record.verdict import (
    Agreed,
    Crashed,
    Diverged,
    LanesWait,
    LaneWait,
    Lost,
    NotDrained,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
    Waiting,
)
from workers.shrink.fingerprint import Signature, signature_of

CONDENSE = Site(function="condense", file="input_batch.py", line=3)
STATS = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})


def order_of(how: Literal["read", "write"], step: int) -> MissingOrder:
    """Return a missing order between a copy of a step and a host read in the next step."""
    first = Access(lane="d2h_counts", op="copy_accepted", step=step, how=how)
    second = Access(lane=HOST, op="access", step=step + 1, how="read")
    return MissingOrder(first=first, second=second, memory="accepted_counts")


def trace(*names: str) -> Trace:
    return Trace(events=tuple(Submit(tick=0, request=name, prompt=(1,), max_tokens=1) for name in names))


def diverged(variable: str, plane: str, step: int, **more: object) -> Diverged:
    values = {"request": "a", "commit": f"a/0/{step}", "expected": 1, "actual": 2, **more}
    return Diverged(stats=STATS, difference=Difference(plane=plane, variable=variable, step=step, **values))  # type: ignore[arg-type]


def broken(entry: str, found: Violation, name: str = "") -> Diverged:
    found = found.model_copy(update={"entry": entry, "request": name})
    return diverged("log", "books", 1, actual=found)


def test_signature_is_independent_of_step_and_position() -> None:
    writers = ({"writers": (Access(lane="compute", op="count_accepted", step=step),)} for step in (3, 9))
    one, other = (
        signature_of(diverged("accepted", "counts", step, **each), trace("a"))
        for step, each in zip((3, 9), writers, strict=True)
    )
    assert one == other == Signature(plane="counts", variable="accepted", writer="compute:count_accepted")


def test_signature_distinguishes_variables_planes_and_rules() -> None:
    verdicts: list[Verdict] = [
        diverged("accepted", "counts", 1),
        diverged("valid", "counts", 1),
        broken("scheduled", violation(Rule.NUM_DRAFTS, count=3, due=2), "a"),
        broken("freed", violation(Rule.BLOCK_FREED, block=3, request=0, owner=None)),
        Crashed(stats=STATS, error="KeyError: 4", where=CONDENSE),
        Stuck(stats=STATS, waits=NotDrained(steps=70, waiting=(Waiting(request="a", reason="blocks"),))),
        Stuck(stats=STATS, waits=LanesWait(host="d2h_counts")),
    ]
    signatures = [signature_of(verdict, trace("a")) for verdict in verdicts]
    assert None not in signatures
    assert len({signature.bug for signature in signatures if signature}) == len(verdicts)
    for one in signatures:
        assert one is not None
        assert [other for other in signatures if other and one.matches(other)] == [one]


def test_signature_ignores_request_names_numbers_and_source_lines() -> None:
    found = {
        signature_of(broken("scheduled", violation(Rule.NUM_DRAFTS, count=count, due=count - 1), name), trace(name))
        for name, count in (("r1", 3), ("a-b", 1))
    }
    assert len(found) == 1
    crashes = [("KeyError: 4", CONDENSE), ("KeyError: 12", CONDENSE.model_copy(update={"line": 77}))]
    assert len({signature_of(Crashed(stats=STATS, error=e, where=w), trace("a")) for e, w in crashes}) == 1


def test_signature_of_stuck_run_ignores_length_and_waiting_requests() -> None:
    waits = [NotDrained(steps=7, waiting=(Waiting(request="a", reason="rows"),)), NotDrained(steps=9)]
    assert len({signature_of(Stuck(stats=STATS, waits=each), trace("a")) for each in waits}) == 1
    lanes = [LanesWait(lanes=(LaneWait(lane="compute", on="h2d", step=step),)) for step in (3, 4)]
    assert len({signature_of(Stuck(stats=STATS, waits=each), trace("a")) for each in lanes}) == 1


def test_signature_ignores_list_lengths_and_expected_values() -> None:
    hits: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (((3,), 4, ()), ((3, 4, 17), 12, (3, 4)))
    found = {
        signature_of(broken("scheduled", violation(Rule.HITS, blocks=blocks, tokens=tokens, due=due), "a"), trace("a"))
        for blocks, tokens, due in hits
    }
    assert len(found) == 1
    lists = [f"ValueError: rows {rows} of 4" for rows in ([3], [3, 4, 17])]
    assert len({signature_of(Crashed(stats=STATS, error=e, where=CONDENSE), trace("a")) for e in lists}) == 1


def test_signature_of_a_crash_after_a_race_is_the_race() -> None:
    crash = Crashed(stats=STATS, error="IndexError: 4", where=CONDENSE, missing_order=order_of("write", 3))
    signature = signature_of(crash, trace("a"))
    assert signature is not None
    assert signature.bug == "lanes d2h_counts before host"


def test_signature_of_a_stuck_run_after_a_race_is_the_race() -> None:
    order = order_of("write", 3)
    plain = Stuck(stats=STATS, waits=NotDrained(steps=9))
    raced = signature_of(plain.model_copy(update={"missing_order": order}), trace("a"))
    bare = signature_of(diverged("accepted_counts", "races", 4, missing_order=order), trace("a"))
    assert raced is not None
    assert bare is not None
    assert raced.bug == bare.bug == "lanes d2h_counts before host"
    assert bare.harm.matches(raced)


def test_signature_of_smaller_trace_without_the_race_does_not_match() -> None:
    raced, plain = (
        signature_of(Stuck(stats=STATS, waits=NotDrained(steps=9), missing_order=order), trace("a"))
        for order in (order_of("write", 3), None)
    )
    assert raced is not None
    assert plain is not None
    assert raced.matches(raced)
    assert not raced.matches(plain)


def test_request_name_inside_a_word_is_not_replaced() -> None:
    signature = signature_of(Crashed(stats=STATS, error="Error: a waits: all", where=CONDENSE), trace("a"))
    assert signature is not None
    assert signature.rule == "Error: R waits: all"


@pytest.mark.parametrize("plane", ["races", "counts"])
def test_missing_order_is_one_bug_for_all_consequences(plane: str) -> None:
    harmless = signature_of(diverged("accepted_counts", "races", 4, missing_order=order_of("write", 3)), trace("a"))
    other = signature_of(diverged("accepted_read", plane, 9, missing_order=order_of("write", 8)), trace("a"))
    assert harmless is not None
    assert other is not None
    assert harmless.bug == other.bug == "lanes d2h_counts before host"
    assert harmless.matches(other)
    assert other.matches(harmless) is (plane == "races")
    assert harmless.harm.matches(other) is (plane == "counts")


def test_signature_of_wrong_output_includes_the_reference_run() -> None:
    found = [
        signature_of(diverged("tokens", "tokens", step, reference=reference), trace("a"))
        for step, reference in ((3, Reference.ALONE), (4, Reference.ALONE), (3, Reference.SYNCHRONOUS), (3, None))
    ]
    assert [each.bug for each in found if each] == [
        "tokens tokens unlike alone",
        "tokens tokens unlike alone",
        "tokens tokens unlike synchronous",
        "tokens tokens",
    ]


def test_signature_of_other_verdicts_is_none() -> None:
    given = Trace(events=(Abort(tick=0, request="a"),))
    verdicts = (Agreed(stats=STATS), Vacuous(stats=STATS, missing=(fact("no_event"),)), Lost(reason="x"))
    assert [signature_of(verdict, given) for verdict in verdicts] == [None, None, None]
