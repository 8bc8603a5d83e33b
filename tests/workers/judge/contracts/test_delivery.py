"""Contracts on deliveries: append-only outputs, nothing after the end, reused names."""

from scenarios.events import Abort
from scenarios.sampling import Output
from tests.workers.judge.contracts.outputs import contracts_of, submit_of
from workers.judge.contracts.breach import Breach
from workers.record.evidence import fact

SUBMIT = submit_of(num_logprobs=1)


def after(*shown: Output) -> Breach | None:
    """Return the first violation in a sequence of deliveries of one request."""
    contracts = contracts_of()
    contracts.submitted(SUBMIT, None, None)
    for output in shown:
        contracts.see_outputs({"a": output})
    return contracts.breach


def test_growing_output_keeps_contracts() -> None:
    one, two = Output((3,), None, (3, -1.0)), Output((3, 4), None, (3, -1.0, 4, -2.0))
    assert after(Output((), None), one, one, two, Output(two.tokens, "length", two.logprobs)) is None


def test_delivered_tokens_are_append_only() -> None:
    demanded = fact("and_more", before=fact("tokens", count=2))
    found = after(Output((3, 4), None), Output((3, 5, 6), None))
    assert found == Breach("delivery", "a", 1, demanded, fact("tokens", count=3))
    found = after(Output((3, 4), None), Output((3,), None))
    assert found == Breach("delivery", "a", 1, demanded, fact("tokens", count=1))
    found = after(Output((3,), None, (3, -1.0)), Output((3, 4), None, (3, -1.5, 4, -1.0)))
    assert found is not None
    assert (found.contract, found.actual) == ("delivery", fact("other_logprobs"))


def test_delivery_after_end_is_a_breach() -> None:
    ended = Output((3, 4), "stop")
    found = after(ended, Output((3, 4, 5), "stop"))
    two, three = (fact("tokens_ended", count=count, reason="stop") for count in (2, 3))
    assert found == Breach("delivery", "a", 2, fact("and_no_more", before=two), three)
    found = after(ended, Output((3, 4), "abort"))
    assert found is not None
    assert found.contract == "delivery"
    found = after(ended, Output((3, 4), None))
    assert found is not None
    assert found.contract == "delivery"


def test_contracts_keep_first_breach() -> None:
    found = after(Output((3, 4), None), Output((5, 4), None), Output((6, 4), None))
    assert found is not None
    assert found.position == 0
    assert found.actual == fact("tokens", count=2)


def test_output_without_request_is_a_breach_in_its_step() -> None:
    contracts = contracts_of()
    contracts.see_outputs({"z": Output((), None)})
    assert contracts.breach is not None
    assert (contracts.breach.contract, contracts.breach.request) == ("answer", "z")


def test_reused_name_is_checked_with_its_own_request() -> None:
    first, second = submit_of(max_tokens=1), submit_of(max_tokens=3)
    contracts = contracts_of()
    contracts.submitted(first, None, None)
    assert contracts.is_known("a")
    contracts.submitted(second, Output((0,), "length"), Output((), None))
    assert contracts.first_breach({"a": Output((0, 1, 2), "length")}) is None
    found = contracts.first_breach({"a": Output((0,), "length")})
    assert found is not None
    assert found.contract == "max_tokens"


def test_replaced_output_of_reused_name_is_checked() -> None:
    first, second = submit_of(stop=(5,)), submit_of(max_tokens=1)
    contracts = contracts_of()
    contracts.submitted(first, None, None)
    contracts.submitted(second, Output((0,), "stop"), None)
    found = contracts.first_breach({"a": Output((0,), "length")})
    assert found is not None
    assert (found.contract, found.position) == ("stop", 1)


def test_submit_with_live_name_is_ignored() -> None:
    first, second = submit_of(max_tokens=3), submit_of(max_tokens=1)
    contracts = contracts_of()
    contracts.submitted(first, None, None)
    contracts.submitted(second, Output((0,), None), Output((0,), None))
    assert contracts.first_breach({"a": Output((0, 1, 2), "length")}) is None


def test_reused_name_starts_with_empty_output() -> None:
    for after_it in (Output((0,), None), Output((), "length")):
        contracts = contracts_of()
        contracts.submitted(SUBMIT, None, None)
        contracts.submitted(SUBMIT, Output((0,), "length"), after_it)
        assert contracts.breach is not None
        assert contracts.breach.contract == "name"


def test_abort_of_live_request_counts() -> None:
    contracts = contracts_of()
    contracts.aborted(Abort(tick=0, request="a"), None)
    contracts.submitted(SUBMIT, None, None)
    contracts.aborted(Abort(tick=0, request="a"), Output((0,), None))
    contracts.aborted(Abort(tick=1, request="a"), Output((0, 1), None))
    assert contracts.newest["a"].at_abort == Output((0,), None)
