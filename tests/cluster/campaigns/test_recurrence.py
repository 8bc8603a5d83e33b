"""Findings of a night are classified as new, seen before, known or gone."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from cluster.campaigns.recurrence import recurrence, recurrence_lines
from cluster.cli.finding_history import FindingHistory, known_folder
from cluster.cli.inputs import InputError
from cluster.storage.known import Sighting, keep_seen, read_known, read_seen
from scenarios.strict_yaml import ScenarioError
from workers.targets.target import SPECSTORM
from workers.targets.vllm.names import VLLM

TODAY = date(2026, 11, 22)
URL = "https://example.org/17"


def known_file(folder: Path, name: str, text: str) -> None:
    """Write the file of a known finding."""
    (folder / f"{name}.known.yaml").write_text(text)


def test_three_nights_classify_new_again_known_and_gone_findings(tmp_path: Path) -> None:
    known_file(tmp_path, "a", f"bug: tokens a\nupstream: {URL}\nstatus: expected\n")
    known_file(tmp_path, "b", f"bug: kv b\nupstream: {URL}\nstatus: suppressed\nuntil: 2026-11-22\n")
    known = read_known(tmp_path)
    nights = [
        (20, ["tokens a", "kv b", "counts c"]),
        (21, ["counts c", "drafts d"]),
        (22, ["kv b", "counts c", "rng e"]),
    ]
    told = []
    for day, bugs in nights:
        today = TODAY.replace(day=day)
        seen = keep_seen(tmp_path, bugs, today)
        told.append(recurrence(bugs, known, seen, today))
    first, second, third = told
    assert (first.new, first.again, first.known, first.gone) == (("counts c",), (), ("tokens a", "kv b"), ())
    assert (second.new, second.again, second.known) == (("drafts d",), ("counts c",), ())
    assert second.gone == ("kv b", "tokens a")
    assert (third.new, third.again) == (("rng e",), ("kv b", "counts c"))
    assert third.gone == ("drafts d", "tokens a")
    assert read_seen(tmp_path)["counts c"] == Sighting(first=date(2026, 11, 20), last=TODAY, nights=3)
    lines = list(recurrence_lines(third, known, read_seen(tmp_path)))
    assert lines == [
        "findings over nights: 1 new, 2 seen before, 0 known, 2 not met tonight",
        "  NEW    rng e",
        f"  again  kv b: first seen 2026-11-20, last seen 2026-11-22, 2 nights (suppressed until 2026-11-22, {URL})",
        "  again  counts c: first seen 2026-11-20, last seen 2026-11-22, 3 nights",
        "  not met drafts d: first seen 2026-11-21, last seen 2026-11-21, 1 night",
        f"  not met tokens a: first seen 2026-11-20, last seen 2026-11-20, 1 night, expected, {URL}",
    ]


def test_recurrence_has_no_gone_finding_that_no_night_has_seen_or_that_was_not_judged(tmp_path: Path) -> None:
    known_file(tmp_path, "a", f"bug: tokens a\nupstream: {URL}\nstatus: expected\n")
    known, seen = read_known(tmp_path), keep_seen(tmp_path, ["kv b"], TODAY.replace(day=20))
    assert recurrence([], known, seen, TODAY).gone == ("kv b",)
    assert recurrence([], known, seen, TODAY, is_judged=False).gone == ()


def test_night_without_a_judged_trace_says_so_in_place_of_findings(tmp_path: Path) -> None:
    keep_seen(tmp_path, ["kv b"], TODAY)
    night = FindingHistory(tmp_path)
    assert night.update([], is_judged=False).gone == ()
    assert night.lines == ["findings over nights: not judged"]


@pytest.mark.parametrize(
    ("days", "nights", "last"),
    [
        ((TODAY.replace(year=2076), TODAY), 2, TODAY),
        ((TODAY.replace(year=1999), TODAY), 2, TODAY),
        ((TODAY, TODAY - timedelta(days=1), TODAY), 1, TODAY),
    ],
    ids=["clock was ahead", "clock was behind", "another time zone"],
)
def test_a_sighting_under_a_wrong_clock_does_not_stop_later_nights_from_counting(
    tmp_path: Path, days: tuple[date, ...], nights: int, last: date
) -> None:
    for day in days:
        keep_seen(tmp_path, ["kv b"], day)
    sighting = read_seen(tmp_path)["kv b"]
    assert (sighting.nights, sighting.last) == (nights, last)


def test_resumed_night_counts_once(tmp_path: Path) -> None:
    for _ in range(2):
        seen = keep_seen(tmp_path, ["kv b"], TODAY)
        assert recurrence(["kv b"], {}, seen, TODAY).new == ("kv b",)
    assert seen["kv b"].nights == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bug: a\nupstream: u\nstatus: maybe\n",
            r"x.known.yaml:3: status: Input should be 'open', 'assigned', 'fixed', 'expected' or 'suppressed'",
        ),
        ("bug: a\nupstream: u\nstatus: suppressed\n", r"x.known.yaml:1: .*until must be a date with status suppressed"),
        ("bug: a\nupstream: u\nstatus: assigned\n", r"x.known.yaml:1: .*to must be a name with status assigned"),
        ("bug: a\nstatus: open\nto: me\n", r"x.known.yaml:1: .*to must be a name with status assigned, and absent"),
        ("bug: a\nstatus: open\nuntil: 2027-01-31\n", r"x.known.yaml:1: .*until must be absent with status open"),
        ("bug: a\nstatus: fixed\n", r"x.known.yaml:1: .*upstream must name an issue or a fix with status fixed"),
        ("bug: a\nupstream: u\nstatus: suppressed\nuntil: soon\n", r"x.known.yaml:4: until: "),
        ("bug: a\nbug: b\n", r"x.known.yaml:2: "),
        ("- a\n", r"x.known.yaml:1: .*keys are bug, upstream, status, to, until, note"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    known_file(tmp_path, "x", text)
    with pytest.raises(ScenarioError, match=message):
        read_known(tmp_path)


def test_duplicate_known_finding_or_broken_files_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        known_file(tmp_path, name, f"bug: kv b\nupstream: {URL}\nstatus: expected\n")
    with pytest.raises(ScenarioError, match=r"b.known.yaml: 'kv b' is known already, from .*a.known.yaml"):
        read_known(tmp_path)
    (tmp_path / "0.yaml").touch()
    with pytest.raises(ScenarioError, match=r"0.yaml: names of files of known findings end in .known.yaml"):
        read_known(tmp_path)
    (tmp_path / "seen.json").write_text("{")
    with pytest.raises(ScenarioError, match=r"seen.json: cannot be read: .*remove it"):
        read_seen(tmp_path)


def test_known_folder_is_the_option_or_the_engine_default(tmp_path: Path) -> None:
    assert known_folder(None, SPECSTORM) == Path("scenarios/known")
    assert known_folder(None, VLLM) == Path("scenarios/known/vllm")
    with pytest.raises(InputError, match="which is not a folder"):
        known_folder(tmp_path / "made", VLLM)
    assert known_folder(tmp_path / "made", VLLM, is_night=True).is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="which cannot be created"):
        known_folder(tmp_path / "file", VLLM, is_night=True)


def test_without_a_folder_nothing_is_kept_and_every_finding_is_new(tmp_path: Path) -> None:
    night = FindingHistory(tmp_path / "none")
    assert night.update(["kv b"]).new == ("kv b",)
    assert night.lines == []
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "known"
    folder.mkdir()
    assert FindingHistory(folder).update(["kv b"]).new == ("kv b",)
    assert (folder / "seen.json").is_file()
