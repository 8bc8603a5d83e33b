"""The command `gate`: scenarios by what changed and a hunt behind them, on our engine as a package of its own."""

import json
from functools import partial
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cluster.campaigns.budget import Budget
from cluster.cli import gate_command
from cluster.reports.page.campaign import read_campaigns
from scenarios.trace import Trace
from tests.cluster.cli.conftest import Here
from tests.cluster.cli.test_bisect_commits import git, repository_of
from tests.cluster.cli.test_commands import FOUND
from tests.cluster.documents import document_of
from workers.targets import registry
from workers.targets.specstorm import Specstorm, SpecstormTarget
from workers.targets.target import Area, RunConfig, Watch

HISTORY = (("begin", "seeds/__init__.py", ""), ("write core", "seeds/core.py", "right"), ("explain", "README.md", "-"))
COMMAND = ("gate", "--engine", "gated", "--engine-path", "tree", "--ray", "off", "--out", "out")


class Gated(Specstorm):
    """Our engine with sources laid over it: a core that says `wrong` makes the mistake of one of its faults.

    The package is named as the folder of its scenarios.
    """

    name = "gated"
    package = "seeds"
    areas = (Area("backup tokens", ("seeds/core",), ("001_*",)), Area("counts", ("seeds/counts/",), ("000_*",)))
    smoke = ("004_*",)

    def installed(self, config: RunConfig) -> Path | None:
        return Path(config.engine_home) if config.engine_home else None

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SpecstormTarget:
        is_wrong = Path(config.engine_path, "seeds", "core.py").read_text() == "wrong"
        faults = (FOUND,) if is_wrong else ()
        update = {"faults": tuple(dict.fromkeys((*trace.faults, *faults)))}
        return super().open(trace.model_copy(update=update), config, watch)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the engine; a second is over each time that somebody asks for the time."""
    monkeypatch.setitem(registry._KINDS, "gated", ("tests.cluster.cli.test_gate", "Gated"))
    ticks = count()
    monkeypatch.setattr(gate_command, "Budget", partial(Budget, clock=lambda: float(next(ticks))))


def tree(folder: Path, core: str) -> Path:
    """Make a checkout whose branch has changed one source."""
    repository_of(folder / "tree", HISTORY)
    # A checkout that is named as its package hides no scenarios of that name.
    (folder / "seeds").mkdir()
    git(folder / "tree", "checkout", "--quiet", "-b", "change")
    (folder / "tree" / "seeds" / "core.py").write_text(core)
    return folder / "tree"


def test_a_change_without_a_mistake_passes_on_its_scenarios_and_the_hunt(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "right, too")
    done = here(*COMMAND, "--minutes", "0.25", "--traces", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert said[0].startswith("gate: 1 file differs from main (")
    assert said[0].endswith("): backup tokens (seeds/core.py)")
    assert said[1] == "gate: 1 of 6 scenarios, then a hunt of seed 0, a quarter of whose traces begins from these"
    assert "seeds/001_backup_tokens.yaml" in done.stdout
    assert "hunt: profile mixed, seed 0, engine gated" in done.stdout
    assert "corpus " in done.stdout
    last, where = done.stdout.splitlines()[-2:]
    assert last.startswith("gate: passed: nothing new in 1 scenarios and ")
    assert where == "results: out, page: out/report.html"
    report = (tmp_path / "out" / "report.txt").read_text().splitlines()
    assert (report[:2], report[-1]) == (said[:2], last)
    (campaign,) = read_campaigns(tmp_path / "out")
    assert (campaign.exit_code, campaign.rates) == (0, {})
    document = document_of("gate", (tmp_path / "out" / "gate.json").read_text())
    assert document["changed"] == ["seeds/core.py"]
    assert document["hunt"]["traces"] >= 12
    assert (document["exit_code"], document["cut_short"], document["known"]) == (0, "", [])


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


def test_a_gate_whose_time_ends_first_has_not_judged_and_goes_on_where_it_was(tmp_path: Path, here: Here) -> None:
    tree(tmp_path, "right, too")
    done = here(*COMMAND, "--minutes", "0.2", "--traces", "100")
    assert done.returncode == 3, done.stdout + done.stderr
    before, last = done.stdout.splitlines()[-3:-1]
    assert before.startswith("gate: cut short: ")
    assert before.endswith(" of at least 100 traces were in 12 s; it takes more --minutes or --workers")
    assert last.startswith("gate: not judged to the end: nothing new in 1 scenarios and ")
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
    assert "cut short: 1 of 1 scenarios were not judged, and 0 of at least 200 traces were in 0.6 s" in done.stdout


def test_a_source_of_no_area_is_for_all_and_documents_are_for_a_few(tmp_path: Path, here: Here) -> None:
    made = tree(tmp_path, "right")
    (made / "README.md").write_text("+")
    done = here(*COMMAND, "--minutes", "0.01")
    assert "no Python source of seeds differs (README.md): a few for smoke" in done.stderr
    assert "gate: 1 of 6 scenarios" in done.stderr
    (made / "seeds" / "__init__.py").write_text("# all")
    done = here(*COMMAND[:-2], "--minutes", "0.01")
    assert "seeds/__init__.py may change anything: all scenarios" in done.stderr
    assert "gate: 6 of 6 scenarios, then a hunt of seed 0\n" in done.stderr


def test_a_folder_that_is_no_checkout_is_held_against_what_is_installed(tmp_path: Path, here: Here) -> None:
    for folder in ("tree", "home"):
        (tmp_path / folder / "seeds" / "counts").mkdir(parents=True)
        for name in ("__init__.py", "core.py", "counts/rows.py"):
            (tmp_path / folder / "seeds" / name).touch()
    (tmp_path / "tree" / "seeds" / "counts" / "rows.py").write_text("# other")
    done = here(*COMMAND, "--engine-home", "home", "--minutes", "0.01")
    assert f"1 file differs from what is installed in {tmp_path}/home: counts (seeds/counts/rows.py)" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--base", "gone"), "--base is gone: gone is no commit of it; --base REV names a commit"),
        (("--engine-path", "none"), "--engine-path is none; there is no such folder"),
        (("--engine-path", ""), "--engine-path is not given; wanted the root of the sources of seeds"),
        (("--engine", "specstorm"), "--engine is specstorm; it has no sources of its own to change: "),
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
