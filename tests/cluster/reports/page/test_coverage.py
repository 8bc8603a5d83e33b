"""Coverage on the report page: runs by event, plane and policy; empty cells stand out."""

from collections import Counter
from pathlib import Path

from cluster.reports.page.coverage import Cells, add_coverage, add_result, matrix_of, policies_of
from scenarios.capabilities import EVENTS
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from workers.record.verdict import Agreed, Judgement
from workers.targets.registry import target_kind
from workers.targets.vllm.names import VLLM


def covered(request: str = "agree") -> Judgement:
    """Return a judgement of a run that compared two planes and detected races."""
    judgement = judged(request)
    stats = judgement.verdict.stats.model_copy(update={"planes": ("kv", "races", "tokens")})  # type: ignore[union-attr]
    return judgement.model_copy(update={"verdict": Agreed(stats=stats)})


def test_a_sweep_counts_its_schedules_by_policy_and_races_once() -> None:
    cells: Cells = Counter()
    add_result(cells, covered().model_dump(mode="json"))
    runs = {"eager": 1, "lazy": 1, "lane_order": 24, "random": 20}
    wanted = {("submit", plane, policy): count for plane in ("kv", "tokens") for policy, count in runs.items()}
    assert dict(cells) == {**wanted, ("submit", "races", "eager"): 1}


def test_one_schedule_counts_as_its_own_policy() -> None:
    values = covered().model_copy(update={"schedules": 1}).model_dump(mode="json")
    values["trace"]["schedule"]["policy"] = "lazy"
    assert policies_of(values) == {"lazy": 1}


def test_a_hunt_counts_each_trace_under_each_policy() -> None:
    cells: Cells = Counter()
    add_coverage(cells, {"eager lazy": {"abort": {"kv": 2}}, "eager": {"abort": {"kv": 1}}})
    assert dict(cells) == {("abort", "kv", "eager"): 3, ("abort", "kv", "lazy"): 2}
    matrix = matrix_of(cells)
    assert [kind for kind, _ in matrix.rows] == list(EVENTS)
    (cell,) = dict(matrix.rows)["abort"]
    assert (cell.total, cell.shade) == (5, 5)
    assert matrix.policies == {"eager": 3, "lazy": 2, "lane_order": 0, "random": 0}
    assert [kind for kind, (kv,) in matrix.rows if kv.total] == ["abort"]


def test_event_that_an_engine_cannot_do_is_not_applicable_rather_than_never_run(tmp_path: Path) -> None:
    assert matrix_of(Counter({("submit", "kv", "eager"): 1})).impossible == frozenset()
    possible = target_kind(VLLM).capabilities.events
    impossible = set(EVENTS) - {"submit", *possible}
    matrix = matrix_of(Counter({("submit", "kv", "eager"): 1}), (VLLM,))
    assert matrix.impossible == impossible
    assert matrix_of(Counter({("submit", "kv", "eager"): 1}), (VLLM, "of another version")).impossible == frozenset()
    folder = campaign_of(tmp_path, {"a": covered()}, VLLM)
    page = Page(page_of(folder))
    shown = {str(each.attributes.get("title")).partition(" ")[0]: each for each in page.all("td")}
    assert {kind for kind, cell in shown.items() if cell.text == "n/a"} == impossible
    assert all("shade-0" not in str(shown[kind].attributes.get("class")) for kind in impossible)
    assert shown[possible[0]].text == "never"


def test_the_page_shows_the_matrix_and_what_was_never_run(tmp_path: Path) -> None:
    page = Page(page_of(campaign_of(tmp_path, {"a": covered(), "bb": covered("agree-2")})))
    cells = {
        str(each.attributes.get("title")).partition(":")[0].replace("\u00d7", "in"): each.text
        for each in page.all("td")
    }
    assert cells["submit in kv"] == "92"
    assert cells["submit in races"] == "2"
    assert cells["abort in kv"] == "never"
