"""Proofs of fixes: what the trace of each finding showed on the release, with its own fix, and with all fixes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from scenarios.spec import Value
from workers.edits.fix import FINDINGS

FILE = "proofs.json"
AGREES = "agrees"


class Proof(Value):
    """Verdicts, as text, on the trace of a finding on one version of an engine.

    `bug` is the fingerprint of what the release shows, empty if it shows nothing.
    """

    name: str
    engine: str
    version: str
    bug: str
    released: str
    fixed: str
    all_fixed: str

    @property
    def proves(self) -> bool:
        """Whether the fix proves the diagnosis: the finding shows without it and not with it."""
        return self.bug != "" and self.fixed == self.all_fixed == AGREES


_PROOFS = TypeAdapter(tuple[Proof, ...])


def proofs_of(folder: Path = FINDINGS) -> Mapping[str, Proof]:
    """Return the proofs that were kept last, by the name of the finding."""
    file = folder / FILE
    return {each.name: each for each in _PROOFS.validate_json(file.read_bytes())} if file.is_file() else {}


def keep(proofs: Iterable[Proof], folder: Path = FINDINGS) -> None:
    """Write proofs in the place of earlier ones of the same findings; keep the others."""
    every = {**proofs_of(folder), **{each.name: each for each in proofs}}
    text = _PROOFS.dump_json(tuple(every[name] for name in sorted(every)), indent=1).decode()
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
