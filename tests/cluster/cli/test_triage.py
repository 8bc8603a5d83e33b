"""Command `triage`: statuses of findings are shown and changed, and end at their date."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from cluster.campaigns.recurrence import recurrence, recurrence_lines
from cluster.cli import main as cli
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.terminal import printable
from cluster.storage.known import keep_seen, read_known
from tests.cluster.reports.page.campaigns import campaign_of, judged

BUG = "counts accepted_read"
URL = "https://example.org/17"
TODAY = date.today()
LATER = TODAY + timedelta(days=30)
TEXT = f"# Seen since June.\nbug: {BUG}  # as reported\nupstream: {URL}\nstatus: expected\n"


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """Write a folder with one known finding, and with two that nights have seen."""
    (tmp_path / "a.known.yaml").write_text(TEXT)
    keep_seen(tmp_path, [BUG, "kv b"], TODAY)
    return tmp_path


def triage(known: Path, *arguments: str) -> int:
    return cli.run(["triage", *arguments, "--known", str(known)])


def test_assigned_finding_counts_again_from_its_end_date(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert triage(known, BUG, "--state", "assigned", "--to", "ada", "--until", str(LATER)) == 0
    path = known / "a.known.yaml"
    assert capsys.readouterr().out == f"{path}: {BUG}: assigned to ada until {LATER}, {URL}\n"
    assert path.read_text() == TEXT.replace("expected", "assigned") + f"to: ada\nuntil: {LATER}\n"
    told = [recurrence([BUG], read_known(known), {}, day) for day in (TODAY, LATER)]
    assert [(each.known, each.new) for each in told] == [((BUG,), ()), ((), (BUG,))]


def test_changed_state_drops_assignee_and_date(known: Path) -> None:
    path = str(known / "a.known.yaml")
    assert triage(known, path, "--state", "assigned", "--to", "ada", "--until", str(LATER)) == 0
    assert triage(known, path, "--note", "Asked again.") == 0
    assert triage(known, path, "--state", "open") == 0
    finding = read_known(known)[BUG]
    assert (finding.standing, finding.note, finding.holds(TODAY)) == (f"open, {URL}", "Asked again.", False)
    assert Path(path).read_text() == TEXT.replace("expected", "open") + 'note: "Asked again."\n'
    assert triage(known, path, "--state", "fixed") == 0
    assert read_known(known)[BUG].standing == f"fixed upstream, {URL}"


def test_triage_of_a_seen_finding_creates_its_file(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert triage(known, "kv b") == 2
    assert "has no status yet" in capsys.readouterr().err
    assert triage(known, "kv b", "--state", "assigned", "--to", "ada") == 0
    assert (known / "kv_b.known.yaml").read_text() == 'bug: "kv b"\nstatus: assigned\nto: ada\n'
    capsys.readouterr()
    assert triage(known) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{BUG}: expected, {URL}; seen {TODAY} to {TODAY}",
        f"kv b: assigned to ada; seen {TODAY} to {TODAY}",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--state", "open"), "no finding given"),
        (("", "--state", "open"), "no finding given"),
        (("",), "no finding given"),
        (("counts accepted_rad", "--state", "open"), f"did you mean '{BUG}'?"),
        ((BUG, "--until", "soon"), "give a date such as"),
        ((BUG, "--until", str(TODAY)), "which is not in the future"),
        ((BUG, "--state", "suppressed"), ".known.yaml:2: until must be a date with status suppressed"),
        ((BUG, "--to", "ada"), ".known.yaml:2: to must be a name with status assigned"),
        (("nowhere.known.yaml",), "the file does not exist"),
        ((BUG, "--engine", "elsewhere"), "--engine is elsewhere; known are"),
        ((BUG, "--state", "gone"), "Invalid value for '--state': 'gone' is not one of 'open', 'assigned', "),
    ],
)
def test_invalid_triage_is_refused_and_nothing_is_written(
    known: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert triage(known, *arguments) == 2
    assert message in capsys.readouterr().err
    assert (known / "a.known.yaml").read_text() == TEXT
    assert len(list(known.iterdir())) == 2


def test_triage_refuses_a_finding_that_no_night_and_no_campaign_has_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    folder = campaign_of(tmp_path / "run", {"a": judged("diverge")})
    (met,) = [bug for campaign in read_campaigns(folder) for bug in campaign.findings]
    decided = ("--state", "assigned", "--to", "ada")
    for bug, campaign, hint in (
        ("tokens nobody has seen", (), "name the campaign that met it with --campaign DIR"),
        (met, (), "name the campaign that met it with --campaign DIR"),
        (met[:-1], ("--campaign", str(folder)), f"did you mean {met!r}?"),
    ):
        assert triage(tmp_path / "empty", bug, *decided, *campaign) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"specstorm: no finding {bug!r} was seen by a night of ")
        assert message.endswith(f"; {hint}\n")
    assert list((tmp_path / "empty").iterdir()) == []
    assert triage(tmp_path / "empty", met, *decided, "--campaign", str(folder)) == 0
    assert list(read_known(tmp_path / "empty")) == [met]


def test_the_fingerprint_of_an_error_in_several_lines_is_kept_as_it_is(
    known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bug = "crash step RuntimeError: first  line\nsecond, \x1b[31m and \u202e"
    keep_seen(known, [bug], TODAY)
    assert triage(known, bug, "--state", "assigned", "--to", "ada") == 0
    result = recurrence([bug], read_known(known), {}, TODAY)
    assert (result.known, result.new) == ((bug,), ())
    told = [*recurrence_lines(result, read_known(known), {}), *capsys.readouterr().out.splitlines()]
    assert [line for line in told if "assigned to ada" in line]
    assert "".join(map(printable, told)).isprintable()
