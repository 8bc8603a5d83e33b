"""Main loop of an engine's process: read questions from stdin, write answers to stdout."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import IO

from workers.targets.child.inside.host import Host, failure
from workers.targets.child.messages import GREETING, line_of, read_message, write_message


def serve(start: Callable[[Sequence[str]], tuple[Host, str]]) -> None:
    """Answer the questions on stdin, one at a time, until stdin ends.

    `start` receives the command-line arguments, imports the engine, and returns its host and its version.
    """
    # Output that the engine's libraries print goes to stderr: on stdout it would be read as an answer.
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    try:
        host, version = start(sys.argv[1:])
    except BaseException as error:
        write_message(answers, {"number": GREETING, **failure(error)})
        raise
    write_message(answers, {"number": GREETING, "answer": {"version": version}})
    while (question := read_message(questions)) is not None:
        number = question.pop("number")
        try:
            line = line_of({"number": number, "answer": host.answer(question)})
        except BaseException as error:
            # BaseException: an engine that calls `sys.exit` has failed as well.
            seen = host.last_seen()
            host.abandon()
            line = line_of({"number": number, **host.failure(error), "seen": seen})
        answers.write(line)
        answers.flush()
