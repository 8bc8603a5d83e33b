"""JSON Schemas of scenario files and of `--json` documents."""

import os
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.origin import ROOT
from cluster.reports.documents import DOCUMENTS, SCENARIO
from cluster.storage.artefact import SCHEMA, schema_line
from scenarios.codec import ScenarioError, load, loads
from scenarios.strict_yaml import read
from tests.cluster.documents import complaints, document_of
from workers.faults.registry import FAULTS

FILES = sorted((ROOT / "scenarios").glob("*/*.yaml"))
SUBMIT = "{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2}"
ALLOWED = (
    f"events: [{SUBMIT}]",
    f"spec: {{depth: 1, layers: attention}}\nseed: 3\nevents: [{SUBMIT}]",
    "events: [{tick: 0, do: submit, request: a, prompt: {tokens: 9, common: 2}, max_tokens: 2, accept: {rate: 0.5}}]",
    "events: [{tick: 0, at: after_launch, do: submit, request: a, prompt: [1], max_tokens: 2, accept: '0110'}]",
    f"events: [{SUBMIT}]\nschedule: {{policy: lane_order, order: [h2d, host, compute, d2h_output, d2h_counts]}}",
)
REFUSED = (
    f"events: [{SUBMIT}]\nevent: []",
    f"spec: {{dept: 2}}\nevents: [{SUBMIT}]",
    "events: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2, prio: 3}]",
    "events: [{tick: 0, do: submit, request: a, prompt: {token: 3}, max_tokens: 2}]",
    "events: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2, params: {temprature: 1.0}}]",
    "events: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2, accept: most}]",
    "events: [{tick: 0, do: submit, request: a, prompt: [1], max_tokens: 2, accept: {rate: 1.5}}]",
    "events: [{tick: 0, request: a, prompt: [1], max_tokens: 2}]",
    "events: [{tick: 0, do: explode}]",
    "events: [{tick: -1, do: reorder}]",
    f"events: [{SUBMIT}]\nexpect: {{preemptions: 1}}",
    f"events: [{SUBMIT}]\nschedule: {{policy: soon}}",
)


def values_of(text: str) -> object:
    """Return the plain values of a strict YAML text."""
    return read(text, "a.yaml")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_scenario_file_matches_and_names_its_schema(path: Path) -> None:
    text = path.read_text()
    assert complaints(SCENARIO, values_of(text)) == []
    assert text.startswith(schema_line(path.parent))


@pytest.mark.parametrize("text", ALLOWED)
def test_shorthand_that_the_codec_reads_is_allowed(text: str) -> None:
    loads(text, "a.yaml")
    assert complaints(SCENARIO, values_of(text)) == []


@pytest.mark.parametrize("text", REFUSED)
def test_schema_refuses_each_key_that_the_codec_refuses(text: str) -> None:
    with pytest.raises(ScenarioError):
        loads(text, "a.yaml")
    assert complaints(SCENARIO, values_of(text))


def test_the_schema_in_the_repository_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema", SCENARIO]) == 0
    wanted = f"python -m cluster schema {SCENARIO} > {SCHEMA}"
    assert capsys.readouterr().out == (ROOT / SCHEMA).read_text(), f"write it anew: {wanted}"


def test_the_command_lists_its_documents_and_refuses_others_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    assert capsys.readouterr().out.split() == [SCENARIO, *DOCUMENTS]
    for name in DOCUMENTS:
        assert cli.run(["schema", name]) == 0
    capsys.readouterr()
    assert cli.run(["schema", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("specstorm: unknown document 'nothing'; known are scenario, run, ")


def test_faults_are_listed_and_shown_as_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["faults", "list", "--json"]) == 0
    listed = document_of("faults-list", capsys.readouterr().out)["faults"]
    assert [each["id"] for each in listed] == sorted(FAULTS)
    for each in (listed[0], listed[-1]):
        assert cli.run(["faults", "show", each["id"], "--json"]) == 0
        assert document_of("faults-show", capsys.readouterr().out)["faults"] == [each]


def test_a_folder_outside_a_checkout_has_no_path_to_the_schema(tmp_path: Path) -> None:
    assert schema_line(tmp_path) == ""
    line = schema_line(ROOT / "campaigns" / "run-0001" / "artefacts")
    assert line == f"# yaml-language-server: $schema={os.path.join('..', '..', '..', SCHEMA)}\n"


def test_a_file_with_the_line_is_the_same_trace() -> None:
    path = FILES[0]
    assert load(path) == loads(path.read_text().partition("\n")[2], "a.yaml")
