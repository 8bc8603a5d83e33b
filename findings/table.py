"""Write the tables of `findings/README.md` from the findings' pages and fix proofs.

`python -m findings.table` writes them; `make fixes` proves fixes and writes them anew.
"""

import sys
from collections.abc import Iterator

from cluster.reports.finding_page import SEVERITIES, Head, Severity, head_of, page_of
from workers.edits.fix import FILE, FINDINGS, PAGE
from workers.edits.proofs import Proof, proofs_of

INDEX = FINDINGS / PAGE
# Tables of one severity each; the table of bugs has all other severities.
_OTHERS: dict[str, Severity] = {"observations": "observation", "CPU build": "CPU build"}
_BUGS = "bugs"


def table(of: str) -> Iterator[str]:
    """Yield the lines of one table (bugs, observations, CPU build), most severe finding first."""
    severities = [_OTHERS[of]] if of in _OTHERS else [each for each in SEVERITIES if each not in _OTHERS.values()]
    heads = {page.parent.name: head_of(page.parent.name) for page in FINDINGS.glob(f"*/{PAGE}")}
    rows = sorted(
        (severities.index(head.severity), name) for name, head in heads.items() if head.severity in severities
    )
    columns = ["finding", "what a client sees", "severity", "area", "versions", "runner", "upstream", "fix"]
    if of in _OTHERS:
        columns.remove("severity")
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    proofs = proofs_of()
    for _, name in rows:
        cells = _cells(name, heads[name], proofs.get(name))
        yield f"| {' | '.join(cells[column] or '-' for column in columns)} |"


def _cells(name: str, head: Head, proof: Proof | None) -> dict[str, str]:
    """Return a finding's table row: the text of each column, by name."""
    title = page_of(name).partition("\n")[0]
    return {
        "finding": f"[{name}]({name}/{PAGE})",
        "what a client sees": title.removeprefix("# ").partition(": ")[2],
        "severity": head.severity,
        "area": head.area,
        "versions": head.versions,
        "runner": head.runner,
        "upstream": head.upstream,
        "fix": _fix(name, head, proof),
    }


def _fix(name: str, head: Head, proof: Proof | None) -> str:
    """Return the table cell on a finding's fix: none, replaced, not tried, proved, NOT PROVED."""
    if not (FINDINGS / name / FILE).is_file():
        return "replaced (`workers/targets/vllm/inside/replacements.py`)" if head.severity == "CPU build" else "none"
    return "not tried" if proof is None else f"proved on {proof.version}" if proof.proves else "NOT PROVED"


def page(text: str) -> str:
    """Return the text of `findings/README.md` with new tables."""
    for of in (_BUGS, *_OTHERS):
        begin, end = f"<!-- {of} -->\n", f"<!-- /{of} -->"
        assert begin in text, f"{INDEX} has no table of {of}"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}" + "\n".join(table(of)) + f"\n{end}{after}"
    return text


def main() -> int:
    """Write the tables into `findings/README.md`; return the exit code."""
    INDEX.write_text(page(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
