"""Draws of the control plane: engines without one keep their traces, others get every kind of event."""

from scenarios.capabilities import Capabilities
from scenarios.control_draws import ONE_IN, controlled
from scenarios.events import CONTROL_EVENTS
from tests.scenarios.drawn import random_traces

NUM_TRACES = 200
ENGINE = Capabilities(events=CONTROL_EVENTS)


def test_a_trace_of_an_engine_without_a_control_plane_stays_as_it_is() -> None:
    traces = random_traces()[:NUM_TRACES]
    assert all(controlled(trace, Capabilities(events=("abort",))) is trace for trace in traces)


def test_one_trace_of_some_gets_events_behind_its_own_and_every_kind_is_drawn() -> None:
    traces = random_traces()[:NUM_TRACES]
    found = [controlled(trace, ENGINE) for trace in traces]
    added = [after.events[len(before.events) :] for before, after in zip(traces, found, strict=True)]
    assert all(after.events[: len(before.events)] == before.events for before, after in zip(traces, found, strict=True))
    assert NUM_TRACES / ONE_IN / 2 < sum(map(bool, added)) < 2 * NUM_TRACES / ONE_IN
    assert {event.do for events in added for event in events} == set(CONTROL_EVENTS)


def test_what_is_drawn_follows_from_the_trace_alone() -> None:
    traces = random_traces()[:NUM_TRACES]
    assert [controlled(trace, ENGINE) for trace in traces] == [controlled(trace, ENGINE) for trace in traces]
