"""Start one command in four processes at once; no campaign folder may be lost.

Exit code 0 of a process means that the folder has its results.

`python -m benchmarks.robustness.simultaneous --rounds 200`. A round is a new folder and one command. With `--kill` one
of the four processes gets SIGKILL at a random moment, and the command is run again at the end.

Verifies, for each round:
- each exit code is the command's usual one, or 2 with the message that another process writes the folder;
- at least one process was not refused, and then the folder has the complete result;
- no attempt of a job was made twice, no entry of a shared file is lost, no message is a traceback;
- an abandoned campaign removed no file of another process, and no temporary file is left.
Exit code 1 if any check fails.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from datetime import date
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from xml.etree import ElementTree

from cluster.campaigns.exit_codes import EXIT_BAD_INPUT
from cluster.cli import commands as _commands  # noqa: F401  a forked process need not import it again
from cluster.cli import main as cli
from cluster.dispatch.host import ReachError
from cluster.reports.issue import EvidenceDocument
from cluster.storage.campaign import DATABASE, Campaign
from cluster.storage.errors import CampaignError
from cluster.storage.known import keep_seen, read_known, read_seen
from cluster.storage.lines import RESULTS
from cluster.storage.store import Store
from scenarios.scenario_file import RunOn
from workers.record.evidence import Difference
from workers.record.rules import Reference
from workers.record.verdict import NO_STATS, Diverged

PROCESSES = 4
SECONDS_MAX = 120.0
KILL_SECONDS_MAX = 0.5
ABANDONED = 4
DAY = date(2026, 11, 28)
HELD = "another process is writing this campaign"
SCENARIO = """
spec: {{max_num_batched_tokens: 8, max_num_seqs: 2, vocab_size: 16}}
seed: {seed}
events:
- {{tick: 0, do: submit, request: r0, prompt: {{tokens: 2}}, max_tokens: 1}}
"""
FOUND = """
spec: {layers: attention, sampling: standard, block_size: 32, num_speculative_tokens: 0}
events:
- {tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 3, stop: [5]}
"""
# Fingerprints that map to the same file name.
BUGS = tuple(f"state{mark} r0" for mark in "!?+~")
NUM_SCENARIOS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A command under test: preparation, the work of each process, checks, and exit code.

    All of them run in the folder of the round. `problems` gets the number of processes that were not refused.
    `can_abandon` says that a process may abandon its campaign, so that no process needs to end with a result.
    """

    prepare: Callable[[], None]
    work: Callable[[int], int]
    problems: Callable[[int], Iterable[str]]
    alone: int = 0
    can_abandon: bool = False


def _write_scenarios() -> None:
    Path("scn").mkdir()
    for seed in range(NUM_SCENARIOS):
        Path("scn", f"s{seed}.yaml").write_text(SCENARIO.format(seed=seed))


def _run(*words: str) -> int:
    return cli.run(["run", "scn", "--ray", "off", *words])


def _missing(folder: Path, num_results: int = NUM_SCENARIOS) -> list[str]:
    """Return the missing results of a campaign, in its database and its JSON lines."""
    if not (folder / DATABASE).is_file():
        return [f"{folder} holds {sorted(path.name for path in folder.glob('*'))}"]
    with Campaign(folder) as campaign:
        results, remarks = list(campaign.results()), campaign.remarks
        attempts = list(campaign.select("attempts"))
    lines = (folder / RESULTS).read_text().splitlines()
    judged = [line for line in lines if json.loads(line)["kind"] == "judgement"]
    wrong = [f"{folder}: {remark}" for remark in remarks]
    if (len(results), len(judged)) != (num_results, num_results):
        wrong.append(f"{folder} has {len(results)} results and {len(judged)} lines of them")
    finished = Counter(str(job) for job, _, _, _, outcome, _ in attempts if outcome == "agreed")
    return wrong + [f"{folder}: job {job} was run {number} times" for job, number in finished.items() if number > 1]


def _missing_of_numbered(num_kept: int) -> list[str]:
    folders = sorted(Path("campaigns").glob("scn-*"))
    whole = [folder for folder in folders if not _missing(folder)]
    return [] if len(whole) >= num_kept else [f"{num_kept} processes have {len(whole)} whole folders of {folders}"]


def _use_or_abandon(number: int) -> int:
    """Record a run in a campaign, or release the campaign as after a failed Ray start."""
    try:
        with Store(Path("x")) as store:
            if number % 2:
                raise ReachError("no Ray listens at this address")
            Path(store.folder, "mine").write_text(store.run.run)
    except ReachError:
        return ABANDONED
    except CampaignError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def _missing_of_used(num_kept: int) -> list[str]:
    if not num_kept:
        # The process that made the folder may have been refused before another process abandoned the campaign.
        return [f"{path} is left of an abandoned campaign" for path in Path("x").glob("*")]
    with Campaign(Path("x")) as campaign:
        runs = {run.run for run in campaign.runs() if run.ended}
    return [] if Path("x", "mine").read_text() in runs else ["the run that ended last is not recorded"]


def _begin_campaigns() -> None:
    _write_scenarios()
    for seed in range(NUM_SCENARIOS):
        assert cli.run(["run", f"scn/s{seed}.yaml", "--ray", "off", "--out", f"c{seed}"]) == 0


def _incomplete_report(_: int) -> list[str]:
    json.loads(Path("c1/report.sarif").read_text())
    ElementTree.parse("c1/junit.xml")
    return [] if Path("c1/report.html").read_text().rstrip().endswith("</html>") else ["report.html is cut off"]


def _write_finding() -> None:
    Path("found.yaml").write_text(FOUND)
    about = Difference(
        plane="tokens",
        variable="tokens",
        request="a",
        step=1,
        expected=1,
        actual=2,
        reference=Reference.SYNCHRONOUS,
    )
    seen = EvidenceDocument(
        specstorm="",
        exit_code=0,
        run_on=RunOn(engine="vllm-v1", device="cpu", version="0.32.0"),
        verdict=Diverged(stats=NO_STATS, difference=about),
    )
    Path("seen.json").write_text(seen.model_dump_json())


def _incomplete_export(_: int) -> list[str]:
    compile(Path("exported/test_found.py").read_text(), "test_found.py", "exec")
    EvidenceDocument.model_validate_json(Path("exported/found.json").read_text())
    return [] if Path("exported/found.md").read_text().endswith("\n") else ["found.md is cut off"]


def _export(_: int) -> int:
    return cli.run(["export", "found.yaml", "--evidence", "seen.json"])


def _see_all() -> None:
    keep_seen(Path("known"), BUGS, DAY)


def _triage(number: int) -> int:
    return cli.run(["triage", BUGS[number], "--state", "assigned", "--to", "ada", "--known", "known"])


def _untriaged(num_kept: int) -> list[str]:
    num_known = len(read_known(Path("known")))
    return [] if num_known >= min(num_kept, PROCESSES) else [f"{num_kept} findings were triaged, {num_known} are known"]


def _see(number: int) -> int:
    keep_seen(Path("known"), [BUGS[number]], DAY)
    return 0


def _unseen(num_kept: int) -> list[str]:
    num_seen = len(read_seen(Path("known")))
    return (
        [] if num_seen >= min(num_kept, PROCESSES) else [f"{num_kept} nights saw a finding each, {num_seen} are kept"]
    )


def _night(_: int) -> int:
    words = ["--hours", "0", "--regressions", "scn", "--nights", "1000000", "--seed", "1", "--canary", ""]
    return cli.run(["nightly", *words, "--ray", "off", "--known", "known", "--out", "night"])


def _incomplete_night(_: int) -> list[str]:
    json.loads(Path("night/report.json").read_text())
    return _missing(Path("night/regressions"))


CASES = {
    "run": Case(_write_scenarios, lambda _: _run("--out", "x"), lambda _: _missing(Path("x"))),
    "run without --out": Case(_write_scenarios, lambda _: _run(), _missing_of_numbered),
    "abandoned campaign": Case(lambda: None, _use_or_abandon, _missing_of_used, can_abandon=True),
    "merge": Case(
        _begin_campaigns, lambda _: cli.run(["merge", "c0", "c1", "--out", "x"]), lambda _: _missing(Path("x"))
    ),
    "report": Case(_begin_campaigns, lambda _: cli.run(["report", "c0", "c1"]), _incomplete_report),
    "export": Case(_write_finding, _export, _incomplete_export),
    "triage": Case(_see_all, _triage, _untriaged),
    "seen.json": Case(lambda: None, _see, _unseen),
    # Without a canary the night is not judged.
    "nightly": Case(_write_scenarios, _night, _incomplete_night, alone=3),
}


def _start(name: str, act: Callable[[], int], barrier: Barrier | None = None) -> BaseProcess:
    """Start a process that waits for the others and then runs the work of its number."""

    def begin() -> None:
        output = os.open(f"output-{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
        if barrier is not None:
            barrier.wait(SECONDS_MAX)
        code = act()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    sys.stdout.flush()
    # A process that is killed at once also needs an output file.
    Path(f"output-{name}").touch()
    process = multiprocessing.get_context("fork").Process(target=begin, name=name)
    process.start()
    return process


def _code(process: BaseProcess) -> int:
    """Return the exit code of a process; kill it first if it does not end in time."""
    process.join(SECONDS_MAX)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None, "the process was joined"
    return process.exitcode


def play(case: Case, random: Random, is_killing: bool) -> list[str]:
    """Play one round of a case in the working directory; return its problems."""

    def prepare() -> int:
        case.prepare()
        return 0

    assert _code(_start("prepare", prepare)) == 0, Path("output-prepare").read_text()
    barrier = multiprocessing.get_context("fork").Barrier(PROCESSES + 1)
    processes = [_start(str(number), partial(case.work, number), barrier) for number in range(PROCESSES)]
    # A process that is killed before it begins would keep the others waiting.
    barrier.wait(SECONDS_MAX)
    if is_killing:
        victim = random.randrange(PROCESSES)
        processes[victim].join(random.random() * KILL_SECONDS_MAX)
        processes[victim].kill()
        for process in processes:
            _code(process)
        # The others have ended, so this process is not refused.
        processes.append(_start("again", partial(case.work, victim)))
    return _problems(case, {process.name: _code(process) for process in processes}, is_killing)


def _problems(case: Case, codes: Mapping[str, int], is_killing: bool) -> list[str]:
    """Return the problems at the end of a round, given the exit code of each process."""
    texts = {name: Path(f"output-{name}").read_text() for name in codes}
    allowed = {case.alone, *([ABANDONED] if case.can_abandon else []), *([-signal.SIGKILL] if is_killing else [])}
    wrong = [
        f"process {name}: exit code {code}: {texts[name]}"
        for name, code in codes.items()
        if "Traceback" in texts[name] or not (code in allowed or (code == EXIT_BAD_INPUT and HELD in texts[name]))
    ]
    num_kept = list(codes.values()).count(case.alone)
    if not num_kept and not case.can_abandon:
        wrong.append(f"no process ended with exit code {case.alone}: {list(codes.values())}")
    try:
        wrong += case.problems(num_kept)
    except (OSError, ValueError, RuntimeError, ElementTree.ParseError) as error:
        wrong.append(f"the result cannot be read: {error}")
    return wrong + [f"{path} is left" for path in sorted(Path().rglob("*.tmp"))]


def main() -> int:
    """Play rounds of each case and print the failures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each case (default 200)")
    parser.add_argument("--case", action="append", choices=list(CASES), help="default: all")
    parser.add_argument("--kill", action="store_true", help="kill one process of each round at a random moment")
    parser.add_argument("--seed", type=int, default=0, help="seed of the process to kill and the moment (default 0)")
    arguments = parser.parse_args()
    num_wrong = 0
    for name in arguments.case or CASES:
        random, begin = Random(f"{arguments.seed} {name}"), time.monotonic()
        wrong: list[str] = []
        for number in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder, chdir(folder):
                found = play(CASES[name], random, arguments.kill)
            wrong += [f"{name}, round {number}: {each}" for each in found[:1]]
        seconds = time.monotonic() - begin
        print(f"{name}: {arguments.rounds} rounds in {seconds:.0f} s; {len(wrong)} ended wrongly", flush=True)
        print("\n".join(wrong[:5]), end="\n" if wrong else "", flush=True)
        num_wrong += len(wrong)
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
