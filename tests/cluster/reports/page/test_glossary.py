"""The glossary: every word that a report uses has a meaning, and `specstorm explain` finds it."""

import pytest

from cluster.cli import main as cli
from cluster.reports.page.glossary import GLOSSARY, known_words, meanings
from scenarios.events import Schedule
from scenarios.probes import PROBES
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


@pytest.mark.parametrize("word", ["plane", "commit key", "probe", "lane", "Fingerprint", "counts", "gap"])
def test_a_word_is_explained_in_a_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{word} (")
    assert out.count("\n") == len(list(meanings(word)))


def test_an_unknown_word_is_refused_with_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "planee"]) == 2
    assert capsys.readouterr().err == "specstorm: unknown word 'planee'; did you mean plane, lane?\n"


def test_without_a_word_the_words_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain"]) == 0
    assert capsys.readouterr().out.splitlines() == list(GLOSSARY)
