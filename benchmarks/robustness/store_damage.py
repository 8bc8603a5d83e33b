"""Damage a campaign (flipped bits, truncation, full disk) and resume it.

Flipped or truncated is the database, the log of a killed process's database, or the file of a finding.

Run with `python -m benchmarks.robustness.store_damage`. A suite and a hunt's shards are recorded, then damaged at
random, then resumed: every result must exist and equal that of an undisturbed campaign, and each damage must be
reported or have no effect. The judge takes no time. A full disk is simulated by a limit on file sizes in a separate
process.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cluster.campaigns.driver import drive
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.job import Job
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.storage.campaign import DATABASE, Campaign, Result
from cluster.storage.errors import StoreError
from cluster.storage.store import Store
from cluster.storage.wal import log_of
from scenarios import codec
from scenarios.events import Submit
from scenarios.trace import Trace
from workers.record.evidence import Site
from workers.record.verdict import Agreed, Crashed, Judgement, Stats
from workers.targets.target import DEFAULT_CONFIG, RunConfig

DAMAGES = 100
SCENARIOS = 60
JUDGE = "benchmarks.robustness.store_damage:InstantJudge"
FULL = 3
CUT_LOG = f"truncation of {DATABASE}-wal"


class InstantJudge:
    """A judge that runs no engine: every eighth trace gets a crash, by the trace alone."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Return a verdict at once; it contains the trace's seed."""
        stats = Stats(
            requests=1,
            steps=trace.seed,
            commits=1,
            captures=1,
            run_ahead_max=1,
            digest="00ff",
            probes={"preemption": 2},
        )
        crashed = Crashed(stats=stats, error=f"IndexError: row {trace.seed}", where=Site(function="prepare_inputs"))
        verdict = Agreed(stats=stats) if trace.seed % 8 else crashed
        return Judgement(verdict=verdict, trace=trace, schedules=46)


def scenarios_of(count: int) -> list[Scenario]:
    """Return scenarios with traces that differ in their seeds only."""
    submit = Submit(tick=0, request="r", prompt=(1, 2, 3), max_tokens=4)
    traces = [Trace(seed=seed, events=(submit,)) for seed in range(count)]
    return [Scenario(f"s{trace.seed}.yaml", Job.of(trace, sweep=True)) for trace in traces]


def run(folder: Path, scenarios: list[Scenario], left: Path | None = None) -> tuple[int, list[str]]:
    """Run scenarios without results; return the number of stored results, and the remarks.

    `left` is where to copy the campaign in the state that a process killed after the last job would leave.
    """
    with Store(folder) as store:
        suite = Suite(scenarios, store)
        drive(suite, InProcessPool(JUDGE), Stop(), None, store)
        if left is not None:
            shutil.copytree(folder, left)
        return suite.kept, store.remarks + store.restored


def results_of(folder: Path) -> dict[str, Result]:
    """Return the results of a campaign, checked row by row, without attempt numbers."""
    with Campaign(folder) as campaign:
        results = {result.job: replace(result, attempt=0) for result in campaign.results()}
        assert not campaign.remarks, campaign.remarks
        return results


def traces_of(folder: Path) -> dict[str, Trace]:
    """Return the traces in a campaign's artefacts, without their comments."""
    return {path.name: codec.load(path) for path in (folder / "artefacts").glob("*.yaml")}


def flip(path: Path, draw: random.Random) -> str:
    """Flip one random bit of a file."""
    data = bytearray(path.read_bytes())
    place, bit = draw.randrange(len(data)), draw.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place}"


def truncate(path: Path, draw: random.Random) -> str:
    """Cut a file to a random size, and return this size as text."""
    size = draw.choice((0, draw.randrange(path.stat().st_size), draw.randrange(path.stat().st_size) // 4096 * 4096))
    os.truncate(path, size)
    return f"cut to {size} bytes"


def fill(folder: Path, scenarios: list[Scenario], draw: random.Random) -> str:
    """Run the campaign in a child with a file-size limit, in an empty or an existing folder."""
    if draw.random() < 0.5:
        shutil.rmtree(folder)
    path = folder / DATABASE
    size = path.stat().st_size if path.exists() else 0
    limit = draw.randrange(1, 200_000) + (0 if draw.random() < 0.5 else size)
    child = os.fork()
    if not child:
        code = 9
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            run(folder, scenarios)
            code = 0
        except StoreError:
            code = FULL
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, FULL), f"a full disk ended the child with exit code {code}"
    return f"files of {limit} bytes, from {size}: {'full' if code else 'enough'}"


def damage(folder: Path, scenarios: list[Scenario], draw: random.Random) -> tuple[str, str]:
    """Damage a campaign at random; return the kind of damage and a description."""
    kind = draw.choice(("flip", "truncation", "full disk"))
    if kind == "full disk":
        return kind, fill(folder, scenarios, draw)
    how: Callable[[Path, random.Random], str] = flip if kind == "flip" else truncate
    log = log_of(folder / DATABASE)
    files = [log if log.exists() else folder / DATABASE, draw.choice(sorted((folder / "artefacts").iterdir()))]
    path = draw.choice(files)
    return f"{kind} of {'an artefact' if path.suffix == '.yaml' else path.name}", how(path, draw)


def campaign(folder: Path, num_damages: int, num_scenarios: int, seed: int) -> tuple[list[str], Counter[str]]:
    """Damage a campaign and resume it; return what was wrong, and counts of the damage."""
    scenarios = scenarios_of(num_scenarios)
    run(folder / "calm", scenarios, left=folder / "killed")
    expected = results_of(folder / "calm")
    artefacts = traces_of(folder / "calm")
    draw, wrong, counts = random.Random(seed), list[str](), Counter[str]()
    for number in range(num_damages):
        damaged = folder / f"damaged-{number}"
        shutil.copytree(folder / draw.choice(("calm", "killed")), damaged)
        kind, what = damage(damaged, scenarios, draw)
        kept, said = run(damaged, scenarios)
        counts[kind] += 1
        counts[f"{kind}, said"] += bool(said)
        counts[f"{kind}, results run again"] += num_scenarios - kept
        # A log that ends between two transactions is a normal state after a process was killed.
        if kind not in ("full disk", CUT_LOG) and kept < num_scenarios and not said:
            wrong.append(f"{kind}, {what}: {num_scenarios - kept} results were lost without a message")
        if results_of(damaged) != expected:
            wrong.append(f"{kind}, {what}: results differ from an undisturbed campaign")
        if traces_of(damaged) != artefacts:
            wrong.append(f"{kind}, {what}: artefacts differ from an undisturbed campaign")
        shutil.rmtree(damaged)
    return wrong, counts


def main() -> int:
    """Damage and resume many campaigns, print the counts; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=DAMAGES, help=f"number of damages (default {DAMAGES})")
    parser.add_argument(
        "--scenarios", type=int, default=SCENARIOS, help=f"results of the campaign (default {SCENARIOS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the damages (default 0)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong, counts = campaign(Path(folder), arguments.damages, arguments.scenarios, arguments.seed)
    for name, count in sorted(counts.items()):
        print(f"{count:5}  {name}")
    print("\n".join(wrong) or "no result was lost, and no wrong result was kept")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
