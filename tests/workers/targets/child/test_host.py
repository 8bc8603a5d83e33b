"""Host of an engine's process: answers, failures and harm; traces run after a failure."""

from typing import Any

import pytest

from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from tests.workers.targets.child.adder_child import Adders
from workers.targets.child.inside.host import Host, failure

OPEN = {
    "do": "open",
    "spec": EngineSpec().model_dump_json(),
    "schedule": Schedule().model_dump_json(),
    "races": True,
    "steps": False,
    "writers": True,
}
SUBMIT = {"do": "submit", "tick": 0, "request": "a", "prompt": [3, 5], "max_tokens": 2}
STALL = {"do": "stall", "tick": 0, "request": "a", "ticks": 1}


class Recorded:
    """A device that records its calls; its tasks are the labels of steps."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def idle(self) -> None:
        self.calls.append("idle")

    def begin(self, memory: object, schedule: Schedule, *, races: bool, digests: bool, writers: bool) -> None:
        watched = {"races": races, "digests": digests, "writers": writers}
        self.calls.append(" ".join(["begin", schedule.policy, *(name for name, is_on in watched.items() if is_on)]))

    def step(self, tick: int) -> None:
        self.calls.append(f"step {tick}")

    def abandon(self) -> None:
        self.calls.append("abandon")

    def report(self) -> dict[str, Any]:
        return {"races": [], "counts": {}}

    def race(self, number: int) -> int:
        return number

    def digests(self) -> list[str]:
        return [call for call in self.calls if call.startswith("step")]

    def harm(self, race: int, eager: list[str], lazy: list[str]) -> dict[str, object]:
        return {"race": race, "runs": [len(eager), len(lazy)]}


def test_trace_is_answered_step_by_step() -> None:
    host = Host(Adders(ahead=False))
    assert host.answer(OPEN) == {}
    first = host.answer({"do": "step", "events": [SUBMIT]})
    assert (first["deliveries"][0]["output"][0], first["drained"]) == ((8,), False)
    last = host.answer({"do": "step", "events": []})
    assert (last["deliveries"][0]["output"][1], last["drained"]) == ("length", True)
    assert host.answer({"do": "report"}) == {"races": [], "counts": {}, "seen": []}
    assert host.answer({"do": "close"}) == {}
    assert host.answer(OPEN) == {}


def test_harm_question_runs_the_trace_again_under_eager_and_lazy() -> None:
    device: Any = Recorded()
    host = Host(Adders(ahead=False), device)
    host.answer(OPEN)
    for events in ([SUBMIT], []):
        host.answer({"do": "step", "events": events})
    assert host.answer({"do": "harm", "race": 3}) == {"harm": {"race": 3, "runs": [4, 6]}}
    again = ["idle", "begin {} digests", "step 0", "step 1"]
    first = ["idle", "begin eager races writers", "step 0", "step 1"]
    assert device.calls == [*first, *(call.format(policy) for policy in ("eager", "lazy") for call in again)]


def test_exception_has_its_source_location_and_next_trace_runs() -> None:
    device: Any = Recorded()
    host = Host(Adders(ahead=False), device)
    host.answer(OPEN)
    with pytest.raises(ValueError, match="stall is not an event of this engine") as raised:
        host.answer({"do": "step", "events": [STALL]})
    failed = failure(raised.value)
    assert failed["error"] == "ValueError: stall is not an event of this engine"
    assert (failed["where"]["function"], failed["where"]["file"]) == ("happen", "adder_child.py")
    assert [caller["function"] for caller in failed["callers"]] == [raised.traceback[0].name]
    assert host.last_seen() == []
    host.abandon()
    assert device.calls[-1] == "abandon"
    assert host.answer(OPEN) == {}


def test_unknown_message_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="message 'sing'; expected one of open, step"):
        Host(Adders(ahead=False)).answer({"do": "sing"})
