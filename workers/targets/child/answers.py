"""Answers of an engine's process as values: those of another shape or type are refused before they are read.

They are read strictly: nothing is converted.
"""

from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from scenarios.sampling import Output
from scenarios.spec import Value
from workers.record.evidence import Harm, MissingOrder, Site
from workers.record.shown import Shown
from workers.targets.child.messages import MessageError, message_in


class Answered(Value):
    """An answer that is yet to be read."""

    number: int
    answer: dict[str, Any]


class Greeting(Value):
    """An engine has started, of a version."""

    version: str


class Nothing(Value):
    """The question was carried out."""


class Kernels(Value):
    """Why kernels do not run as their definitions, by name."""

    interpreted: dict[str, str]


class Ran(Value):
    """Names of the engine's functions that have run since the last question (`workers.edits.functions`)."""

    functions: list[str]


class Delivery(Value):
    """Output tokens that a step delivered to the client of one request, and logprobs of output and prompt tokens.

    `is_late` is true if the engine had processed an abort of the request before: then it should deliver no output
    tokens.
    """

    request: str
    output: Output
    is_late: bool


class Failed(Value):
    """An exception of the engine: its message, and where it was raised. The process may be unusable after it.

    `callers` are the callers of that function, nearest first. `seen` is what the scheduler, model runner and drafter
    have shown since the last answer.
    """

    number: int
    error: str
    where: Site
    callers: tuple[Site, ...] = ()
    seen: tuple[Shown, ...] = ()
    is_last: bool = False


class _Answer(Value):
    """What the scheduler, model runner and drafter have shown since the last answer, if steps are watched."""

    seen: tuple[Shown, ...]


class Stepped(_Answer):
    """Result of a step: output tokens by request, whether the engine has drained, and the probes so far."""

    deliveries: tuple[Delivery, ...]
    drained: bool
    probes: dict[str, int]


class Race(Value):
    """Two accesses of the same memory that nothing orders, and how often."""

    order: MissingOrder
    count: int


class Reported(_Answer):
    """Everything has run: the races of the trace, and what the device counted."""

    races: tuple[Race, ...]
    counts: dict[str, int]


class Harmed(Value):
    """The harm of a race."""

    harm: Harm


A = TypeVar("A", bound=Value)


def answer_in(line: bytes, number: int, kind: type[A]) -> A | Failed:
    """Return the answer of a kind to the question of a number that is in a line, or what the engine failed with.

    Raises:
        MessageError: there is none, or it is of another shape.
    """
    is_failure = "error" in message_in(line)
    try:
        said: Failed | Answered = (Failed if is_failure else Answered).model_validate_json(line, strict=True)
        if said.number != number:
            raise MessageError(f"an answer to question {said.number}, not to {number}")
        return said if isinstance(said, Failed) else kind.model_validate_json(to_json(said.answer), strict=True)
    except ValidationError as error:
        raise MessageError(_misfit(error)) from error


def _misfit(error: ValidationError) -> str:
    """Describe the first error in an answer, and its place."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
