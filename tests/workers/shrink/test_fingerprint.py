"""Signatures: the same for the same bug on other traces, different for different bugs, None where nothing is wrong."""

import pytest

from scenarios.events import Abort, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.verdict import Agreed, Crashed, Diverged, Lost, Stats, Stuck, Vacuous, Verdict
from workers.shrink.fingerprint import Signature, signature_of

STATS = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
ORDER = (
    "nothing orders the {} by d2h_counts:copy_accepted@{} before the read by host:access@{} (both use accepted_counts)"
)


def trace(*names: str) -> Trace:
    return Trace(events=tuple(Submit(tick=0, request=name, prompt=(1,), max_tokens=1) for name in names))


def diverged(variable: str, plane: str, step: int, **more: object) -> Diverged:
    values = {"request": "a", "commit": f"a/0/{step}", "position": None, "expected": "1", "actual": "2", **more}
    return Diverged(stats=STATS, difference=Difference(plane=plane, variable=variable, step=step, **values))  # type: ignore[arg-type]


def test_where_and_when_a_difference_is_first_seen_does_not_matter() -> None:
    writers = ({"writers": (f"compute:count_accepted@{step}",)} for step in (3, 9))
    one, other = (
        signature_of(diverged("accepted", "counts", step, **each), trace("a"))
        for step, each in zip((3, 9), writers, strict=True)
    )
    assert one == other == Signature(plane="counts", variable="accepted", writer="compute:count_accepted")


def test_variables_planes_and_rules_tell_bugs_apart() -> None:
    verdicts: list[Verdict] = [
        diverged("accepted", "counts", 1),
        diverged("valid", "counts", 1),
        diverged("log", "books", 1, actual="scheduled: request a: 3 drafts are scheduled, 2 are due"),
        diverged("log", "books", 1, actual="freed: block 3 is given back by request 0, but belongs to nobody"),
        Crashed(stats=STATS, error="KeyError: 4", where="condense in input_batch.py:3"),
        Stuck(stats=STATS, reason="not drained after 70 steps; request a waits: no block"),
    ]
    signatures = [signature_of(verdict, trace("a")) for verdict in verdicts]
    assert None not in signatures
    assert len({signature.bug for signature in signatures if signature}) == len(verdicts)
    for one in signatures:
        assert one is not None
        assert [other for other in signatures if other and one.matches(other)] == [one]


def test_names_of_requests_numbers_and_lines_of_code_do_not_count() -> None:
    texts = [
        ("r1", "scheduled: request r1: 3 drafts are scheduled, 2 are due"),
        ("a-b", "scheduled: request a-b: 1 drafts are scheduled, 0 are due"),
    ]
    found = {signature_of(diverged("log", "books", 1, actual=text), trace(name)) for name, text in texts}
    assert len(found) == 1
    crashes = [("KeyError: 4", "condense in input_batch.py:3"), ("KeyError: 12", "condense in input_batch.py:77")]
    assert len({signature_of(Crashed(stats=STATS, error=e, where=w), trace("a")) for e, w in crashes}) == 1


def test_how_many_things_a_message_lists_does_not_count_nor_what_would_have_been_due() -> None:
    texts = (
        "scheduled: request a: blocks (3,) are taken over (4 tokens), due are ()",
        "scheduled: request a: blocks (3, 4, 17) are taken over (12 tokens), due are (3, 4)",
    )
    assert len({signature_of(diverged("log", "books", 1, actual=text), trace("a")) for text in texts}) == 1


def test_a_crash_after_a_race_is_the_race() -> None:
    order = ORDER.format("write", 3, 4)
    crash = Crashed(stats=STATS, error="IndexError: 4", where="gather in a.py:1", missing_order=order)
    signature = signature_of(crash, trace("a"))
    assert signature is not None
    assert signature.bug == "lanes d2h_counts before host"


def test_a_name_inside_a_word_is_left_alone() -> None:
    signature = signature_of(diverged("log", "books", 1, actual="request a waits: all"), trace("a"))
    assert signature is not None
    assert signature.rule == "request R waits: all"


@pytest.mark.parametrize("plane", ["races", "counts"])
def test_a_missing_order_is_one_bug_whatever_comes_of_it(plane: str) -> None:
    harmless = signature_of(
        diverged("accepted_counts", "races", 4, missing_order=ORDER.format("write", 3, 4)), trace("a")
    )
    other = signature_of(diverged("accepted_read", plane, 9, missing_order=ORDER.format("write", 8, 9)), trace("a"))
    assert harmless is not None
    assert other is not None
    assert harmless.bug == other.bug == "lanes d2h_counts before host"
    assert harmless.matches(other) is (plane == "races")


@pytest.mark.parametrize(
    ("request_name", "expected", "is_stop"), [("a", "7", True), ("a", "6", False), ("b", "7", False), ("c", "7", False)]
)
def test_a_stop_that_a_minimum_no_longer_holds_back_is_told_from_other_tokens(
    request_name: str, expected: str, is_stop: bool
) -> None:
    asked = {
        "a": ((7,), SamplingParams(min_tokens=2)),
        "b": ((7,), SamplingParams()),
        "c": ((), SamplingParams(min_tokens=2)),
    }
    submits = [
        Submit(tick=0, request=name, prompt=(1,), max_tokens=4, stop=stop, params=params)
        for name, (stop, params) in asked.items()
    ]
    verdict = diverged("tokens", "tokens", 3, request=request_name, expected=f"{expected}, as in another run")
    signature = signature_of(verdict, Trace(events=tuple(submits)))
    assert signature is not None
    assert signature.rule == "unlike another run" + ", where min_tokens let it stop" * is_stop


def test_what_is_no_finding_has_no_signature() -> None:
    given = Trace(events=(Abort(tick=0, request="a"),))
    verdicts = (Agreed(stats=STATS), Vacuous(stats=STATS, missing=("x",)), Lost(reason="x"))
    assert [signature_of(verdict, given) for verdict in verdicts] == [None, None, None]


def test_masks_that_meet_drafts_which_the_device_cuts_are_a_bug_of_their_own() -> None:
    followed = trace("a").events[0].model_copy(update={"params": SamplingParams(grammar=(((1, 0),),))})
    found = []
    for drafter in ("eagle", "ngram_gpu"):
        spec = EngineSpec(drafter=drafter)
        found.append(signature_of(diverged("grammar", "contracts", 3), Trace(spec=spec, events=(followed,))))
    assert [each.bug for each in found if each] == [
        "contracts grammar",
        "contracts grammar where grammars meet drafts that the device cuts",
    ]
