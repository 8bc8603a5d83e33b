"""Every misbehaviour of an engine's process becomes a verdict or a refusal, in time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from time import monotonic

import pytest

from scenarios.capabilities import Capabilities
from scenarios.codec import loads
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Harm, Site
from workers.record.verdict import Agreed, Crashed, Diverged, Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.child import process
from workers.targets.child.messages import Message
from workers.targets.child.process import ITS_PROCESS, A, EngineProcess, Keeper, Launch, Seconds
from workers.targets.child.target import ChildKind
from workers.targets.target import DeviceError, RunConfig

CHILD = Path(__file__).with_name("misbehaving.py")
QUESTIONS = ("open", "step", "report", "harm", "close")
TRACE = loads(
    "spec: {depth: 1, num_speculative_tokens: 0}\n"
    "events:\n  - {tick: 0, do: submit, request: a, prompt: [1], max_tokens: 3}\n",
    "x",
)
# Misbehaviours that end by a timeout, with short timeouts for the one question; others keep the default.
TIMEOUTS = {
    "says nothing": Seconds(start=1.0, answer=1.0),
    "says half a line": Seconds(start=1.0, answer=1.0),
    "says byte after byte": Seconds(start=1.0, answer=1.0),
    "closes its output": Seconds(end=0.1),
}
SECONDS = {**TIMEOUTS, "closes its input": Seconds(end=0.1)}
SECONDS_MAX = 60.0
# For each misbehaviour at any question, part of the message.
MESSAGES = {
    "dies of SIGKILL": "died of SIGKILL",
    "dies of SIGSEGV": "died of SIGSEGV",
    "ends with exit code 0": "died with exit code 0",
    "ends with exit code 1": "died with exit code 1",
    "raises": "RuntimeError: no",
    "says half a line and ends": "died with exit code 1",
    "says a line without an end": "wrote a line longer than 65536 bytes",
    "says no JSON": "a line that is no JSON: b'no JSON'",
    "says no number": "number: Field required",
    "says another number": "an answer to question",
    "answers with fields of wrong types": "",
    "answers with a field too few": "",
    "answers with a field too many": "more: Extra inputs are not permitted",
    "answers twice": "with more than one line",
    "answers the next question too": "with more than one line",
}
# The same for misbehaviours that are tested at a step only: their message does not depend on the question.
MESSAGES_AT_A_STEP = {
    "dies of a signal without a name": "died of signal 35",
    "says an empty line": "a line that is no JSON: b''",
    "says no UTF-8": "a line that is no JSON",
    "says half a character": "a line that is no JSON",
    "says a key twice": 'a line in which key "number" appears twice; each key goes once',
    "says a key twice inside": 'a line in which key "version" appears twice; each key goes once',
    "says no object": "a line that is no JSON object: b'[1]'",
    "says a deep list": "a line that is no JSON",
    "says a long number": "a line that is no JSON",
    "says no answer": "answer: Field required",
    "says answer and error": "answer: Extra inputs are not permitted",
    "raises without a place": "where: Field required",
    "raises what is no text": "error: Input should be a valid string",
    "answers with a list": "answer: Input should be an object",
    "delivers to nobody": "delivered to 'z', which was never submitted",
    "says nothing": "gave no answer in 1 s",
    "says half a line": "gave no answer in 1 s",
    "says byte after byte": "gave no answer in 1 s",
    "closes its output": "closed its output but did not end",
    "closes its input": "closed its input but did not end",
}


class Impatient(Keeper):
    """Keeper that starts a process with a short time limit for one answer."""

    def __init__(self, engine: str, launch: Launch, at: str, short: Seconds) -> None:
        super().__init__(engine, lambda: launch, short if at == "greet" else process.SECONDS)
        self._at, self._short = at, short

    def process(self) -> EngineProcess:
        kept = super().process()

        def ask(question: Message, kind: type[A]) -> A:
            kept._seconds = self._short if question["do"] == self._at else process.SECONDS
            return EngineProcess.ask(kept, question, kind)

        kept.ask = ask  # type: ignore[method-assign]
        return kept


class Misbehaving(ChildKind):
    """An engine that misbehaves at one question."""

    name = "misbehaving"
    capabilities = Capabilities(spec={"depth": (1,), "num_speculative_tokens": (0,), "layers": ()}, planes=("races",))

    def __init__(self, at: str, how: str, races: bool = False) -> None:
        command = (sys.executable, "-S", "-E", str(CHILD), at, how, *(("races",) if races else ()))
        launch = Launch(command, {"DRIVER": str(os.getpid())}, CHILD.parent)
        self.kept: Keeper = Impatient(self.name, launch, at, SECONDS.get(how, process.SECONDS))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def judged(kind: Misbehaving) -> Verdict:
    """Check the trace in a process of this engine; end the process within the time limit."""
    begun = monotonic()
    try:
        return check(TRACE, ModelValueCache(), Options(blame=True), kind=kind)
    finally:
        kind.kept.stop()
        assert monotonic() - begun < SECONDS_MAX


@contextmanager
def short_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(process, "LINE_BYTES_MAX", 1 << 16)
        yield


def test_correct_answers_are_judged() -> None:
    assert isinstance(judged(Misbehaving("never", "")), Agreed)
    raced = judged(Misbehaving("never", "", races=True))
    assert isinstance(raced, Diverged)
    assert raced.difference.plane == "races"
    order = raced.difference.missing_order
    assert order is not None
    assert order.harm == Harm(kind="benign")


@pytest.mark.parametrize("how", MESSAGES)
@pytest.mark.parametrize("at", QUESTIONS)
def test_misbehaviour_at_any_question_is_a_crash(at: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with short_lines(monkeypatch):
        verdict = judged(Misbehaving(at, how, races=at == "harm"))
    assert isinstance(verdict, Crashed)
    assert MESSAGES[how] in verdict.error
    assert verdict.where == (Site(function="run", file="core.py", line=1) if how == "raises" else ITS_PROCESS)


@pytest.mark.parametrize("at", QUESTIONS)
def test_interrupt_during_a_question_ends_the_check_without_verdict(at: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        judged(Misbehaving(at, "interrupts", races=at == "harm"))


def test_engine_is_created_in_a_new_process_after_a_failed_open() -> None:
    kind, well = Misbehaving("open", "raises"), Misbehaving("never", "")
    launches = chain([kind.kept.launch()], repeat(well.kept.launch()))
    kind.kept = Keeper(kind.name, lambda: next(launches))
    assert isinstance(judged(kind), Agreed)


@pytest.mark.parametrize("how", MESSAGES_AT_A_STEP)
def test_misbehaviour_at_a_step_is_a_crash(how: str) -> None:
    verdict = judged(Misbehaving("step", how))
    assert isinstance(verdict, Crashed)
    assert MESSAGES_AT_A_STEP[how] in verdict.error
    assert verdict.where == ITS_PROCESS


@pytest.mark.parametrize(
    "how", [*MESSAGES, "says nothing", "says half a line", "says byte after byte", "closes its output"]
)
def test_misbehaviour_at_the_start_refuses_the_engine(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with short_lines(monkeypatch), pytest.raises(DeviceError, match=r"^engine misbehaving: ") as refused:
        judged(Misbehaving("greet", how))
    assert (MESSAGES | MESSAGES_AT_A_STEP)[how] in str(refused.value)


@pytest.mark.parametrize("how", [*MESSAGES, *TIMEOUTS])
def test_process_that_fails_at_forget_is_replaced(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with short_lines(monkeypatch):
        verdict = judged(Misbehaving("forget", how, races=True))
    # The race is a finding, so it is verified on new engines, which a new process creates.
    assert isinstance(verdict, Diverged)


def test_engine_that_cannot_be_started_is_refused() -> None:
    launch = Launch(("/nowhere/python",), {}, CHILD.parent)
    with pytest.raises(DeviceError, match="engine missing: /nowhere/python cannot be started"):
        Keeper("missing", lambda: launch).process()
