"""An engine on the simulated device in a process of its own: its races are found, named, known or looked for harm."""

import sys
from pathlib import Path

from scenarios.capabilities import Capabilities
from scenarios.codec import loads
from scenarios.events import Policy, Schedule
from scenarios.trace import Trace
from tests.workers.targets.simulated_torch.processes import needs_device
from workers.oracle.tape import Tapes
from workers.record.evidence import MissingOrder
from workers.record.verdict import Agreed, Diverged, Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.child.process import Keeper, Launch
from workers.targets.child.target import KNOWN_RACE, ChildKind
from workers.targets.target import DEFAULT_CONFIG, RunConfig

ROOT = Path(__file__).resolve().parents[4]
TRACE = loads(
    "spec: {depth: 1, num_speculative_tokens: 0}\n"
    "events:\n  - {tick: 0, do: submit, request: a, prompt: [3, 5], max_tokens: 4}\n",
    "racer.yaml",
)
MEMORY = "runner.buffers.results"


class Racer(ChildKind):
    """The kind of the tiny engine, with its race, known or not, or without."""

    name = "racer"
    capabilities = Capabilities(
        spec={"depth": (1,), "num_speculative_tokens": (0,), "layers": ()},
        devices={"sim": ("streams",)},
        policies=("eager", "lazy", "random"),
        planes=("races",),
    )

    def __init__(self, *arguments: str, known: str = "") -> None:
        self.known_memory = known
        command = (sys.executable, "-m", "tests.workers.targets.child.racer_child", *arguments)
        self.kept = Keeper(self.name, lambda: Launch(command, {}, ROOT))

    def is_known(self, race: MissingOrder, trace: Trace, config: RunConfig = DEFAULT_CONFIG) -> bool:
        return race.memory == self.known_memory

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def judged(kind: Racer, policy: Policy = "eager") -> Verdict:
    try:
        return check(
            TRACE.model_copy(update={"schedule": Schedule(policy=policy)}), Tapes(), Options(blame=True), kind=kind
        )
    finally:
        kind.kept.stop()


CHILD_FILE = "tests/workers/targets/child/racer_child.py"


@needs_device
def test_an_engine_that_waits_for_its_copies_agrees_under_a_late_device() -> None:
    assert isinstance(judged(Racer(), "lazy"), Agreed)


@needs_device
def test_a_copy_that_is_read_too_soon_is_a_race_with_memory_lines_and_harm() -> None:
    verdict = judged(Racer("unordered"))
    assert isinstance(verdict, Diverged)
    found = verdict.difference
    assert (found.plane, found.variable) == ("races", "step and step")
    order = found.missing_order
    assert order is not None
    assert order.memory == MEMORY
    assert [side.site.file for side in (order.first, order.second) if side.site] == [CHILD_FILE] * 2
    assert order.harm is not None


@needs_device
def test_a_race_that_is_known_is_counted_and_not_reported_again() -> None:
    verdict = judged(Racer("unordered", known=MEMORY))
    assert isinstance(verdict, Agreed)
    assert verdict.stats.probes[KNOWN_RACE] > 0
