"""Sentences of evidence are made in one module, and no code parses them.

Verifies: which modules make sentences of evidence; that modules with regular expressions parse only foreign texts.
Does not verify: parsing without a regular expression.
"""

import re

from tests.test_architecture import ROOMS, all_imports, files_of, is_in, module_of

WORDS, PHRASES = "workers.record.words", "workers.record.phrases"
# It checks that a fact has the values that its sentence needs.
EVIDENCE = "workers.record.evidence"
MAY_SAY_IT = ("cluster.reports", "cluster.storage.artefact", "cluster.campaigns.nightly")
# Modules that parse texts, and these texts.
READS_TEXTS = {
    "workers.kernels.argument": "sizes of arguments, as an op declares them",
    "workers.shrink.fingerprint": "an engine's exception message",
    "workers.simulated_torch.__main__": "an option",
    "workers.targets.child.inside.overlay": "an engine's exception message",
    "workers.targets.child.inside.rank_variables": "an engine's sources, for global statements",
    "workers.targets.child.inside.replacements": "versions of a package",
    "workers.targets.child.releases": "a package index, requirements of a package, and versions",
    "workers.targets.child.export.text": "any text, for quotes that would end it",
    "workers.targets.vllm.sources": "the version in a file of an engine's sources",
    "cluster.cli.builds": "versions that a user names",
    "cluster.cli.inputs": "names of files",
    "cluster.cli.selection": "an option",
    "cluster.dispatch.reach": "an address",
    "cluster.reports.fault_page": "the table of faults in a page of the project",
    "cluster.reports.job_log": "the log of a Ray job, for the artefacts in it",
    "cluster.reports.markdown": "any text, for Markdown's special characters",
    "cluster.reports.terminal": "any line, for control sequences of a terminal or a CI runner",
    "cluster.storage.archive": "the log of a Ray job, for the archive in it",
    "cluster.storage.provenance": "a command that a user typed, for addresses in it",
}


def importers_of(name: str) -> set[str]:
    return {module_of(path) for path in files_of(*ROOMS) if name in all_imports(path)}


def test_modules_with_regular_expressions_parse_foreign_texts() -> None:
    users = {user for user in importers_of("re") if not is_in(user, "scenarios")}
    assert users == set(READS_TEXTS)
    assert users & importers_of(WORDS) == set()


def test_evidence_becomes_a_sentence_in_reports_only() -> None:
    assert importers_of(PHRASES) == {WORDS, EVIDENCE}
    users = importers_of(WORDS)
    assert sorted(user for user in users if not any(is_in(user, allowed) for allowed in MAY_SAY_IT)) == []
    assert [allowed for allowed in MAY_SAY_IT if not any(is_in(user, allowed) for user in users)] == []


def test_install_advice_names_published_packages() -> None:
    sources = files_of(*ROOMS)
    told = [
        f"{path}: {text}"
        for path in sources
        for text in re.findall(r"pip install [^\n]*", path.read_text())
        if "specstorm[" in text or " -e " in text
    ]
    assert told == []
