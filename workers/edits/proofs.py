"""Stored verdicts that prove each fix: of its trace without it, with it, with all fixes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from scenarios.spec import Value
from workers.edits.fix import FINDINGS

FILE = "proofs.json"
AGREES = "agrees"


class Proof(Value):
    """Verdicts of a finding's trace: on the release, with its own fix, with all fixes.

    `bug` is the fingerprint of the unfixed release's failure, empty if it does not fail.
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
        """Return whether the trace fails without the fix, and agrees with it and with all fixes."""
        return self.bug != "" and self.fixed == self.all_fixed == AGREES


_PROOFS = TypeAdapter(tuple[Proof, ...])


def proofs_of(folder: Path = FINDINGS) -> Mapping[str, Proof]:
    """Return the stored verdicts that prove each fix, by the name of its finding."""
    file = folder / FILE
    return {each.name: each for each in _PROOFS.validate_json(file.read_bytes())} if file.is_file() else {}


def keep(proofs: Iterable[Proof], folder: Path = FINDINGS) -> None:
    """Store proofs; they replace earlier proofs of the same findings."""
    every = {**proofs_of(folder), **{each.name: each for each in proofs}}
    text = _PROOFS.dump_json(tuple(every[name] for name in sorted(every)), indent=1).decode()
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
