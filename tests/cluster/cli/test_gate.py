"""Command `gate` on a copy of our own engine: selected scenarios, then a hunt."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cluster.campaigns.budget import Budget
from cluster.campaigns.hunt.gate import SCENARIOS_END
from cluster.cli import gate_command
from cluster.cli.inputs import SCENARIOS
from cluster.reports.page.campaign import read_campaigns
from scenarios.trace import Trace
from tests.cluster.cli.conftest import Here
from tests.cluster.cli.test_bisect_commits import git, repository_of
from tests.cluster.cli.test_commands import FOUND
from tests.cluster.documents import document_of
from workers.targets import registry
from workers.targets.executed import Executed
from workers.targets.specstorm import Specstorm, SpecstormTarget
from workers.targets.target import EditedFunctions, RunConfig, Watch

CORE = """
def tokens():
    return "right"

def counts():
    return "right"

def never():
    return "right"
"""
HISTORY = (("begin", "seeds/__init__.py", ""), ("write core", "seeds/core.py", CORE), ("explain", "README.md", "-"))
TOKENS, COUNTS, NEVER = (f"seeds/core.py:{name}" for name in ("tokens", "counts", "never"))
NAMES = sorted(path.stem for path in (SCENARIOS / "seeds").glob("*.yaml"))
RECORD = Executed.of("1.0", {**dict.fromkeys(NAMES, (COUNTS,)), "001_backup_tokens": (TOKENS, COUNTS)})
COMMAND = ("gate", "--engine", "gated", "--engine-path", "tree", "--ray", "off", "--out", "out")


class Gated(Specstorm):
    """Our engine with overlaid sources; if they contain `wrong`, one of its faults is on.

    The package is named as the folder of its scenarios. Its function `never` never runs.
    """

    name = "gated"
    package = "seeds"
    source_roots = ("", "python")
    executed = Path("executed.json")
    smoke = ("004_zero_bubble",)

    def version(self, config: RunConfig) -> str:
        return "1.0"

    def edited(self, config: RunConfig) -> EditedFunctions:
        core = Path(config.engine_path, "seeds", "core.py").read_text()
        return EditedFunctions((TOKENS, NEVER) if "other" in core else (TOKENS,))

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        return (TOKENS,)

    def installed(self, config: RunConfig) -> Path | None:
        return Path(config.engine_home) if config.engine_home else None

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SpecstormTarget:
        is_wrong = "wrong" in Path(config.engine_path, "seeds", "core.py").read_text()
        faults = (FOUND,) if is_wrong else ()
        update = {"faults": tuple(dict.fromkeys((*trace.faults, *faults)))}
        return super().open(trace.model_copy(update=update), config, watch)


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the engine and its record; each reading of the clock advances it by a second."""
    (tmp_path / "executed.json").write_text(RECORD.text())
    monkeypatch.setitem(registry._KINDS, "gated", ("tests.cluster.cli.test_gate", "Gated"))
    ticks = count()
    monkeypatch.setattr(gate_command, "Budget", partial(Budget, clock=lambda: float(next(ticks))))


def tree(folder: Path, said: str, function: str = "tokens") -> Path:
    """Make a checkout with a branch that changes the return value of one function."""
    repository_of(folder / "tree", HISTORY)
    # A checkout that is named as its package hides no scenarios of that name.
    (folder / "seeds").mkdir()
    git(folder / "tree", "checkout", "--quiet", "-b", "change")
    before = f'def {function}():\n    return "right"'
    assert before in CORE
    changed = CORE.replace(before, f'def {function}():\n    return "{said}"')
    (folder / "tree" / "seeds" / "core.py").write_text(changed)
    return folder / "tree"


def test_a_change_without_a_mistake_passes_on_its_scenarios_and_the_hunt(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "right, too")
    done = here(*COMMAND, "--minutes", "0.25", "--traces", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert said[0].startswith("gate: 1 file differs from main (")
    assert said[1:4] == [
        "gate: changed functions: tokens (seeds/core.py)",
        "gate: to judge: 1 of 6 scenarios, which execute changed functions, largest share of the changed files first; "
        "5 that execute none of them are left out",
        "gate: then a hunt for at least a third of the time, with at least 12 traces, "
        "a quarter of them variants of these scenarios",
    ]
    assert "seeds/001_backup_tokens.yaml" in done.stdout
    assert "hunt: profile mixed, seed 0, engine gated" in done.stdout
    assert "corpus " in done.stdout
    last, where = done.stdout.splitlines()[-2:]
    assert last.startswith("gate: passed: nothing new in 1 of 1 scenarios and ")
    assert last.endswith(" traces of at least 12")
    assert "edited: 1 function, it ran" in done.stdout.splitlines()
    assert where == "results: out, page: out/report.html"
    report = (tmp_path / "out" / "report.txt").read_text().splitlines()
    assert (report[:4], report[-1]) == (said[:4], last)
    (campaign,) = read_campaigns(tmp_path / "out")
    assert (campaign.exit_code, campaign.rates) == (0, {})
    document = document_of("gate", (tmp_path / "out" / "gate.json").read_text())
    assert document["changed"] == ["seeds/core.py"]
    assert document["hunt"]["traces"] >= 12
    assert (document["exit_code"], document["cut_short"], document["known"]) == (0, "", [])
    assert (document["judged"], document["never_ran"]) == (last.removeprefix("gate: passed: nothing new in "), [])


def test_gate_hunts_with_the_focus_of_the_changed_files(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gated, "areas", {"scheduling": ("seeds/core.py",), "sampling": ("seeds/sampler.py",)})
    tree(tmp_path, "right, too")
    done = here(*COMMAND, "--minutes", "0.25", "--traces", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.splitlines()[4] == "gate: the hunt generates more situations of scheduling"
    assert "hunt: profile mixed, seed 0, focus scheduling, engine gated" in done.stdout


def test_a_mistake_is_found_once_and_annotated_and_a_failure_in_junit(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "wrong")
    done = here(*COMMAND, "--minutes", "0.3", "--traces", "12", "--github", "--junit", "for_ci/gate.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIVERGED  seeds/001_backup_tokens.yaml" in done.stdout
    annotated = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    document = json.loads((tmp_path / "out" / "gate.json").read_text())
    bugs = {each["signature"]["plane"] for each in document["hunt"]["findings"]}
    assert "inputs" in bugs
    # Also of one that is being shrunk when the time is over there is a trace to replay.
    assert all((tmp_path / "out" / each["artefact"]).is_file() for each in document["hunt"]["findings"])
    assert len(annotated) >= 1
    (outcome,) = [line for line in done.stdout.splitlines() if line.startswith("gate: FAILED: ")]
    assert f"FAILED: {len(annotated)} new finding" in outcome
    root = ElementTree.fromstring((tmp_path / "for_ci" / "gate.xml").read_bytes())
    assert int(root.get("failures", 0)) == len(annotated)
    assert (tmp_path / "for_ci" / "gate.xml").read_bytes() == (tmp_path / "out" / "junit.xml").read_bytes()


def test_findings_that_are_known_are_left_out(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "wrong")
    (tmp_path / "known").mkdir()
    known = "bug: inputs backup\nstatus: expected\nupstream: https://example.org/1\n"
    (tmp_path / "known" / "backup.known.yaml").write_text(known)
    done = here(*COMMAND, "--known", "known", "--minutes", "0.3", "--traces", "12", "--github")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout
    assert ", 1 known left out" in done.stdout.splitlines()[-2]
    assert json.loads((tmp_path / "out" / "gate.json").read_text())["known"] == ["inputs backup"]
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert (root.get("failures"), root.get("skipped")) == ("0", "1")


def test_gate_cut_short_is_not_judged_and_resumes(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "right, too")
    done = here(*COMMAND, "--minutes", "0.2", "--traces", "100")
    assert done.returncode == 3, done.stdout + done.stderr
    before, last = done.stdout.splitlines()[-3:-1]
    assert before.startswith("gate: cut short: ")
    assert before.endswith(" traces of at least 100 were judged in 12 s; give more --minutes or --workers")
    assert last.startswith("gate: not judged to the end: nothing new in ")
    judged = json.loads((tmp_path / "out" / "gate.json").read_text())["hunt"]["traces"]
    assert 0 < judged < 100
    # The same traces: what is judged is not judged again.
    done = here(*COMMAND, "--minutes", "0.2", "--traces", str(judged + 1), "--json")
    again = document_of("gate", done.stdout)
    assert (done.returncode, again["cut_short"]) == (0, "")
    assert again["hunt"]["traces"] > judged


def test_without_time_no_scenario_is_judged(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "wrong")
    done = here(*COMMAND, "--minutes", "0.01")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "cut short: 0 of 1 scenarios and 0 traces of at least 200 were judged in 0.6 s" in done.stdout


def test_a_share_of_the_time_is_left_for_the_hunt_when_scenarios_take_longer(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pytest.approx(2 / 3) == SCENARIOS_END
    # A second is over at each look at the time: 6 scenarios take 6 of them.
    monkeypatch.setattr("cluster.cli.gate_command.SCENARIOS_END", 0.1)
    tree(tmp_path, "right, too", "counts")
    done = here(*COMMAND, "--minutes", "0.4", "--traces", "1")
    assert done.returncode == 3, done.stdout + done.stderr
    document = json.loads((tmp_path / "out" / "gate.json").read_text())
    assert document["hunt"]["traces"] >= 1
    assert document["judged"].startswith("1 of 6 scenarios and ")
    assert document["cut_short"].startswith(f"cut short: {document['judged']} were judged in 24 s; ")


def test_gate_reports_unexecuted_and_never_run_functions(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "other", "never")
    done = here(*COMMAND, "--minutes", "0.3", "--traces", "12")
    assert "gate: no scenario executes never (seeds/core.py) (recorded on release 1.0)" in done.stderr
    assert "gate: to judge: 1 of 6 scenarios, as a smoke test; 5 that execute none of them are left out" in done.stderr
    assert "edited, never ran: 1 of 2 functions: seeds/core.py:never" in done.stdout.splitlines()
    assert json.loads((tmp_path / "out" / "gate.json").read_text())["never_ran"] == [NEVER]


def test_without_a_function_that_differs_a_few_scenarios_are_for_smoke(tmp_path: Path, here: Here) -> None:
    made = tree(tmp_path, "right")
    (made / "README.md").write_text("+")
    done = here(*COMMAND, "--minutes", "0.01")
    assert "gate: no function has changed; to judge: 1 of 6 scenarios, as a smoke test" in done.stderr


def test_folder_without_checkout_is_compared_with_the_installation(tmp_path: Path, here: Here) -> None:
    for folder, said in (("tree/python", "right, too"), ("home", "right")):
        (tmp_path / folder / "seeds").mkdir(parents=True)
        (tmp_path / folder / "seeds" / "__init__.py").touch()
        (tmp_path / folder / "seeds" / "core.py").write_text(CORE.replace("right", said))
    done = here(*COMMAND, "--engine-home", "home", "--minutes", "0.01")
    assert f"gate: 1 file differs from the installation in {tmp_path}/home" in done.stderr
    assert (
        "gate: changed functions: tokens (seeds/core.py), counts (seeds/core.py), never (seeds/core.py)" in done.stderr
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--base", "gone"), "--base is gone: gone is no commit of it; --base REV names a commit"),
        (("--engine-path", "none"), "--engine-path is none; the folder does not exist"),
        (("--engine-path", "."), "package seeds was not found: ./seeds or ./python/seeds does not exist"),
        (("--engine-path", ""), "--engine-path is missing; give the root of the sources of seeds"),
        (("--engine", "specstorm"), "--engine is specstorm; it has no separate sources to test; allowed are "),
        (("--engine", "gone"), "--engine is gone; known are specstorm, "),
        (("--minutes", "0"), "--minutes"),
        (("--junit", "tree/README.md/gate.xml"), "tree/README.md: is not a folder"),
    ],
)
def test_wrong_input_is_refused_in_one_line(options: tuple[str, str], said: str, tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "wrong")
    done = here(*COMMAND, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
