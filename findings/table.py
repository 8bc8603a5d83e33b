"""Write `findings/README.md`: the table of all findings, from the head of each page and what was proved of its fix.

`python -m findings.table` writes it; `make fixes` proves fixes and writes it anew.
"""

import sys
from collections.abc import Iterator

from cluster.reports.finding_page import SEVERITIES, Head, head_of
from workers.edits.fix import FILE, FINDINGS, PAGE
from workers.edits.proofs import Proof, proofs_of

INDEX = FINDINGS / PAGE
_BEGIN, _END = "<!-- findings -->\n", "\n<!-- /findings -->"


def table() -> Iterator[str]:
    """Yield the lines of the table, those that a client sees most of first."""
    proofs = proofs_of()
    yield "| finding | what a client sees | severity | area | versions | fix |"
    yield "|---|---|---|---|---|---|"
    heads = {page.parent.name: head_of(page.parent.name) for page in FINDINGS.glob(f"*/{PAGE}")}
    for name, head in sorted(heads.items(), key=lambda each: (SEVERITIES.index(each[1].severity), each[0])):
        cells = head.sees, head.severity, head.area, head.versions, _fix(name, head, proofs.get(name))
        yield f"| [{name}]({name}/{PAGE}) | {' | '.join(cells)} |"


def _fix(name: str, head: Head, proof: Proof | None) -> str:
    """Return what is known of the fix of a finding."""
    if not (FINDINGS / name / FILE).is_file():
        return "replaced (`workers/targets/vllm/inside/replacements.py`)" if head.severity == "CPU build" else "none"
    return "not tried" if proof is None else f"proved on {proof.version}" if proof.proves else "NOT PROVED"


def page(text: str) -> str:
    """Return the text of the page with a new table."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}" + "\n".join(table()) + f"{_END}{after}"


def main() -> int:
    """Write the page; return the exit code."""
    INDEX.write_text(page(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
