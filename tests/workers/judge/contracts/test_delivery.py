"""Contracts: what was delivered stays, behind an end nothing comes, and a name is not the request that bears it."""

from scenarios.events import Abort
from tests.workers.judge.contracts.outputs import deliveries_of, submit_of
from workers.judge.contracts.breach import Breach
from workers.record.observation import Output

SUBMIT = submit_of(num_logprobs=1)


def after(*shown: Output) -> Breach | None:
    """Return the first breach in what is shown of one request, one after the other."""
    deliveries = deliveries_of()
    deliveries.submitted(SUBMIT, None, None)
    for output in shown:
        deliveries.shown({"a": output})
    return deliveries.breach


def test_an_output_that_grows_and_ends_is_sound() -> None:
    one, two = Output((3,), None, (3, -1.0)), Output((3, 4), None, (3, -1.0, 4, -2.0))
    assert after(Output((), None), one, one, two, Output(two.tokens, "length", two.logprobs)) is None


def test_what_was_delivered_does_not_change() -> None:
    found = after(Output((3, 4), None), Output((3, 5, 6), None))
    assert found == Breach("delivery", "a", 1, "2 tokens and what follows", "3 tokens")
    found = after(Output((3, 4), None), Output((3,), None))
    assert found == Breach("delivery", "a", 1, "2 tokens and what follows", "1 tokens")
    found = after(Output((3,), None, (3, -1.0)), Output((3, 4), None, (3, -1.5, 4, -1.0)))
    assert found is not None
    assert (found.contract, found.actual) == ("delivery", "other logprobs")


def test_behind_an_end_nothing_comes_and_no_other_end() -> None:
    ended = Output((3, 4), "stop")
    found = after(ended, Output((3, 4, 5), "stop"))
    assert found == Breach("delivery", "a", 2, "2 tokens, ended by stop and nothing more", "3 tokens, ended by stop")
    found = after(ended, Output((3, 4), "abort"))
    assert found is not None
    assert found.contract == "delivery"
    found = after(ended, Output((3, 4), None))
    assert found is not None
    assert found.contract == "delivery"


def test_the_first_breach_is_kept() -> None:
    found = after(Output((3, 4), None), Output((5, 4), None), Output((6, 4), None))
    assert found is not None
    assert found.position == 0
    assert found.actual == "2 tokens"


def test_an_output_without_a_request_is_seen_on_the_way() -> None:
    deliveries = deliveries_of()
    deliveries.shown({"z": Output((), None)})
    assert deliveries.breach is not None
    assert (deliveries.breach.contract, deliveries.breach.request) == ("answer", "z")


def test_a_name_that_is_used_again_means_another_request_with_terms_of_its_own() -> None:
    first, second = submit_of(max_tokens=1), submit_of(max_tokens=3)
    deliveries = deliveries_of()
    deliveries.submitted(first, None, None)
    assert deliveries.is_known("a")
    deliveries.submitted(second, Output((0,), "length"), Output((), None))
    assert deliveries.at_end({"a": Output((0, 1, 2), "length")}) is None
    found = deliveries.at_end({"a": Output((0,), "length")})
    assert found is not None
    assert found.contract == "max_tokens"


def test_the_output_of_the_first_is_judged_although_it_is_not_shown_any_more() -> None:
    first, second = submit_of(stop=(5,)), submit_of(max_tokens=1)
    deliveries = deliveries_of()
    deliveries.submitted(first, None, None)
    deliveries.submitted(second, Output((0,), "stop"), None)
    found = deliveries.at_end({"a": Output((0,), "length")})
    assert found is not None
    assert (found.contract, found.position) == ("stop", 1)


def test_a_submit_under_the_name_of_one_that_lives_is_none() -> None:
    first, second = submit_of(max_tokens=3), submit_of(max_tokens=1)
    deliveries = deliveries_of()
    deliveries.submitted(first, None, None)
    deliveries.submitted(second, Output((0,), None), Output((0,), None))
    assert deliveries.at_end({"a": Output((0, 1, 2), "length")}) is None


def test_who_comes_under_a_name_again_starts_with_nothing() -> None:
    for after_it in (Output((0,), None), Output((), "length")):
        deliveries = deliveries_of()
        deliveries.submitted(SUBMIT, None, None)
        deliveries.submitted(SUBMIT, Output((0,), "length"), after_it)
        assert deliveries.breach is not None
        assert deliveries.breach.contract == "name"


def test_an_abort_counts_where_a_request_is_alive() -> None:
    deliveries = deliveries_of()
    deliveries.aborted(Abort(tick=0, request="a"), None)
    deliveries.submitted(SUBMIT, None, None)
    deliveries.aborted(Abort(tick=0, request="a"), Output((0,), None))
    deliveries.aborted(Abort(tick=1, request="a"), Output((0, 1), None))
    assert deliveries.newest["a"].at_abort == Output((0,), None)
