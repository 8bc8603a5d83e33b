"""Process that answers like an engine's process, except for one question.

It imports no packages, so it starts at once. Its engine generates output token 1 for every request in each step. The
arguments are the question at which it misbehaves, how, and whether it reports a race.
"""

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
AT, HOW, RACES = sys.argv[1], sys.argv[2], sys.argv[3:] == ["races"]
_SITE = {"function": "run", "file": "core.py", "line": 1}
_SIDE = {"lane": "compute", "op": "copy", "step": 0, "site": _SITE}
_RACE = {
    "order": {"memory": "rows", "first": {**_SIDE, "how": "write"}, "second": {**_SIDE, "how": "read"}},
    "count": 1,
}


def say(text: bytes) -> None:
    """Write all bytes to stdout."""
    while text:
        text = text[os.write(1, text) :]


def line_of(message: Message) -> bytes:
    """Return a message as a line of JSON."""
    return json.dumps(message).encode() + b"\n"


def silence(closed: int | None = None) -> None:
    """Write nothing until the process is killed, after closing a descriptor if one is given."""
    if closed is not None:
        os.close(closed)
    while True:
        signal.pause()


def proceed() -> None:
    """Continue without misbehaving."""


def dribble() -> None:
    """Write one byte at a time, forever."""
    while True:
        say(b" ")
        select.select([], [], [], 0.01)


class Engine:
    """Answers every question correctly."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def answer(self, question: str, message: Message) -> Message:
        """Return the answer to a question."""
        match question:
            case "greet":
                return {"version": "1"}
            case "open":
                self._left = {}
                return {}
            case "step":
                return self._step(message["events"])
            case "report":
                return {"races": [_RACE] if RACES else [], "counts": {"tasks": 3}, "seen": []}
            case "harm":
                return {"harm": {"kind": "benign"}}
            case _:
                return {}

    def _step(self, events: list[Message]) -> Message:
        self._left |= {event["request"]: event["max_tokens"] for event in events}
        deliveries = []
        for request, left in self._left.items():
            if left:
                self._left[request] = left - 1
                reason = None if left > 1 else "length"
                deliveries.append({"request": request, "output": [[1], reason, [], []], "is_late": False})
        drained = not any(self._left.values())
        return {"deliveries": deliveries, "drained": drained, "probes": {}, "seen": []}


def right(number: int, answer: Message) -> bytes:
    """Return the correct answer."""
    return line_of({"number": number, "answer": answer})


def nothing(number: int, answer: Message) -> bytes:
    """Return nothing."""
    return b""


def half(number: int, answer: Message) -> bytes:
    """Return the first half of the correct answer."""
    line = right(number, answer)
    return line[: len(line) // 2]


def interrupting(number: int, answer: Message) -> bytes:
    """Interrupt the process that waits for the answer, then return the correct answer."""
    os.kill(int(os.environ["DRIVER"]), signal.SIGINT)
    return right(number, answer)


def deaf(number: int, answer: Message) -> bytes:
    """Close stdin, and return the correct answer."""
    os.close(0)
    return right(number, answer)


def spoilt(number: int, answer: Message) -> bytes:
    """Return an answer with fields of wrong types; an empty one gets an extra field."""
    fields = {name: {"wrong": 1} if not isinstance(value, dict) else 1 for name, value in answer.items()}
    return right(number, fields or {"more": 1})


def short(number: int, answer: Message) -> bytes:
    """Return an answer without its first field, or null for an empty answer."""
    return line_of({"number": number, "answer": dict([*answer.items()][1:]) if answer else None})


def misled(number: int, answer: Message) -> bytes:
    """Return an answer to `step` that delivers tokens to an unknown request."""
    return right(number, {**answer, "deliveries": [{**answer["deliveries"][0], "request": "z"}]})


# Output for each kind of misbehaviour, given the correct answer; no output for kinds that are not listed.
SAYS: dict[str, Callable[[int, Message], bytes]] = {
    "says half a line and ends": half,
    "says half a line": half,
    "closes its input": deaf,
    "interrupts": interrupting,
    "raises": lambda number, answer: line_of({"number": number, "error": "RuntimeError: no", "where": _SITE}),
    "raises without a place": lambda number, answer: line_of({"number": number, "error": "RuntimeError: no"}),
    "raises what is no text": lambda number, answer: line_of({"number": number, "error": 7, "where": _SITE}),
    "says a line without an end": lambda number, answer: b" " * (1 << 17),
    "says a key twice": lambda number, answer: (
        b'{"number":%d,"answer":%s,"number":%d}\n' % (number, json.dumps(answer).encode(), number)
    ),
    "says a key twice inside": lambda number, answer: b'{"number":%d,"answer":{"version":1,"version":2}}\n' % number,
    "says no JSON": lambda number, answer: b"no JSON\n",
    "says an empty line": lambda number, answer: b"\n",
    "says no UTF-8": lambda number, answer: b'{"number": "\xff"}\n',
    "says half a character": lambda number, answer: b'{"number": "\\ud800"}\n',
    "says no object": lambda number, answer: b"[1]\n",
    "says a deep list": lambda number, answer: b"[" * 60_000 + b"\n",
    "says a long number": lambda number, answer: b'{"number": ' + b"1" * 5_000 + b"}\n",
    "says no number": lambda number, answer: line_of({"answer": answer}),
    "says another number": lambda number, answer: right(number + 1, answer),
    "says no answer": lambda number, answer: line_of({"number": number}),
    "says answer and error": lambda number, answer: line_of(
        {"number": number, "answer": answer, "error": "", "where": _SITE}
    ),
    "answers with a list": lambda number, answer: line_of({"number": number, "answer": [answer]}),
    "answers with fields of wrong types": spoilt,
    "answers with a field too few": short,
    "answers with a field too many": lambda number, answer: right(number, {**answer, "more": 1}),
    "answers twice": lambda number, answer: 2 * right(number, answer),
    "answers the next question too": lambda number, answer: right(number, answer) + right(number + 1, {}),
    "delivers to nobody": misled,
}
# Action after the output; kinds that are not listed continue.
THEN: dict[str, Callable[[], None]] = {
    "dies of SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "dies of SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "dies of a signal without a name": lambda: os.kill(os.getpid(), signal.SIGRTMIN + 1),
    "ends with exit code 0": lambda: os._exit(0),
    "ends with exit code 1": lambda: os._exit(1),
    "says half a line and ends": lambda: os._exit(1),
    "says nothing": silence,
    "says half a line": silence,
    "says a line without an end": silence,
    "says byte after byte": dribble,
    "closes its output": lambda: silence(closed=1),
    "closes its input": silence,
}


def main() -> None:
    """Answer questions until stdin ends."""
    # End in any case after two minutes, even if the test has leaked this process.
    signal.alarm(120)
    engine, number, question = Engine(), 0, "greet"
    message: Message = {}
    while True:
        answer = engine.answer(question, message)
        if question == AT:
            say(SAYS.get(HOW, nothing)(number, answer))
            THEN.get(HOW, proceed)()
        else:
            say(right(number, answer))
        line = sys.stdin.buffer.readline()
        if not line:
            return
        message = json.loads(line)
        number, question = message["number"], message["do"]


if __name__ == "__main__":
    main()
