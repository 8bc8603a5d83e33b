"""Findings of a hunt are printed at once as unconfirmed, and again when confirmed or dropped."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cluster.campaigns.exit_codes import EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.cli import main as cli
from scenarios.capabilities import Capabilities
from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from tests.workers.targets.black_box import BlackBox, BlackBoxKind
from workers.record.verdict import is_finding
from workers.run.worker import Worker
from workers.targets import registry
from workers.targets.target import Confirmation, RunConfig, Watch

CONFIG = RunConfig(engine="black_box")
SEED = 1


@dataclass(frozen=True)
class Costly(BlackBoxKind):
    """A costly engine with a bug at depth 2; findings need a run with interpreted kernels."""

    is_wrong_interpreted = True

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, is_costly=True)

    def renew(self, config: RunConfig) -> bool:
        return True

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        if config.kernels == "interpreted":
            return None
        return Confirmation(config.model_copy(update={"kernels": "interpreted"}), "a definition is wrong", 10_000)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> BlackBox:
        box = super().open(trace, config, watch)
        if config.kernels == "defined" or self.is_wrong_interpreted:
            box.mistake = "ahead"
        return box


class WrongDefinition(Costly):
    """A costly engine with a bug that disappears with interpreted kernels."""

    is_wrong_interpreted = False


def hunted(kind: type[Costly], monkeypatch: pytest.MonkeyPatch, out: Path) -> int:
    """Run a hunt of one shard on an engine of this kind; return its exit code."""
    monkeypatch.setitem(registry._KINDS, "black_box", (__name__, kind.__name__))
    options = ["--traces", "12", "--seed", str(SEED), "--profile", "labelled", "--ray", "off", "--out", str(out)]
    return cli.run(["hunt", "--engine", "black_box", *options])


def first_news(err: str) -> tuple[str, list[str]]:
    """Return the number of the first trace with a finding, and the lines about it."""
    news = [line for line in err.splitlines() if " trace " in line]
    number = news[0].removeprefix("found by trace ").partition(":")[0]
    return number, [line for line in news if f" trace {number}: " in line]


def test_hunt_prints_a_finding_as_unconfirmed_then_as_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hunted(Costly, monkeypatch, tmp_path / "out") == EXIT_FOUND
    shown = capsys.readouterr()
    number, (found, confirmed) = first_news(shown.err)
    bug = "tokens tokens unlike synchronous"
    assert found == f"found by trace {number}: diverged, {bug}; UNCONFIRMED: not confirmed with interpreted kernels yet"
    assert confirmed == f"confirmed, of trace {number}: {bug}"
    assert "not confirmed" not in shown.out
    assert f"first by trace {number}" in shown.out


def test_hunt_drops_a_finding_that_is_not_confirmed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hunted(WrongDefinition, monkeypatch, tmp_path / "out") == EXIT_NOT_JUDGED
    shown = capsys.readouterr()
    _, (found, dropped) = first_news(shown.err)
    assert "UNCONFIRMED" in found
    assert dropped.startswith("dropped, of trace ")
    assert dropped.endswith(": the worker raised Unconfirmed: a definition is wrong")
    assert "shard 0 was not judged: the worker raised Unconfirmed: a definition is wrong" in shown.out
    assert "no findings" in shown.out


def test_shard_of_a_costly_engine_ends_at_its_first_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._KINDS, "black_box", (__name__, "Costly"))
    worker, shard, begun = Worker(), Shard(profile="labelled", seed=SEED, number=0), list[Trace]()
    whole = worker.hunt(shard, begun.append, CONFIG)
    assert whole.traces == len(begun) == 12
    begun.clear()
    part = worker.hunt(shard, begun.append, CONFIG, to_first_finding=True)
    (hit,) = part.hits
    assert is_finding(hit.verdict)
    assert part.traces == len(begun) == hit.index + 1 < 12
    assert hit == whole.hits[0].model_copy(update={"count": 1, "situations": hit.situations})
