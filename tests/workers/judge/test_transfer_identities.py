"""Identities of transfers: transfers that keep them are passed over, each use of a block in flight is reported."""

from collections.abc import Sequence

import pytest

from scenarios.sampling import Output
from scenarios.spec import PRODUCER, Offloading
from workers.judge.judge import End
from workers.judge.transfer_identities import TransferIdentities
from workers.record.evidence import Difference
from workers.record.observation import Observation

SIZE = 4
SIMPLE = Offloading(connector="simple")
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


def offered(*places: int, prompt: int = 3 * SIZE, tokens: int = 4 * SIZE + 1, found: int = 0) -> Observation:
    values = {"prompt": prompt, "tokens": tokens, "found": found, "offered": list(places)}
    return Observation("offered", 1, (0,), values)


def judged(
    seen: Sequence[Observation], output: Output = ENDED, offloading: Offloading | None = None
) -> Difference | None:
    judge = TransferIdentities(offloading)
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
    assert judged([*first, told("ends", 0, "store"), *again], offloading=SIMPLE) is None
    # One that has ended by the time of the copy was waited for.
    assert judged([*first, again[0], told("ends", 0, "store"), *again[1:]], offloading=SIMPLE) is None
    found = judged([*first, *again, told("ends", 0, "store")], offloading=SIMPLE)
    assert found is not None
    assert (found.variable, found.step) == ("stored", 0)
    assert judged([*first, *again, told("ends", 0, "store")]) is None


def test_a_whole_chunk_that_an_ended_request_computed_was_offered_to_its_store() -> None:
    every, prompts, wide = Offloading(), Offloading(stored="prompts"), Offloading(blocks_per_chunk=2)
    assert judged([offered(0, 1, 2, 3)], offloading=every) is None
    found = judged([offered(0, 1, 3)], offloading=every)
    assert found is not None
    assert (found.plane, found.variable, found.request, found.step) == ("transfers", "offered", "submit 0", 1)
    # The last token is computed by nobody.
    assert judged([offered(0, 1, 2, tokens=4 * SIZE)], offloading=every) is None
    assert judged([offered(0, 1, 2)], offloading=prompts) is None
    assert judged([offered(0, 1)], offloading=prompts) is not None
    assert judged([offered(0, 1)], offloading=wide) is None
    assert judged([offered(0)], offloading=wide) is not None
    # What was found need not be stored again; of a chunk that was found in part the rest is computed.
    assert judged([offered(2, 3, found=2 * SIZE)], offloading=every) is None
    assert judged([offered(1, found=3 * SIZE)], offloading=wide) is None
    assert judged([offered(found=3 * SIZE)], offloading=wide) is not None


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
