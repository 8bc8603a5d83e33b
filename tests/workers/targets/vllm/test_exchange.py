"""`Exchange`: a producer keeps blocks until they are read, declined, or their lease expires."""

from collections import Counter
from typing import Any

from scenarios.spec import Transfer
from workers.targets.vllm.inside.transfer.handoff import Exchange, HandoffFlights


def exchange(lease_ticks: int = 4) -> tuple[Exchange, HandoffFlights, list[str]]:
    """Return an exchange, its producer's transfers, and the list of recorded phases."""
    producer, told = HandoffFlights(Transfer(), 4), list[str]()

    def note(point: str, names: list[str], **values: Any) -> None:
        told.append(f"{names[0]} {values['phase']}")

    producer.begin(Counter(), note)
    return Exchange(producer, lease_ticks), producer, told


def test_exchange_keeps_blocks_while_they_are_read() -> None:
    kept, producer, told = exchange()
    kept.offer("a", [1, 2], [3])
    kept.read("a")
    producer.tick = 60
    assert (kept.keeps("a"), kept.collect()) == (True, set())
    kept.release("a")
    assert (kept.keeps("a"), producer.left()) == (False, {"transfers in flight": 1})
    assert (kept.collect(), kept.collect()) == ({"a"}, set())
    assert (told, producer.left()) == (["a begins", "a ends"], {"transfers in flight": 0})


def test_exchange_releases_unread_blocks_after_the_lease() -> None:
    kept, producer, _ = exchange()
    kept.offer("a", [1], [])
    producer.tick = 3
    assert kept.collect() == set()
    producer.tick = 4
    assert (kept.collect(), kept.keeps("a"), producer.probes["lease_expired"]) == ({"a"}, False, 1)


def test_exchange_ignores_requests_without_blocks_and_unknown_requests() -> None:
    kept, producer, told = exchange()
    kept.offer("a", [], [])
    kept.release("b")
    assert (kept.keeps("a"), kept.collect(), told) == (False, set(), ["a begins", "a ends"])
    assert producer.left() == {"transfers in flight": 0}
