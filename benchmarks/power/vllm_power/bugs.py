"""Collected bugs of vLLM of 2026: what a trace has that brings one into play, where that shows, and what is missing.

`bugs_2026.csv` has a row for each; `means.csv` says which of the means that bugs need there are. A bug of which nothing
is missing can be expressed: of it a row says on which engines, by what of a trace (keys of the specification and of its
transfer, events, features of a request), in which planes, and names scenarios and findings that have all of that.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from scenarios.capabilities import EVENTS, FEATURES, asks, lacking
from scenarios.codec import SUFFIX, load
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.judge import control_plane, drafter_inputs
from workers.judge.contracts import breach
from workers.targets.registry import kind_of
from workers.targets.vllm.installation import ROOT
from workers.targets.vllm.names import VLLM, VLLM_V1

FOLDER = Path(__file__).resolve().parent
ENGINES = (VLLM, VLLM_V1)
# Kinds of state that findings of a foreign engine are about: those it shows, those of judges, and of outputs and ends.
PLANES = (
    *kind_of(VLLM).capabilities.planes,
    *drafter_inputs.PLANES,
    control_plane.PLANE,
    breach.PLANE,
    *("tokens", "logits", "liveness", "crash"),
)
TRANSFER = "transfer"


class TableError(Exception):
    """A table is not what it must be; the message says where."""


class Bug(NamedTuple):
    """A collected bug: its number, class, what is wrong in a few words, the means it needs, and what expresses it.

    `trace` is what a trace has, `planes` where it shows, `evidence` files with such traces; all are empty of a bug that
    cannot be expressed.
    """

    number: int
    kind: str
    what: str
    means: tuple[str, ...]
    engines: tuple[str, ...]
    trace: tuple[str, ...]
    planes: tuple[str, ...]
    evidence: tuple[str, ...]


def _rows(name: str, folder: Path) -> Iterator[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, strict=True)


def means(folder: Path = FOLDER) -> dict[str, bool]:
    """Return whether there are the means that bugs need, by name.

    Raises:
        TableError: of one it is not said.
    """
    found = {row["means"]: row["state"] for row in _rows("means.csv", folder)}
    for name, state in found.items():
        if state not in ("has", "lacks"):
            raise TableError(f"means.csv: {name}: {state!r}; expected has or lacks")
    return {name: state == "has" for name, state in found.items()}


def descriptions(folder: Path = FOLDER) -> dict[str, str]:
    """Return what each of the means is, in a few words."""
    return {row["means"]: row["what"] for row in _rows("means.csv", folder)}


def bugs(folder: Path = FOLDER) -> list[Bug]:
    """Return the collected bugs of 2026 in a folder, by default those of vLLM."""
    return [
        Bug(
            int(row["number"]),
            row["class"],
            row["what"],
            tuple(filter(None, row["means"].split(";"))),
            tuple(filter(None, row["engines"].split(";"))),
            tuple(row["trace"].split()),
            tuple(filter(None, row["planes"].split(";"))),
            tuple(filter(None, row["evidence"].split(";"))),
        )
        for row in _rows("bugs_2026.csv", folder)
    ]


def missing(bug: Bug, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return what a bug needs and there is not."""
    there = means(folder)
    return tuple(each for each in bug.means if not there[each])


def check(bug: Bug, folder: Path = FOLDER, engines: Sequence[str] = ENGINES) -> None:
    """Check that a bug which can be expressed is, by what there is, and that no other one says so.

    Raises:
        TableError: it names an engine, a part of a trace, a plane or a file that there is not, or a scenario without
            what it names; none of its scenarios is one that an engine accepts; or it is not what its means say.
    """
    told = (bug.engines, bug.trace, bug.planes, bug.evidence)
    if missing(bug, folder):
        _demand(bug, not any(told), "something is missing, so nothing expresses it")
        return
    _demand(bug, all(told), "nothing is missing: engines, trace, planes and evidence are wanted")
    for part in bug.trace:
        _demand(bug, _is_part(part), f"{part!r} is no key of a specification or transfer, no event, and no feature")
    _demand(bug, set(bug.engines) <= set(engines), f"engines are {', '.join(engines)}")
    _demand(bug, set(bug.planes) <= set(PLANES), f"planes are {', '.join(PLANES)}")
    for path in bug.evidence:
        _demand(bug, (ROOT / path).is_file(), f"{path}: no such file")
    traces = {path: load(ROOT / path) for path in bug.evidence if path.endswith(SUFFIX)}
    for path, trace in traces.items():
        absent = [part for part in bug.trace if not has(trace, part)]
        _demand(bug, not absent, f"{path} lacks {', '.join(absent)}")
    for engine in bug.engines:
        capabilities = kind_of(engine).capabilities
        refused = [lacking(trace, capabilities) for trace in traces.values()]
        _demand(bug, None in refused, f"{engine} accepts none of its scenarios: {'; '.join(filter(None, refused))}")


def _demand(bug: Bug, holds: bool, why: str) -> None:
    if not holds:
        raise TableError(f"bugs_2026.csv: #{bug.number}: {why}")


def _is_part(part: str) -> bool:
    key = part.partition("=")[0]
    if key.startswith(f"{TRANSFER}."):
        return key.removeprefix(f"{TRANSFER}.") in Transfer.model_fields
    return key in EVENTS or key in FEATURES or key in EngineSpec.model_fields


def has(trace: Trace, part: str) -> bool:
    """Tell whether a trace has an event of a kind, a request with a feature, or a key with a value or with any."""
    key, _, text = part.partition("=")
    if key in EVENTS:
        return any(event.do == key for event in trace.events)
    if key in FEATURES:
        return any(asks(submit, key) for submit in trace.submits())
    owner: object = trace.spec
    if key.startswith(f"{TRANSFER}."):
        owner, key = trace.spec.transfer, key.removeprefix(f"{TRANSFER}.")
    seen = getattr(owner, key, None)
    return seen == yaml.safe_load(text) if text else bool(seen)
