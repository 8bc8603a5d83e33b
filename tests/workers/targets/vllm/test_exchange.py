"""What a producer keeps for its consumer: until it has been read, is not wanted, or is left too long."""

from collections import Counter
from typing import Any

from scenarios.spec import Transfer
from workers.targets.vllm.inside.transfer.handoff import Exchange, HandoffFlights


def exchange(lease_ticks: int = 4) -> tuple[Exchange, HandoffFlights, list[str]]:
    """Return an exchange, the transfers of its producer, and what is told of them."""
    producer, told = HandoffFlights(Transfer(), 4), list[str]()

    def note(point: str, names: list[str], **values: Any) -> None:
        told.append(f"{names[0]} {values['phase']}")

    producer.begin(Counter(), note)
    return Exchange(producer, lease_ticks), producer, told


def test_blocks_are_kept_while_they_are_read_however_long_that_takes_and_no_longer() -> None:
    kept, producer, told = exchange()
    kept.offer("a", [1, 2], [3])
    kept.read("a")
    producer.tick = 60
    assert (kept.keeps("a"), kept.collect()) == (True, set())
    kept.give_back("a")
    assert (kept.keeps("a"), producer.left()) == (False, {"transfers in flight": 1})
    assert (kept.collect(), kept.collect()) == ({"a"}, set())
    assert (told, producer.left()) == (["a begins", "a ends"], {"transfers in flight": 0})


def test_blocks_that_nobody_begins_to_read_are_given_up_behind_the_lease() -> None:
    kept, producer, _ = exchange()
    kept.offer("a", [1], [])
    producer.tick = 3
    assert kept.collect() == set()
    producer.tick = 4
    assert (kept.collect(), kept.keeps("a"), producer.probes["lease_expired"]) == ({"a"}, False, 1)


def test_of_a_prompt_without_blocks_nothing_is_kept_and_what_was_never_offered_is_given_back_in_vain() -> None:
    kept, producer, told = exchange()
    kept.offer("a", [], [])
    kept.give_back("b")
    assert (kept.keeps("a"), kept.collect(), told) == (False, set(), ["a begins", "a ends"])
    assert producer.left() == {"transfers in flight": 0}
