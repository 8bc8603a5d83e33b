"""Glossary: each word that a report uses has a meaning that `specstorm explain` prints."""

import re
from datetime import date
from importlib.resources import files
from typing import get_args

import pytest

from cluster.cli import main as cli
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.glossary import GLOSSARY, known_words, meanings
from cluster.reports.page.nights import read_nights
from cluster.reports.page.render import render_page
from cluster.storage.known import keep_seen
from cluster.storage.store import Store
from scenarios.capabilities import EVENTS
from scenarios.events import Policy, Schedule
from scenarios.probes import PROBES
from tests.cluster.reports.page.campaigns import Element, Page, campaign_of, judged
from tests.cluster.reports.page.test_campaign import hunt_of
from tests.cluster.reports.page.test_faults import COUNTS, trial
from tests.cluster.reports.page.test_judged import suite_of
from tests.cluster.reports.page.test_trends import keep_trial
from workers.record.observation import VARIABLES


def test_every_word_that_is_known_has_a_meaning() -> None:
    assert [word for word in known_words() if not list(meanings(word))] == []


def test_planes_variables_probes_and_verdicts_are_known() -> None:
    planes = {variable.plane for variable in VARIABLES.values()} | {"races", "liveness", "crash", "determinism"}
    verdicts = {"agreed", "diverged", "crashed", "stuck", "vacuous", "lost"}
    assert {*planes, *VARIABLES, *PROBES, *verdicts} <= set(known_words())


def test_the_policies_are_named() -> None:
    policies = Schedule.model_json_schema()["properties"]["policy"]["enum"]
    assert all(policy in GLOSSARY["policy"] for policy in policies)


def test_events_and_policies_are_explained() -> None:
    for kind, words in {"event": EVENTS, "policy": get_args(Policy)}.items():
        assert [word for word in words if kind not in dict(meanings(word))] == []


def test_every_word_that_a_template_marks_is_known() -> None:
    templates = files("cluster.reports.page").joinpath("templates")
    marked = {
        word
        for template in templates.iterdir()
        for word in re.findall(r"""\b(?:term|card)\("([^"]+)\"""", template.read_text())
    }
    assert len(marked) > 20
    assert [word for word in sorted(marked) if not list(meanings(word))] == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Page]:
    """Return pages with every section: all kinds of findings, gate, nights, trials, comparison."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: judged(name) for name in ("diverge", "crash", "stuck", "agree", "vacuous")}
    known = folder / "known"
    known.mkdir()
    both = [campaign_of(folder / name, verdicts) for name, verdicts in (("a", found), ("b", {"x": judged("agree")}))]
    night = hunt_of(folder / "night", 1, 1)
    campaign_of(night / "regressions", {"a": judged("agree")})
    with Store(night) as store:
        keep_trial(store, trial(COUNTS, 0, 1, "counts"))
    keep_seen(known, ["kv b"], date(2026, 11, 20))
    with Store(folder / "gate") as store:
        suite_of(store, 4, 1)
    made = []
    for folders in (both, [night], [folder / "gate"]):
        campaigns = [campaign for each in folders for campaign in read_campaigns(each)]
        bugs = [bug for campaign in campaigns for bug in campaign.findings]
        nights = read_nights(known, bugs, date.today())
        made.append(Page(render_page(campaigns, {}, nights)))
    return made


def is_term(element: Element) -> bool:
    """Return whether an element is for terms: a tag, a label, or the head of a table."""
    around = [name for each in element.ancestors for name in each.classes]
    match element.tag:
        case "h4":
            return all(each.attributes.get("id") != "comparison" for each in element.ancestors)
        case "dt":
            return "cards" in around or "facts" in around
        case "th":
            return "results" in around
    return "tag" in element.classes


def test_explain_knows_every_term_of_the_page(pages: list[Page], capsys: pytest.CaptureFixture[str]) -> None:
    marked = [each for page in pages for each in page.elements if "term" in each.classes]
    having = {id(around) for each in marked for around in each.ancestors}
    terms = [each for page in pages for each in page.elements if is_term(each)]
    assert {"harm", "commit", "commit key", "not judged"} <= {each.attributes["data-word"] for each in marked}
    assert len(terms) > 60
    assert [each.whole for each in terms if id(each) not in having] == []
    for word in sorted({str(each.attributes["data-word"]) for each in marked}):
        assert cli.run(["explain", word]) == 0, word
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("word", ["plane", "commit key", "probe", "lane", "Fingerprint", "counts", "gap"])
def test_a_word_is_explained_in_a_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{word} (")
    assert out.count("\n") == len(list(meanings(word)))


def test_an_unknown_word_is_refused_with_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "planee"]) == 2
    assert capsys.readouterr().err == "specstorm: unknown word 'planee'; did you mean plane, lane, lane_order?\n"


def test_without_a_word_the_words_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain"]) == 0
    assert capsys.readouterr().out.splitlines() == list(GLOSSARY)
