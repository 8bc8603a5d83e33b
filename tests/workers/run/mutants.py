"""Engines with one bug each: how to build them, and those with a bug on the host."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple

from scenarios.spec import EngineSpec
from workers.engine.counts import CountsInFlight, gather_counts, true_count
from workers.engine.functions import EngineFunctions, Kernel
from workers.engine.input_batch import Row
from workers.engine.params_line import params_line
from workers.engine.request import PlanRow, Request
from workers.engine.staging import common_blocks
from workers.kernels.sentinels import NO_DRAFT

CLEAN = EngineFunctions()
Change = Callable[[Any], Any]


class Mutant(NamedTuple):
    """An engine with one bug; `planes` are the planes of the first difference that it may have."""

    name: str
    planes: str
    functions: EngineFunctions


def ran_as(kernel: Kernel[Any], body: Callable[[Any], None]) -> Kernel[Any]:
    """Return another function with the name and the arguments of op `kernel`."""

    @wraps(kernel)
    def mutated(a: Any) -> None:
        body(a)

    return mutated


def with_part(part: str, kernel: Kernel[Any]) -> EngineFunctions:
    """Return the engine's functions with one op replaced."""
    changes: dict[str, Any] = {part: kernel}
    return EngineFunctions(**changes)


def fed(part: str, **changes: Change) -> EngineFunctions:
    """Return the engine's functions with other arguments for one op."""
    kernel = getattr(CLEAN, part)

    def body(given: Any) -> None:
        kernel(given.on({name: change(given) for name, change in changes.items()}))

    return with_part(part, ran_as(kernel, body))


def then(part: str, change: Callable[[Any], None]) -> EngineFunctions:
    """Return the engine's functions with one op that corrupts its result."""
    kernel = getattr(CLEAN, part)

    def body(given: Any) -> None:
        kernel(given)
        change(given)

    return with_part(part, ran_as(kernel, body))


def never(part: str) -> EngineFunctions:
    """Return the engine's functions with one op that does nothing."""
    return with_part(part, ran_as(getattr(CLEAN, part), lambda given: None))


def most_urgent(running: Sequence[Request]) -> Request:
    return min(running, key=lambda request: (request.priority, request.index))


def forgets_placeholders(request: Request, num_drafts: int, num_valid: int) -> None:
    request.num_computed -= 1 + num_drafts - num_valid


def forgets_computed(request: Request, num_drafts: int, num_valid: int) -> None:
    request.num_placeholders -= 1 + num_drafts - num_valid


def forgets_the_verified_token(request: Request, num_drafts: int, num_valid: int) -> None:
    rejected = max(0, num_drafts - max(0, num_valid - 1))
    request.num_computed -= rejected
    request.num_placeholders -= rejected


Rows = Sequence[PlanRow]
Moves = Sequence[tuple[int, int]]


def counts_of_this_row(
    counts: CountsInFlight | None, previous: Sequence[int], rows: Rows, moves: Moves
) -> Sequence[int]:
    here = [index if before >= 0 else before for index, before in enumerate(previous)]
    size = counts.pinned.key[1] if counts is not None else 0
    return gather_counts(counts, [min(row, size - 1) for row in here], rows, moves)


def counts_not_waited_for(
    counts: CountsInFlight | None, previous: Sequence[int], rows: Rows, moves: Moves
) -> Sequence[int]:
    if counts is None:
        return gather_counts(counts, previous, rows, moves)
    with counts.machine.host(counts.pinned, "r") as landed:
        values = landed.tolist()
    return [values[row] if row >= 0 else plan.num_accepted for row, plan in zip(previous, rows, strict=True)]


def gaps_lose_the_count(counts: CountsInFlight | None, previous: Sequence[int], rows: Rows, moves: Moves) -> list[int]:
    found = gather_counts(counts, previous, rows, moves)
    return [1 if row < 0 else count for row, count in zip(previous, found, strict=True)]


def subtracts(computed: int, row: PlanRow, num_valid: int) -> int:
    return row.num_computed + row.scheduled.n - (0 if row.discard else 1 + row.scheduled.d - num_valid)


def resumed_output_is_prompt(request: Request, spec: EngineSpec) -> list[int]:
    return [len(request.tokens), *params_line(request, spec)[1:]]


def stale(part: str) -> EngineFunctions:
    """Return the engine's functions with one op that copies the data of its previous call."""
    held: dict[tuple[int, ...], Any] = {}

    def body(given: Any) -> None:
        source, destination = (getattr(given, name) for name in given.declared)
        destination[:] = held.get(source.shape, source)
        held[source.shape] = source.copy()

    return with_part(part, ran_as(getattr(CLEAN, part), body))


COPIES: Mapping[str, str] = {
    "copy_inputs": "counts inputs kv tokens",
    "copy_script": "drafts",
    "copy_line": "logits counts",
    "copy_output": "tokens books",
    "copy_counts": "counts",
    "copy_logprobs": "logits",
    "copy_masks": "logits counts tokens",
    "copy_drafts": "inputs drafts",
    "copy_accepted": "counts",
}


def the_block_that_is_filled_too(rows: Sequence[Row], spec: EngineSpec) -> int:
    found = common_blocks(rows, spec)
    ends = [row.num_computed + row.plan.scheduled.n for row in rows]
    return found + (found > 0 and min(ends) > (found + 1) * spec.block_size)


HOST_MUTANTS = (
    Mutant(
        "a common prefix counts the block that is being filled",
        "kv",
        EngineFunctions(common_blocks=the_block_that_is_filled_too),
    ),
    Mutant(
        "the victim is the request admitted first", "books", EngineFunctions(choose_victim=lambda running: running[0])
    ),
    Mutant("the victim is the most urgent", "books", EngineFunctions(choose_victim_by_priority=most_urgent)),
    Mutant("roll_back forgets placeholders", "counts", EngineFunctions(roll_back=forgets_placeholders)),
    Mutant("roll_back forgets computed tokens", "counts", EngineFunctions(roll_back=forgets_computed)),
    Mutant("roll_back forgets a sample taken away", "counts", EngineFunctions(roll_back=forgets_the_verified_token)),
    Mutant(
        "the backup is the token after the last one",
        "inputs",
        EngineFunctions(backup_index=lambda known, length: known),
    ),
    Mutant("the backup is the first token", "inputs", EngineFunctions(backup_index=lambda known, length: 0)),
    Mutant(
        "drafters on the host miss the last token",
        "drafts",
        EngineFunctions(tokens_to_search=lambda request: request.tokens[:-1]),
    ),
    Mutant(
        "drafters on the host never forget a request", "books", EngineFunctions(forgets_drafts=lambda request: False)
    ),
    Mutant("true_count subtracts from the optimistic count", "counts", EngineFunctions(true_count=subtracts)),
    Mutant(
        "true_count ignores discarded rows",
        "counts",
        EngineFunctions(
            true_count=lambda computed, row, valid: true_count(computed, replace(row, discard=False), valid)
        ),
    ),
    Mutant("accepted counts are read at the current row", "counts", EngineFunctions(gather_counts=counts_of_this_row)),
    Mutant("accepted counts are read before they land", "races", EngineFunctions(gather_counts=counts_not_waited_for)),
    Mutant("a gap loses the accepted count", "counts", EngineFunctions(gather_counts=gaps_lose_the_count)),
    Mutant(
        "drafts are not checked against a grammar",
        "inputs drafts",
        EngineFunctions(checked_drafts=lambda request, count: (request.drafts + [NO_DRAFT] * count)[:count]),
    ),
    Mutant(
        "a resumed request's output counts as prompt", "logits", EngineFunctions(params_line=resumed_output_is_prompt)
    ),
    *(Mutant(f"{name} does nothing", planes, never(name)) for name, planes in COPIES.items()),
    *(Mutant(f"{name} brings what was there before", planes, stale(name)) for name, planes in COPIES.items()),
)
