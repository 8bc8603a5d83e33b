"""Comparison of campaigns: new, remaining and disappeared findings, and changed verdicts."""

from pathlib import Path

import pytest

from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.comparison import compare, comparisons
from cluster.storage.hunts import FindingState
from cluster.storage.store import Store
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from tests.cluster.reports.page.test_campaign import hunt_of
from tests.cluster.reports.page.test_judged import suite_of
from workers.record.verdict import Judgement
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM

FAULT = "vllm-id-reuse"


def two(folder: Path) -> tuple[Path, Path]:
    """Write two campaigns of the same scenarios: one bug disappears, one is new, one remains."""
    before = {"a": judged("diverge"), "bb": judged("agree"), "ccc": judged("stuck"), "dddd": judged("agree")}
    after = {"a": judged("agree"), "bb": judged("crash"), "ccc": judged("stuck"), "eeeee": judged("agree")}
    return campaign_of(folder / "monday", before), campaign_of(folder / "tuesday", after)


def test_findings_are_new_still_there_or_gone(tmp_path: Path) -> None:
    campaigns = [campaign for folder in two(tmp_path) for campaign in read_campaigns(folder)]
    (comparison,) = comparisons(campaigns)
    changes = {bug.bug: (bug.change, bug.before, bug.after) for bug in comparison.bugs}
    assert sorted(changes.values()) == [("gone", 1, 0), ("new", 0, 1), ("still there", 1, 1)]
    assert comparison.bugs[0].change == "new"
    assert comparison.moved == (("a", "diverged", "agreed"), ("bb", "agreed", "crashed"))
    assert (comparison.only_before, comparison.only_after) == (1, 1)
    assert ("findings", 2, 2) in comparison.sums


def hunt_that_met(folder: Path, bug: Judgement, first: int, num_shards: int, seed: int = 1) -> Path:
    """Write a hunt without findings except one, which trace number `first` met first."""
    hunt_of(folder, seed, num_shards)
    state = FindingState(bug="counts x", first=first, size=2, trace=bug.trace, verdict=None, judgement=bug)
    with Store(folder) as store:
        store.keep_finding("counts x", state.model_dump_json())
    return folder


@pytest.mark.parametrize(
    ("num_shards", "seed", "change"), [(3, 1, "gone"), (1, 1, "not judged"), (0, 2, "not judged"), (3, 2, "not met")]
)
def test_finding_of_a_hunt_is_gone_only_if_its_trace_was_judged_again(
    num_shards: int, seed: int, change: str, tmp_path: Path
) -> None:
    first = hunt_that_met(tmp_path / "first", judged("diverge"), 20, 2)
    second = hunt_of(tmp_path / "second", seed, num_shards)
    before, after = (campaign for folder in (first, second) for campaign in read_campaigns(folder))
    assert [bug.change for bug in compare(before, after).bugs] == [change]
    back = "not judged before" if change == "not judged" else "new"
    assert [bug.change for bug in compare(after, before).bugs] == [back]


@pytest.mark.parametrize(("num_judged", "change"), [(4, "gone"), (1, "not judged")])
def test_finding_of_a_scenario_is_gone_only_if_the_scenario_was_judged_again(
    num_judged: int, change: str, tmp_path: Path
) -> None:
    first = campaign_of(tmp_path / "first", {"003.yaml": judged("diverge")})
    with Store(tmp_path / "second") as store:
        suite_of(store, 4, num_judged)
    (comparison,) = comparisons([each for folder in (first, tmp_path / "second") for each in read_campaigns(folder)])
    assert [bug.change for bug in comparison.bugs] == [change]
    assert comparison.moved == ((("003.yaml", "diverged", "agreed"),) if change == "gone" else ())
    assert [row for row in comparison.sums if row[0] == "of these not judged"] == (
        [] if change == "gone" else [("of these not judged", 0, 3)]
    )
    assert change in page_of(first, tmp_path / "second")


def test_a_campaign_beside_itself_has_nothing_new(tmp_path: Path) -> None:
    folder, _ = two(tmp_path)
    (comparison,) = comparisons([*read_campaigns(folder), *read_campaigns(folder)])
    assert {bug.change for bug in comparison.bugs} == {"still there"}
    changed = [*comparison.moved, *comparison.gained, *comparison.dropped]
    assert changed == []


def test_a_fault_that_was_switched_on_or_off_is_neither_new_nor_gone(tmp_path: Path) -> None:
    planted = judged("diverge")
    planted = planted.model_copy(update={"trace": planted.trace.model_copy(update={"faults": (FAULT,)})})
    first = campaign_of(tmp_path / "with", {"a": planted, "bb": judged("crash")})
    second = campaign_of(tmp_path / "without", {"a": judged("agree"), "bb": judged("agree")})
    campaigns = [campaign for folder in (first, second) for campaign in read_campaigns(folder)]
    (off,), (on,) = comparisons(campaigns), comparisons(campaigns[::-1])
    assert sorted(bug.change for bug in off.bugs) == ["fault switched off", "gone"]
    assert sorted(bug.change for bug in on.bugs) == ["fault switched on", "new"]
    assert off.differences == (("faults switched on", FAULT, "-"),)
    page = Page(page_of(first, second))
    assert [each.text for each in page.all("td") if each.text in ("faults switched on", FAULT)] == [
        "faults switched on",
        FAULT,
    ]


def test_hunts_that_are_compared_say_what_differs_between_them(tmp_path: Path) -> None:
    for name, settings in {"a": HuntSettings(seed=1), "b": HuntSettings(seed=2, faults=(FAULT,))}.items():
        with Store(tmp_path / name) as store:
            store.keep_settings(settings.plan().model_dump_json())
    campaigns = [campaign for name in "ab" for campaign in read_campaigns(tmp_path / name)]
    (comparison,) = comparisons(campaigns)
    assert comparison.differences == (("faults switched on", "-", FAULT), ("seed", "1", "2"))


def test_options_of_commands_that_differ_are_said_and_where_their_results_go_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {"a": "run smoke --out a", "b": "run --out=b smoke", "c": "run smoke --out c --device triton-cpu"}
    for name, command in commands.items():
        monkeypatch.setattr("sys.argv", ["specstorm", *command.split()])
        campaign_of(tmp_path / name, {"x": judged("agree")})
    same, other = comparisons([campaign for name in commands for campaign in read_campaigns(tmp_path / name)])
    assert same.differences == ()
    assert other.differences == (("command", "specstorm run smoke", "specstorm run smoke --device triton-cpu"),)


def test_hunts_of_an_engine_s_sources_say_which(tmp_path: Path) -> None:
    laid_over = RunConfig(engine=VLLM, engine_path="mine", engine_version="0.32.0", engine_digest="0a1b")
    for name, config in {"a": RunConfig(engine=VLLM), "b": laid_over}.items():
        with Store(tmp_path / name) as store:
            store.keep_settings(HuntSettings(config=config).plan().model_dump_json())
    (comparison,) = comparisons([campaign for name in "ab" for campaign in read_campaigns(tmp_path / name)])
    assert comparison.differences == (
        ("version of the engine", "-", "0.32.0"),
        ("sources of the engine", "-", "0a1b"),
    )


def test_a_night_is_compared_with_a_night_and_its_regressions_with_regressions(tmp_path: Path) -> None:
    folders = two(tmp_path)
    for folder in folders:
        campaign_of(folder / "regressions", {"a": judged("agree")})
    campaigns = [campaign for folder in folders for campaign in read_campaigns(folder)]
    pairs = [(Path(each.before).name, Path(each.after).name) for each in comparisons(campaigns)]
    assert pairs == [("monday", "tuesday"), ("regressions", "regressions")]


def test_the_page_links_each_finding_that_is_compared(tmp_path: Path) -> None:
    page = Page(page_of(*two(tmp_path)))
    ids = {element.attributes.get("id") for element in page.elements}
    assert "comparison" in ids
    links = {str(element.attributes.get("href")).removeprefix("#") for element in page.all("a")}
    assert len([link for link in links if link.startswith("finding-")]) == 3
    assert links <= ids
    assert Page(page_of(two(tmp_path / "alone")[0])).all("h2")[1].text != "Comparison"
