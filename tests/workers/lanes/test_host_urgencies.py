"""Urgencies of host calls: whichever way they are drawn, they are the labelled draws."""

from itertools import product

from scenarios.draw import draw
from workers.lanes.host_urgencies import STEPS_AT_ONCE, HostUrgencies, draw_all

SEEDS = (0, 7, (1 << 63) + 5)


def test_many_draws_are_those_of_one_by_one() -> None:
    keys, indexes = ("submit", "launch target", ""), (0, 3, (1 << 32) + 9)
    for seed in SEEDS:
        assert draw_all(seed, "site", keys, indexes) == {
            key: [draw(seed, "site", key, index) for index in indexes] for key in keys
        }
    assert draw_all(0, "site", (), indexes) == {}


def test_a_call_draws_what_its_label_says_in_any_order_of_steps() -> None:
    steps = (*range(3 * STEPS_AT_ONCE), 5, 100 * STEPS_AT_ONCE, 0)
    for seed in SEEDS:
        urgencies = HostUrgencies(seed)
        # `new` is not made in the first steps, `odd` not in all.
        for step, label in product(steps, ("wait", "odd", "new")):
            if (label == "new" and step < STEPS_AT_ONCE) or (label == "odd" and step % 2 == 0):
                continue
            assert urgencies.of(label, step) == draw(seed, "host", label, step)


def test_known_calls_are_drawn_at_once_for_the_steps_to_come() -> None:
    urgencies = HostUrgencies(7)
    for step in range(STEPS_AT_ONCE + 1):
        urgencies.of("wait", step)
    drawn = urgencies._drawn["wait"]
    assert drawn == [draw(7, "host", "wait", STEPS_AT_ONCE + ahead) for ahead in range(STEPS_AT_ONCE)]
