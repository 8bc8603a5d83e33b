"""Amounts on the report page: how much of the plan was judged; no claim about the rest."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.nightly import Regressions
from cluster.campaigns.suite import Scenario, Suite
from cluster.cli import main as cli
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import Job, ShardJob
from cluster.reports.junit import junit_xml
from cluster.reports.page.campaign import Campaign, read_campaigns
from cluster.reports.page.judged import Amount, plan_of
from cluster.reports.page.render import overall
from cluster.storage.provenance import PlannedWork, this_run
from cluster.storage.store import Store
from tests.cluster.fake_judge import FakeJudge, trace
from tests.cluster.reports.page.campaigns import Page, judged, page_of
from tests.cluster.reports.page.test_campaign import hunt_of, report_of
from tests.cluster.reports.page.test_faults import COUNTS, trial
from tests.cluster.reports.page.test_trends import keep_trial
from workers.record.verdict import Judgement, Lost


def job_of(number: int) -> Job:
    """Return the job of scenario `number`; it agrees, as all do."""
    return Job.of(trace(f"agree-{number}"), sweep=True)


def suite_of(store: Store, num_planned: int, num_judged: int) -> Suite:
    """Plan `num_planned` scenarios and judge the first `num_judged`."""
    suite = Suite([Scenario(f"{number:03}.yaml", job_of(number)) for number in range(num_planned)], store)
    for scenario in suite.scenarios[:num_judged]:
        suite.begin(scenario.job, 1, 0)
        suite.take(Record(scenario.job.key, 1, FakeJudge().judge(scenario.job.trace, True)))
    return suite


def gate_of(folder: Path, num_planned: int, num_judged: int, num_shards: int) -> Campaign:
    """Write a gate's campaign that ran out of time before judging its plan; return its folder."""
    with Store(folder) as store:
        suite_of(store, num_planned, num_judged)
        planner = HuntPlanner(HuntSettings(canary=""), store, None)
        store.plan(PlannedWork(traces=200))
        for number in range(num_shards):
            job = planner.hunt.jobs.job("hunt", number)
            store.begin_attempt(job.key, 1, 0)
            store.keep_shard(job, 1, report_of(12, "a"))
    (campaign,) = read_campaigns(folder)
    return campaign


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Amount("scenario", 5, 112), "5 of 112 scenarios"),
        (Amount("scenario", 0, 112), "none of 112 scenarios"),
        (Amount("scenario", 1, 1), "1 of 1 scenario"),
        (Amount("trace", 0), "no trace"),
        (Amount("trace", 1), "1 trace"),
        (Amount("trace", 1234), "1,234 traces"),
        (Amount("trace", 12, 48), "12 of 48 traces"),
        (Amount("trace", 0, 200, is_least=True), "no trace of at least 200"),
        (Amount("trace", 24, 200, is_least=True), "24 traces of at least 200"),
        (Amount("trace", 240, 200, is_least=True), "240 traces"),
    ],
)
def test_amount_says_how_many_of_how_many(amount: Amount, text: str) -> None:
    assert amount.text == text


def test_gate_that_judged_a_part_says_so_everywhere(tmp_path: Path) -> None:
    campaign = gate_of(tmp_path, 112, 5, 0)
    assert [each.text for each in campaign.amounts] == [
        "5 of 112 scenarios",
        "no trace of at least 200",
        "no shard",
    ]
    total = overall([campaign])
    assert (total.exit_code, total.headline) == (3, "Not judged to the end")
    assert "107 of 112 scenarios were not judged" in campaign.gaps
    page = Page(page_of(tmp_path))
    (banner,) = [each.text for each in page.all("p") if each.attributes.get("class") == "judged"]
    assert "judged: 5 of 112 scenarios, no trace of at least 200, no shard" in banner
    assert [row[1] for row in page.rows[0]].count("not judged") == 107
    text = " ".join(each.text for each in page.elements)
    assert "Determinism: not judged" in text
    assert "0 shards" not in text
    assert "all alike" not in text


def test_gate_with_all_of_its_plan_agrees(tmp_path: Path) -> None:
    campaign = gate_of(tmp_path, 3, 3, 17)
    assert (campaign.gaps, overall([campaign]).headline) == ([], "All agreed")
    assert [each.text for each in campaign.amounts] == ["3 of 3 scenarios", "204 traces", "17 shards"]


def test_gate_without_enough_traces_is_not_judged_to_the_end(tmp_path: Path) -> None:
    campaign = gate_of(tmp_path, 3, 3, 2)
    assert campaign.gaps == ["judged: 24 traces of at least 200"]


def test_campaign_that_judged_nothing_has_no_number_of_findings(tmp_path: Path) -> None:
    campaign = gate_of(tmp_path, 7, 0, 0)
    assert overall([campaign]).headline == "Nothing was judged"
    page = Page(page_of(tmp_path))
    cards = dict(zip([each.whole for each in page.all("dt")], [each.whole for each in page.all("dd")], strict=True))
    assert cards["findings"] == "not judged"


def test_measurement_of_faults_has_no_number_of_findings(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        keep_trial(store, trial(COUNTS, 0, 1, "counts"))
        store.plan(PlannedWork(trials=tuple(map(str, range(39)))))
    (campaign,) = read_campaigns(tmp_path)
    assert [each.text for each in campaign.amounts] == ["1 of 39 trials"]
    labels = [each.whole for each in Page(page_of(tmp_path)).all("dt")]
    assert labels[:2] == ["trials a second", "trials of faults"]


def test_scenarios_that_were_not_judged_are_errors_for_a_ci_server(tmp_path: Path) -> None:
    root = ElementTree.fromstring(junit_xml([gate_of(tmp_path, 7, 5, 17)]))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("8", "0", "3")
    assert [each.get("message") for each in root.iter("error")][:2] == ["not judged", "not judged"]


def test_run_that_stops_at_its_first_finding_has_not_judged_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path) as store:
        suite_of(store, 4, 1)
    with Store(tmp_path) as store:
        suite_of(store, 2, 2)
    assert cli.run(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Not judged to the end (judged: 2 of 4 scenarios): ")
    (campaign,) = read_campaigns(tmp_path)
    assert campaign.gaps == ["2 of 4 scenarios were not judged"]


def test_shard_that_was_lost_is_a_gap_until_it_is_judged(tmp_path: Path) -> None:
    def hunted(*results: Lost | None) -> Campaign:
        with Store(tmp_path) as store:
            planner = HuntPlanner(HuntSettings(canary=""), store, 36)
            for task in planner.tasks(3, 3):
                assert isinstance(task.job, ShardJob)
                number = task.job.shard.number
                if task.job.role == "hunt":
                    planner.begin(task.job, store.attempts_made(task.job.key) + 1, 0)
                    result = results[number] or report_of(12, "a")
                    planner.take(Record(task.job.key, store.attempts_made(task.job.key), result))
        (campaign,) = read_campaigns(tmp_path)
        return campaign

    campaign = hunted(None, Lost(reason="the worker raised ValueError: x"), None)
    assert [each.text for each in campaign.amounts] == ["24 of 36 traces", "2 of 3 shards"]
    assert campaign.gaps == ["1 shard was not judged", "judged: 24 of 36 traces"]
    again = hunted(None, None, None)
    assert ([each.text for each in again.amounts], again.gaps) == (["36 of 36 traces", "3 shards"], [])


def test_traces_after_a_shard_without_a_report_are_not_counted(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        planner = HuntPlanner(HuntSettings(canary=""), store, None)
        for number in (0, 1, 3):
            job = planner.hunt.jobs.job("hunt", number)
            store.begin_attempt(job.key, 1, 0)
            store.keep_shard(job, 1, report_of(12, "a"))
    (campaign,) = read_campaigns(tmp_path)
    assert [each.text for each in campaign.amounts] == ["24 traces", "2 shards"]


@pytest.mark.parametrize(
    ("states", "counted"),
    [
        ({"a": ("diverge", "agree"), "b": ("diverge", None), "c": (None, None)}, (3, 1, 2, 2, 1, 1)),
        ({"a": ("agree", "agree"), "b": ("diverge", "diverge")}, (2, 2, 2, 1, 2, 1)),
        ({"a": (None, None)}, (1, 0, 0, 0, 0, 0)),
    ],
)
def test_report_progress_and_page_count_regressions_alike(
    states: Mapping[str, tuple[str | None, str | None]], counted: tuple[int, ...], tmp_path: Path
) -> None:
    known = {name: trace(f"agree-{name}").model_copy(update={"faults": ("vllm-id-reuse",)}) for name in states}
    with Store(tmp_path):
        pass
    with Store(tmp_path / "regressions") as store:
        suite = Regressions(known, store).suite
        for scenario in suite.scenarios:
            faults = scenario.job.trace.faults
            verdict = states[scenario.name][0 if faults else 1]
            if verdict is not None:
                found = judged(verdict).verdict
                suite.begin(scenario.job, 1, 0)
                suite.take(Record(scenario.job.key, 1, Judgement(verdict=found, trace=scenario.job.trace, schedules=1)))
        counts, progress = suite.regressions(), suite.counts()
    _, regressions = read_campaigns(tmp_path)
    assert regressions.regressions == counts
    planned, judged_of, faulty, found_of, clean, agreed = counted
    assert (counts.planned, counts.judged, counts.faulty, counts.found) == (planned, judged_of, faulty, found_of)
    assert (counts.clean, counts.agreed) == (clean, agreed)
    assert (progress.done, progress.total) == (judged_of, planned)
    assert regressions.amounts[0].text.split(" ")[0] == (str(judged_of) if judged_of else "none")


def test_night_that_ends_before_its_regressions_agrees_as_far_as_judged(tmp_path: Path) -> None:
    for num_judged, headline in ((2, "All agreed, as far as judged"), (3, "All agreed")):
        folder = hunt_of(tmp_path / str(num_judged), 1, 1)
        with Store(folder / "regressions") as store:
            suite_of(store, 3, num_judged)
        total = overall(list(read_campaigns(folder)))
        assert (total.exit_code, total.headline) == (0, headline)


def test_plan_of_a_later_process_replaces_scenarios_of_its_name_and_seeds_add_up() -> None:
    first = this_run(1).model_copy(update={"planned": PlannedWork(scenarios={"a": ("1",), "b": ("2",)}, traces=24)})
    second = this_run(2).model_copy(update={"planned": PlannedWork(scenarios={"a": ("3",)}, traces=12)})
    third = this_run(2).model_copy(update={"planned": PlannedWork(traces=36)})
    plan = plan_of([first, second, third])
    assert plan == PlannedWork(scenarios={"a": ("3",), "b": ("2",)}, traces=60)
