"""The report page: one offline file, accessible, with all texts of findings escaped."""

import base64
import hashlib
import re
import shutil
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest
from markupsafe import Markup

from cluster.cli import main as cli
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.render import overall, term
from cluster.storage.store import Store
from scenarios import codec
from scenarios.events import Schedule
from scenarios.visible import visible_text
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from workers.record.evidence import Access, Difference, MissingOrder, Site, fact
from workers.record.verdict import NO_STATS, Crashed, Diverged, Kind, Outcome

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e'\""
# Text on what it stands on; WCAG 2 wants 4.5 to 1.
PAIRS = [
    (text, paper)
    for paper in ("page", "paper")
    for text in ("ink", "quiet", "link", "bad", "ok", "warn", "accent", "host", "compute", "h2d", "copy")
] + [("bad", "bad-paper"), ("ok", "ok-paper"), ("warn", "warn-paper"), ("ink", "bad-paper"), ("ink", "warn-paper")]


def hostile_verdicts() -> dict[str, Diverged | Crashed]:
    """Return findings with hostile texts."""
    hostile = Site(function=HOSTILE, file=HOSTILE, line=3)
    access = Access(lane=HOSTILE, op=HOSTILE, step=3, site=hostile)
    difference = Difference(
        plane="tokens",
        variable=HOSTILE,
        request=HOSTILE,
        commit=HOSTILE,
        step=3,
        position=1,
        expected=fact("failed", error=HOSTILE),
        actual=HOSTILE,
        writers=(access,),
        missing_order=MissingOrder(first=access, second=access, memory=HOSTILE),
    )
    diverged = Diverged(stats=NO_STATS, difference=difference)
    return {HOSTILE: diverged, "b": Crashed(stats=NO_STATS, error=HOSTILE, where=hostile)}


def test_text_of_a_finding_never_becomes_markup(tmp_path: Path) -> None:
    verdicts = hostile_verdicts()
    folder = campaign_of(tmp_path / "<b>&", {name: judged("diverge", verdict) for name, verdict in verdicts.items()})
    source = page_of(folder)
    page = Page(source)
    assert page.all("img") == []
    assert [element.attributes.get("id") for element in page.all("script")] == ["rows", None]
    assert not [name for element in page.elements for name in element.attributes if name.startswith("on")]
    assert [row[0] for row in page.rows[0]] == [visible_text(HOSTILE), "b"]
    assert "\x1b" not in source
    assert "\u202e" not in source
    assert any(r"\x1b[31m\u202e" in element.text for element in page.all("dd"))


def test_word_without_a_meaning_is_text_that_is_escaped() -> None:
    assert not isinstance(term(HOSTILE), Markup)
    assert str(term("plane", "<b>")).endswith('">&lt;b&gt;</span>')


NOTHING_WRONG = "the race is reported whatever the timing; in none of 2 schedules tried was a value wrong"
WRONG = "the race is reported whatever the timing; counts is wrong under lazy, and no value under eager"


@pytest.mark.parametrize(("lazy", "sentence"), [("agreed", NOTHING_WRONG), ("diverged", WRONG)])
def test_a_race_has_a_sentence_of_its_harm_in_place_of_a_list_of_schedules(
    tmp_path: Path, lazy: Kind, sentence: str
) -> None:
    access = Access(lane="compute", op="copy", step=1)
    order = MissingOrder(first=access, second=access, memory="counts")
    plane = "races" if lazy == "agreed" else "counts"
    found = Difference(plane=plane, variable="counts", step=1, expected="", actual="", missing_order=order)
    judgement = judged("diverge", Diverged(stats=NO_STATS, difference=found))
    outcomes = (
        Outcome(schedule=Schedule(policy="eager"), kind="agreed"),
        Outcome(schedule=Schedule(policy="lazy"), kind=lazy, variable="counts"),
    )
    page = Page(page_of(campaign_of(tmp_path, {"a": judgement.model_copy(update={"outcomes": outcomes})})))
    assert [each for each in page.all("ul") if each.attributes.get("class") == "outcomes"] == []
    assert [each.text for each in page.all("p") if "race" in each.text] == [sentence]


def test_the_page_loads_nothing_and_runs_its_own_script_alone(tmp_path: Path) -> None:
    page = Page(page_of(campaign_of(tmp_path, {"a": judged("diverge"), "bb": judged("agree")})))
    assert page.all("link") == []
    outside = [element.attributes.get(name) for element in page.elements for name in ("src", "href", "action", "data")]
    assert [target for target in outside if target and not target.startswith("#")] == []
    assert page.all("iframe") == page.all("object") == page.all("embed") == []
    (policy,) = [each for each in page.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy"]
    script = page.all("script")[-1].text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    content = policy.attributes["content"]
    assert content == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_links_lead_somewhere_and_ids_are_unique(tmp_path: Path) -> None:
    first = campaign_of(tmp_path / "one", {"a": judged("diverge"), "bb": judged("crash")})
    second = campaign_of(tmp_path / "two", {"a": judged("diverge"), "ccc": judged("stuck")})
    page = Page(page_of(first, second))
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    targets = {str(element.attributes["href"]).removeprefix("#") for element in page.all("a")}
    assert targets <= set(ids)
    assert {row[7] for rows in page.rows for row in rows} <= set(ids)


def test_sections_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    with Store(tmp_path / "nothing"):
        pass
    sections = {
        "nothing": [],
        "agreed": ["results", "coverage"],
        "found": ["findings", "results", "coverage"],
    }
    campaign_of(tmp_path / "agreed", {"a": judged("agree")})
    campaign_of(tmp_path / "found", {"a": judged("diverge")})
    for name, wanted in sections.items():
        page = Page(page_of(tmp_path / name))
        assert [each.attributes["id"] for each in page.all("section") if "id" in each.attributes] == [
            *wanted,
            "glossary",
        ]
        links = [str(each.attributes["href"]) for each in page.all("a")]
        assert [link for link in links[1:] if not link.startswith("#finding-")] == [
            f"#{id}" for id in (*wanted, "glossary")
        ]


@pytest.mark.parametrize(
    ("requests", "code", "headline"),
    [
        (["agree"], 0, "All agreed"),
        (["agree", "diverge"], 1, "1 finding"),
        (["diverge", "crash", "vacuous"], 1, "2 findings"),
        (["agree", "vacuous"], 3, "Not judged to the end"),
        ([], 3, "Nothing was judged"),
    ],
)
def test_the_verdict_is_on_top(tmp_path: Path, requests: list[str], code: int, headline: str) -> None:
    folder = campaign_of(tmp_path, {f"{'x' * at}{name}": judged(name) for at, name in enumerate(requests)})
    total = overall(list(read_campaigns(folder)))
    assert (total.exit_code, total.headline) == (code, headline)
    assert [element.text for element in Page(page_of(folder)).all("h1")] == [headline]


def test_scenarios_that_meet_one_bug_are_one_finding(tmp_path: Path) -> None:
    folder = campaign_of(tmp_path, {name: judged("diverge") for name in ("a", "bb", "ccc")})
    (campaign,) = read_campaigns(folder)
    (finding,) = campaign.findings.values()
    assert (finding.count, finding.names) == (3, ["a", "bb", "ccc"])
    replay = f"specstorm replay {folder / str(finding.artefact)}"
    assert replay in [element.text for element in Page(page_of(folder)).all("code")]
    assert codec.loads(finding.yaml, "a.yaml") == finding.judgement.trace


def test_a_stored_judgement_that_was_altered_is_left_out_and_said(tmp_path: Path) -> None:
    folder = campaign_of(tmp_path, {"a": judged("diverge"), "bb": judged("agree")})
    database = sqlite3.connect(folder / "campaign.sqlite")
    with database:
        database.execute("UPDATE results SET judgement = replace(judgement, 'diverged', 'agreed') WHERE scenario = 'a'")
    database.close()
    (campaign,) = read_campaigns(folder)
    assert [row[0] for row in campaign.rows] == ["bb"]
    assert campaign.gaps == [f"{folder / 'campaign.sqlite'}: 1 altered row of results left out"]
    assert campaign.exit_code == 3


def test_known_faults_of_a_night_are_wanted_and_its_clean_runs_must_agree(tmp_path: Path) -> None:
    campaign_of(tmp_path, {"a": judged("agree")})
    known = judged("diverge")
    known = known.model_copy(update={"trace": known.trace.model_copy(update={"faults": ("vllm-id-reuse",)})})
    missed = judged("agree")
    missed = missed.model_copy(update={"trace": missed.trace.model_copy(update={"faults": ("vllm-id-reuse",)})})
    campaign_of(tmp_path / "regressions", {"a": known, "bb": missed, "ccc": judged("crash")})
    night, regressions = read_campaigns(tmp_path)
    assert night.exit_code == 0
    assert regressions.known_missed == ["bb"]
    assert [finding.verdict.kind for finding in regressions.findings.values()] == ["crashed"]


def test_a_folder_that_is_no_campaign_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"specstorm: {tmp_path}: is not a campaign: it has no campaign.sqlite")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "campaign.sqlite").write_text("nothing of the kind, and long enough to be looked at" * 20)
    assert cli.run(["report", str(tmp_path)]) == 2
    assert "is not a campaign database" in capsys.readouterr().err


def test_the_command_writes_the_page_beside_a_campaign_that_is_being_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("agree")})
    writer = sqlite3.connect(folder / "campaign.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert cli.run(["report", str(folder)]) == 0
    writer.close()
    assert capsys.readouterr().out == f"All agreed: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text() == page_of(folder)


def test_a_campaign_given_twice_is_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("agree")})
    other = campaign_of(tmp_path / "other", {"b": judged("agree")})
    (tmp_path / "link").symlink_to(folder)
    shutil.copytree(folder, tmp_path / "copy")
    again = [folder, tmp_path / "run" / ".." / "run", tmp_path / "link", tmp_path / "copy"]
    assert cli.run(["report", str(folder), *map(str, again), str(other), "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [f"specstorm: {each}: is the campaign of {folder}; it is counted once" for each in again]
    assert (tmp_path / "page" / "report.html").read_text() == page_of(folder, other)


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_has_enough_contrast(scheme: int) -> None:
    style = files("cluster.reports.page").joinpath("templates", "style.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style.split(":root")[scheme + 1]))
    for text, paper in PAIRS:
        high, low = sorted((luminance(colours[text]), luminance(colours[paper])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, paper)
