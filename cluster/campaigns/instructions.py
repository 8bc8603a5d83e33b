"""Carry out what a coordinator decided: the one place where its instructions reach pool and store."""

from collections.abc import Callable, Iterable
from typing import assert_never

from cluster.dispatch.coordinator import Dispatch, Instruction, NoteLate, NoteLoss, Record, Replace
from cluster.dispatch.job import AnyJob
from cluster.dispatch.pool import Pool
from cluster.storage.store import Store


def obey(
    instructions: Iterable[Instruction],
    pool: Pool,
    store: Store | None,
    begin: Callable[[str, int, int], AnyJob],
    record: Callable[[Record], None],
) -> None:
    """Carry instructions out in order.

    `begin` takes the key of a job, the number of an attempt and a slot, writes the attempt down and returns the job;
    `record` writes a result down. Without a store nothing else is written down.
    """
    for instruction in instructions:
        match instruction:
            case Dispatch(slot=slot, job=key, attempt=attempt):
                pool.dispatch(slot, begin(key, attempt, slot), attempt)
            case Replace(slot=slot, worker=worker):
                pool.replace(slot, worker)
            case Record():
                record(instruction)
            case NoteLoss(job=key, attempt=attempt, reason=reason):
                if store is not None:
                    store.note_loss(key, attempt, reason)
            case NoteLate(job=key, attempt=attempt, answer=answer):
                if store is not None:
                    store.note_late(key, attempt, answer)
            case _:
                assert_never(instruction)
