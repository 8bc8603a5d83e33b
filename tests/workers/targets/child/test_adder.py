"""A minimal engine in a child process: its target is these two files, and judges check it."""

import sys
from pathlib import Path

from scenarios.capabilities import Capabilities, lacking
from scenarios.codec import loads
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Verdict
from workers.run.check import check
from workers.shrink.fingerprint import signature_of
from workers.targets.child.process import Keeper, Launch
from workers.targets.child.target import ChildKind
from workers.targets.target import RunConfig

ROOT = Path(__file__).resolve().parents[4]
TRACE = loads(
    """
spec: {depth: 2, num_speculative_tokens: 0}
events:
  - {tick: 0, do: submit, request: a, prompt: [3, 5], max_tokens: 6}
  - {tick: 1, do: submit, request: b, prompt: [7, 2, 9], max_tokens: 8}
  - {tick: 4, do: abort, request: a}
expect: {abort: 1}
""",
    "adder.yaml",
)


class Adder(ChildKind):
    """The kind of the adder engine, optionally with its bug."""

    name = "adder"
    capabilities = Capabilities(
        events=("abort",),
        hooks=("before_schedule",),
        spec={"depth": (1, 2), "num_speculative_tokens": (0,), "layers": ()},
        probes=("abort",),
    )

    def __init__(self, *arguments: str) -> None:
        command = (sys.executable, "-m", "tests.workers.targets.child.adder_child", *arguments)
        self.kept = Keeper(self.name, lambda: Launch(command, {}, ROOT))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def judged(kind: Adder) -> Verdict:
    assert lacking(TRACE, kind.capabilities) is None
    try:
        return check(TRACE, ModelValueCache(), kind=kind)
    finally:
        kind.kept.stop()


def test_engine_in_child_process_agrees_with_its_references() -> None:
    verdict = judged(Adder())
    assert isinstance(verdict, Agreed)
    assert (verdict.stats.requests, verdict.stats.captures, verdict.stats.probes) == (2, 2, {"abort": 1})


def test_bug_of_async_scheduling_is_found() -> None:
    verdict = judged(Adder("ahead"))
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.variable, verdict.difference.position) == ("tokens", 0)
    assert signature_of(verdict, TRACE) is not None


def test_renew_keeps_the_process_and_restart_ends_it() -> None:
    kind, config = Adder(), RunConfig()
    first = kind.kept.process()
    try:
        assert kind.renew(config)
        assert kind.kept.process() is first
        kind.restart(config)
        assert not first.is_alive()
    finally:
        kind.kept.stop()
