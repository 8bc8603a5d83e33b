"""Identities of transfers: transfers that keep them are passed over, each use of a block in flight is reported."""

from collections.abc import Sequence

import pytest

from scenarios.spec import PRODUCER
from workers.judge.judge import End
from workers.judge.transfer_identities import TransferIdentities
from workers.record.evidence import Difference
from workers.record.observation import Observation, Output

SIZE = 4
ENDED, FAILED = Output((1,), "length"), Output((), "error")


def told(
    phase: str,
    number: int = 0,
    of: str = "load",
    blocks: Sequence[int] = (7, 8),
    lost: Sequence[int] = (),
    *,
    step: int = 0,
    is_ahead: bool = False,
    num_states: int = 0,
) -> Observation:
    values: dict[str, object] = {"number": number, "phase": phase, "of": of, "is_synchronous": False, "slots": [0, 1]}
    values |= {"is_ahead": is_ahead, "num_states": num_states}
    return Observation("transfer", step, (0,), {**values, "blocks": list(blocks), "lost": list(lost)})


def planned(blocks: Sequence[int], step: int = 1, states: Sequence[int] = ()) -> Observation:
    values = {"blocks": [(1, list(blocks))], "begun": [], "states": [(1, [list(states)])]}
    return Observation("scheduled", step, (1,), values)


def written(slot: int, step: int = 1, **states: list[int]) -> Observation:
    return Observation("inputs", step, (1,), {"starts": [0, 1], "slots": [slot], **states})


def looked(free: Sequence[int] = (), registered: Sequence[int] = ()) -> Observation:
    values = {"free": [(0, block) for block in free], "registered": [(0, block) for block in registered]}
    return Observation("in_flight", 1, (), values)


def preempted(*kept: int) -> Observation:
    return Observation("preempted", 1, (0,), {"kept": list(kept)})


def judged(seen: Sequence[Observation], output: Output = ENDED, stores_once: bool = False) -> Difference | None:
    judge = TransferIdentities(stores_once)
    judge.see_log([Observation("opened", -1, (), {"block_size": SIZE}), *seen])
    return judge.at_end(End(9, {"a": output}))


def test_transfers_that_begin_and_end_between_others_are_passed_over() -> None:
    load = [told("begins"), looked(), planned([1, 2]), told("ends"), planned([7], 2), written(7 * SIZE, 2)]
    store = [told("begins", 1, "store", [3]), planned([3], 3), told("ends", 1, "store", [3]), planned([3], 4)]
    assert judged([*load, *store, written(3 * SIZE, 4)]) is None


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("blocks", [told("begins"), planned([8]), told("ends")]),
        ("blocks", [told("begins", 0, "store"), told("begins", 1), told("ends"), told("ends", 1)]),
        ("written", [told("begins", 0, "store"), planned([1]), told("ends", 0, "store"), written(7 * SIZE + 3)]),
        ("blocks", [told("begins"), planned([1], states=[0, 8]), told("ends")]),
        ("written", [told("begins", 0, "store"), planned([1]), told("ends", 0, "store"), written(4, states_0=[8])]),
        ("free", [told("begins"), looked(free=[7]), told("ends")]),
        ("registered", [told("begins"), looked(registered=[8]), told("ends")]),
        ("ends", [told("begins")]),
        ("ends", [told("begins"), told("ends"), told("ends")]),
    ],
)
def test_a_block_that_is_used_while_in_flight_and_an_end_too_many_or_too_few_are_found(
    variable: str, seen: list[Observation]
) -> None:
    found = judged(seen)
    assert found is not None
    assert (found.plane, found.variable) == ("transfers", variable)


def test_blocks_of_a_store_that_ends_ahead_of_a_steps_kernels_may_be_written_by_these() -> None:
    begun = [told("begins", 0, "store"), planned([7])]
    early = told("ends", 0, "store", step=1, is_ahead=True)
    assert judged([*begun, early, written(7 * SIZE)]) is None
    of_another_step = told("ends", 0, "store", step=2, is_ahead=True)
    assert judged([*begun, of_another_step, written(7 * SIZE)]) is not None


def test_a_block_that_is_stored_again_before_its_store_has_ended_is_found() -> None:
    first = [told("begins", 0, "store"), told("copies", 0, "store")]
    again = [told("begins", 1, "store", [8]), told("copies", 1, "store", [8]), told("ends", 1, "store", [8])]
    assert judged([*first, told("ends", 0, "store"), *again], stores_once=True) is None
    # One that has ended by the time of the copy was waited for.
    assert judged([*first, again[0], told("ends", 0, "store"), *again[1:]], stores_once=True) is None
    found = judged([*first, *again, told("ends", 0, "store")], stores_once=True)
    assert found is not None
    assert (found.variable, found.step) == ("stored", 0)
    assert judged([*first, *again, told("ends", 0, "store")]) is None


def test_who_is_preempted_for_room_gives_all_blocks_back_at_once() -> None:
    assert judged([preempted()]) is None
    found = judged([preempted(), preempted(5, 6)])
    assert found is not None
    assert (found.variable, found.request, found.step) == ("preempted", "submit 0", 1)


def test_a_request_fails_only_where_blocks_were_lost() -> None:
    assert judged([told("begins"), told("ends", lost=[1])], FAILED) is None
    found = judged([told("begins"), told("ends")], FAILED)
    assert found is not None
    assert found.variable == "failures"


def of_producer(seen: Observation) -> Observation:
    return seen._replace(of=PRODUCER)


def computed(num_tokens: int, request: int = 0) -> Observation:
    """Return the step of the producer in which a prompt begins."""
    values = {"blocks": [(request, [3, 4])], "begun": [(request, list(range(num_tokens)))], "states": []}
    return of_producer(Observation("scheduled", 0, (request,), values))


def sent(phase: str, blocks: Sequence[int] = (3, 4), num_states: int = 0) -> Observation:
    seen = told(phase, of="send", blocks=blocks, num_states=num_states)
    return of_producer(seen._replace(values={**seen.values, "slots": []}))


def read(phase: str, slots: Sequence[int] = (3, 4), request: int = 0) -> Observation:
    seen = told(phase)
    return seen._replace(requests=(request,), values={**seen.values, "slots": list(slots)})


OPENED = of_producer(Observation("opened", -1, (), {"block_size": SIZE}))
HANDED = [OPENED, computed(2 * SIZE - 1), sent("begins")]


def test_a_prompt_that_is_kept_by_its_producer_until_it_is_read_is_passed_over() -> None:
    assert judged([*HANDED, read("begins"), read("ends"), sent("ends"), of_producer(planned([3], 2))]) is None
    # Blocks of its states come besides.
    assert (
        judged([*HANDED[:2], sent("begins", [3, 4, 6], 1), read("begins", [3, 4, 6]), read("ends"), sent("ends")])
        is None
    )
    # What is in the consumer's cache already is not read; what nobody reads is given back.
    assert judged([*HANDED, read("begins", [4]), read("ends", [4]), sent("ends")]) is None
    assert judged([*HANDED, sent("ends")]) is None


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", [3]), sent("ends", [3])]),
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", []), sent("ends", [])]),
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", [3, 6], 1), sent("ends")]),
        ("producer_ends", [*HANDED, read("begins"), sent("ends"), read("ends")]),
        ("read", [*HANDED, sent("ends"), read("begins"), read("ends")]),
        ("read", [*HANDED, read("begins", [4, 5]), read("ends"), sent("ends")]),
        ("read", [*HANDED, read("begins", request=1), read("ends", request=1), sent("ends")]),
        ("producer_ends", [*HANDED, read("begins"), read("ends")]),
        ("producer_free", [*HANDED, of_producer(looked(free=[3])), sent("ends")]),
        (
            "producer_written",
            [
                *HANDED,
                of_producer(planned([1])),
                of_producer(written(3 * SIZE)),
                read("begins"),
                read("ends"),
                sent("ends"),
            ],
        ),
    ],
)
def test_a_prompt_that_its_producer_keeps_in_part_or_too_shortly_is_found(
    variable: str, seen: list[Observation]
) -> None:
    found = judged(seen)
    assert found is not None
    assert (found.plane, found.variable) == ("transfers", variable)
