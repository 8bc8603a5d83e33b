"""Answers of an engine's process, parsed strictly: a message of another shape is refused.

Validation is strict: nothing is converted, e.g. no string to a number.
"""

from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from scenarios.sampling import Output
from scenarios.spec import Value
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Harm, MissingOrder, Site
from workers.targets.child.messages import MessageError, message_in


class AnswerEnvelope(Value):
    """Envelope of an answer: number of the question, fields of the answer."""

    number: int
    answer: dict[str, Any]


class Greeting(Value):
    """First message of an engine's process: the engine's version; questions may follow."""

    version: str


class Nothing(Value):
    """Answer without content: the process has executed the command."""


class Kernels(Value):
    """Answer: the kernels that run in Triton's interpreter, each with the reason."""

    interpreted: dict[str, str]


class Ran(Value):
    """Answer: the functions of the engine that have run since the last such question."""

    functions: list[str]


class Delivery(Value):
    """Tokens, with logprobs, that one step delivered to a request's client.

    `output` may also have the logprobs of prompt tokens. `is_late` is true if the engine had processed an abort of the
    request before: then it should deliver no output tokens.
    """

    request: str
    output: Output
    is_late: bool


class Failed(Value):
    """Answer: an exception in the engine's process, with its message and source location.

    The process may be unusable afterwards; it is if `is_last` is true. `callers` are the callers of that function,
    nearest first. `seen` is what the scheduler, model runner and drafter have shown since the last answer.
    """

    number: int
    error: str
    where: Site
    callers: tuple[Site, ...] = ()
    seen: tuple[EngineRecord, ...] = ()
    is_last: bool = False


class _AnswerWithRecords(Value):
    """Base of the answers that carry new engine records (`seen`).

    `seen` is what the scheduler, model runner and drafter have shown since the last answer.
    """

    seen: tuple[EngineRecord, ...]


class Stepped(_AnswerWithRecords):
    """Answer to `step`: the tokens delivered to each client, and the probe counters so far.

    `drained` is true if the scheduler has no request left and no step is in flight.
    """

    deliveries: tuple[Delivery, ...]
    drained: bool
    probes: dict[str, int]


class Race(Value):
    """One race of a `Reported` answer: both accesses, and how often it occurred."""

    order: MissingOrder
    count: int


class Reported(_AnswerWithRecords):
    """Answer to `report`: races of the trace and counters of the device, after all device work."""

    races: tuple[Race, ...]
    counts: dict[str, int]


class Harmed(Value):
    """Answer to `harm`: whether a race changes what the host receives, and where first."""

    harm: Harm


A = TypeVar("A", bound=Value)


def answer_in(line: bytes, number: int, kind: type[A]) -> A | Failed:
    """Parse the answer to question `number` as a `kind`; raise if it is the engine's exception.

    Raises:
        MessageError: the line is not such an answer.
    """
    is_failure = "error" in message_in(line)
    try:
        received: Failed | AnswerEnvelope = (Failed if is_failure else AnswerEnvelope).model_validate_json(
            line, strict=True
        )
        if received.number != number:
            raise MessageError(f"an answer to question {received.number}, not to {number}")
        if isinstance(received, Failed):
            return received
        return kind.model_validate_json(to_json(received.answer), strict=True)
    except ValidationError as error:
        raise MessageError(_misfit(error)) from error


def _misfit(error: ValidationError) -> str:
    """Return an answer's first validation error in one line, with the path of the wrong field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
