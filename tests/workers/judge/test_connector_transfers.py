"""KV-connector transfers: complete ones are accepted, each wrong use of a block is reported."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from scenarios.sampling import Output
from scenarios.spec import ENGINE, PRODUCER, EngineName, Offloading
from tests.workers.judge.histories import first_of, opened, reported, shown
from workers.judge.connector_transfers import ConnectorTransfers
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference

SIZE = 4
SIMPLE = Offloading(connector="simple")
ENDED, FAILED = Output((1,), "length"), Output((), "error")


def transfer(
    phase: str, number: int = 0, of: str = "load", blocks: Sequence[int] = (7, 8), *, step: int = 0, **values: Any
) -> EngineRecord:
    return shown("transfer", step, [0], phase=phase, number=number, of=of, blocks=blocks, **{"slots": [0, 1], **values})


def planned(
    blocks: Sequence[int], step: int = 1, states: Sequence[int] = (), engine: EngineName = ENGINE
) -> EngineRecord:
    return shown("scheduled", step, [1], engine, begun=[(1, [5])], blocks=[(1, blocks)], states=[(1, [states])])


def written(slot: int, step: int = 1, states: Sequence[int] = (), engine: EngineName = ENGINE) -> EngineRecord:
    columns = {"states": states, "goes_on": [False], "kept": [1], "whole": [False]}
    return shown("inputs", step, [1], engine, slots=[slot], states=[columns] if states else [])


def looked(free: Sequence[int] = (), registered: Sequence[int] = (), engine: EngineName = ENGINE) -> EngineRecord:
    pairs: dict[str, Any] = {"free": [(0, block) for block in free], "registered": [(0, block) for block in registered]}
    return shown("in_flight", 1, engine=engine, **pairs)


def preempted(*kept: int) -> EngineRecord:
    return shown("preempted", 1, [0], kept=kept)


def offered(*chunks: int, prompt: int = 3 * SIZE, tokens: int = 4 * SIZE + 1, found: int = 0) -> EngineRecord:
    return shown("offered", 1, [0], prompt=prompt, tokens=tokens, found=found, offered=chunks)


def judged(
    seen: Sequence[EngineRecord], output: Output = ENDED, offloading: Offloading | None = None
) -> Difference | None:
    return first_of(ConnectorTransfers(offloading), [opened(block_size=SIZE), *seen], outputs={"a": output})


BEGINS, ENDS = transfer("begins"), transfer("ends")
STORES, STORED = transfer("begins", 0, "store"), transfer("ends", 0, "store")


def test_transfers_that_begin_and_end_among_steps_are_accepted() -> None:
    load = [BEGINS, looked(), planned([1, 2]), ENDS, planned([7], 2), written(7 * SIZE, 2)]
    ends = transfer("ends", 1, "store", [3])
    store = [transfer("begins", 1, "store", [3]), planned([3], 3), ends, planned([3], 4)]
    assert judged([*load, *store, written(3 * SIZE, 4)]) is None


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("blocks", [BEGINS, planned([8]), ENDS]),
        ("blocks", [STORES, transfer("begins", 1), ENDS, transfer("ends", 1)]),
        ("written", [STORES, planned([1]), STORED, written(7 * SIZE + 3)]),
        ("blocks", [BEGINS, planned([1], states=[0, 8]), ENDS]),
        ("written", [STORES, planned([1]), STORED, written(4, states=[8])]),
        ("free", [BEGINS, looked(free=[7]), ENDS]),
        ("registered", [BEGINS, looked(registered=[8]), ENDS]),
        ("ends", [BEGINS]),
        ("ends", [BEGINS, ENDS, ENDS]),
    ],
)
def test_block_used_in_flight_or_missing_or_second_end_is_reported(variable: str, seen: list[EngineRecord]) -> None:
    assert reported(judged(seen), "plane", "variable") == ("transfers", variable)


@pytest.mark.parametrize(("step", "is_accepted"), [(1, True), (2, False)])
def test_block_of_a_store_that_ends_ahead_of_its_step_may_be_written(step: int, is_accepted: bool) -> None:
    early = transfer("ends", 0, "store", step=step, is_ahead=True)
    assert (judged([STORES, planned([7]), early, written(7 * SIZE)]) is None) is is_accepted


def test_block_stored_again_before_its_store_has_ended_is_reported() -> None:
    first = [STORES, transfer("copies", 0, "store")]
    begins, copies, ends = (transfer(phase, 1, "store", [8]) for phase in ("begins", "copies", "ends"))
    assert judged([*first, STORED, begins, copies, ends], offloading=SIMPLE) is None
    # The store has ended before the copy.
    assert judged([*first, begins, STORED, copies, ends], offloading=SIMPLE) is None
    again = [*first, begins, copies, ends, STORED]
    assert reported(judged(again, offloading=SIMPLE), "variable", "step") == ("stored", 0)
    assert judged(again) is None


EVERY, PROMPTS, WIDE = Offloading(), Offloading(stored="prompts"), Offloading(blocks_per_chunk=2)


@pytest.mark.parametrize(
    ("offloading", "seen", "is_accepted"),
    [
        (EVERY, offered(0, 1, 2, 3), True),
        (EVERY, offered(0, 1, 3), False),
        # The KV cache entry of the last token is never computed.
        (EVERY, offered(0, 1, 2, tokens=4 * SIZE), True),
        (PROMPTS, offered(0, 1, 2), True),
        (PROMPTS, offered(0, 1), False),
        (WIDE, offered(0, 1), True),
        (WIDE, offered(0), False),
        # Chunks of a hit need not be stored again; a chunk that was hit in part is computed and stored.
        (EVERY, offered(2, 3, found=2 * SIZE), True),
        (WIDE, offered(1, found=3 * SIZE), True),
        (WIDE, offered(found=3 * SIZE), False),
    ],
)
def test_computed_chunk_that_was_not_offered_to_its_store_is_reported(
    offloading: Offloading, seen: EngineRecord, is_accepted: bool
) -> None:
    expected = None if is_accepted else ("transfers", "offered", "submit 0", 1)
    found = judged([seen], offloading=offloading)
    assert reported(found, "plane", "variable", "request", "step") == expected


def test_preempted_request_that_keeps_blocks_is_reported() -> None:
    assert judged([preempted()]) is None
    found = judged([preempted(), preempted(5, 6)])
    assert reported(found, "variable", "request", "step") == ("preempted", "submit 0", 1)


def test_failed_request_without_lost_blocks_is_reported() -> None:
    assert judged([BEGINS, transfer("ends", lost=[1])], FAILED) is None
    assert reported(judged([BEGINS, ENDS], FAILED), "variable") == ("failures",)


def computed(num_tokens: int) -> EngineRecord:
    """Return the step of the producer in which a prompt begins."""
    return shown("scheduled", 0, [0], PRODUCER, blocks=[(0, [3, 4])], begun=[(0, range(num_tokens))])


def sent(phase: str, blocks: Sequence[int] = (3, 4), num_states: int = 0) -> EngineRecord:
    return transfer(phase, of="send", blocks=blocks, num_states=num_states, slots=[], engine=PRODUCER)


def read(phase: str, slots: Sequence[int] = (3, 4), request: int = 0) -> EngineRecord:
    return shown("transfer", 0, [request], phase=phase, blocks=(7, 8), slots=slots)


OPENED = opened(PRODUCER, block_size=SIZE)
COMPUTED = [OPENED, computed(2 * SIZE - 1)]
HANDED = [*COMPUTED, sent("begins")]
READ = [read("begins"), read("ends")]
producer_planned, producer_written = partial(planned, engine=PRODUCER), partial(written, engine=PRODUCER)


@pytest.mark.parametrize(
    "seen",
    [
        [*HANDED, *READ, sent("ends"), producer_planned([3], 2)],
        [*COMPUTED, sent("begins", [3, 4, 6], 1), read("begins", [3, 4, 6]), read("ends"), sent("ends")],
        [*HANDED, read("begins", [4]), read("ends", [4]), sent("ends")],
        [*HANDED, sent("ends")],
    ],
    ids=["read", "read with a state", "cached in part by the consumer", "never read"],
)
def test_prompt_that_its_producer_keeps_until_it_is_read_is_accepted(seen: list[EngineRecord]) -> None:
    assert judged(seen) is None


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", [3]), sent("ends", [3])]),
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", []), sent("ends", [])]),
        ("producer_sent", [OPENED, computed(SIZE + 1), sent("begins", [3, 6], 1), sent("ends")]),
        ("producer_ends", [*HANDED, read("begins"), sent("ends"), read("ends")]),
        ("read", [*HANDED, sent("ends"), *READ]),
        ("read", [*HANDED, read("begins", [4, 5]), read("ends"), sent("ends")]),
        ("read", [*HANDED, read("begins", request=1), read("ends", request=1), sent("ends")]),
        ("producer_ends", [*HANDED, *READ]),
        ("producer_free", [*HANDED, looked(free=[3], engine=PRODUCER), sent("ends")]),
        ("producer_written", [*HANDED, producer_planned([1]), producer_written(3 * SIZE), *READ, sent("ends")]),
    ],
)
def test_prompt_that_its_producer_keeps_in_part_or_too_briefly_is_reported(
    variable: str, seen: list[EngineRecord]
) -> None:
    assert reported(judged(seen), "plane", "variable") == ("transfers", variable)
