"""Collected vLLM bugs of 2026: trace that triggers each, plane, missing features.

`bugs_2026.csv` has a row for each bug; `means.csv` says which of the features that bugs need exist. A bug without a
missing feature can be expressed: its row lists engines, trace properties (keys of the specification and of its
transfer, events, request features), planes, and scenarios and findings that have all of these properties.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from scenarios.capabilities import EVENTS, FEATURES, lacking, uses_feature
from scenarios.codec import SUFFIX, load
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.judge import control_plane, drafter_inputs
from workers.judge.contracts import breach
from workers.targets.registry import target_kind
from workers.targets.vllm.installation import ROOT
from workers.targets.vllm.names import VLLM, VLLM_V1

FOLDER = Path(__file__).resolve().parent
ENGINES = (VLLM, VLLM_V1)
# Planes of findings in a foreign engine: of its observations, of its judges, and of outputs and exits.
PLANES = (
    *target_kind(VLLM).capabilities.planes,
    *drafter_inputs.PLANES,
    control_plane.PLANE,
    breach.PLANE,
    *("tokens", "logits", "liveness", "crash"),
)
TRANSFER = "transfer"


class TableError(Exception):
    """A table of collected bugs or features is invalid; the message says where."""


class Bug(NamedTuple):
    """A collected bug: number, class, description, features it needs, scenarios that show it.

    `trace` are properties of a trace, `planes` the planes where it shows, `evidence` files with such traces; all are
    empty for a bug that cannot be expressed.
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
    """Return whether the project has each feature that a bug needs, by feature name.

    Raises:
        TableError: a state is neither "has" nor "lacks".
    """
    found = {row["means"]: row["state"] for row in _rows("means.csv", folder)}
    for name, state in found.items():
        if state not in ("has", "lacks"):
            raise TableError(f"means.csv: {name}: {state!r}; expected has or lacks")
    return {name: state == "has" for name, state in found.items()}


def descriptions(folder: Path = FOLDER) -> dict[str, str]:
    """Return a short description of each feature, by feature name."""
    return {row["means"]: row["what"] for row in _rows("means.csv", folder)}


def bugs(folder: Path = FOLDER) -> list[Bug]:
    """Read the bugs reported upstream in the year 2026 from a folder; default: vLLM's bugs."""
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


def missing_features(bug: Bug, folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the features that a trace of this bug needs and the project lacks."""
    existing = means(folder)
    return tuple(each for each in bug.means if not existing[each])


def check(bug: Bug, folder: Path = FOLDER, engines: Sequence[str] = ENGINES) -> None:
    """Check a collected bug's row: known engines and planes, existing scenarios, features.

    Raises:
        TableError: the row names an unknown engine, trace property, plane or file, or a scenario without a named
            property; an engine accepts none of its scenarios; or its cells contradict the missing features.
    """
    expressed_by = (bug.engines, bug.trace, bug.planes, bug.evidence)
    if missing_features(bug, folder):
        _demand(bug, not any(expressed_by), "a feature is missing: engines, trace, planes and evidence must be empty")
        return
    _demand(bug, all(expressed_by), "no feature is missing: engines, trace, planes and evidence are required")
    for part in bug.trace:
        _demand(bug, _is_part(part), f"{part!r} is no key of a specification or transfer, no event, no request feature")
    _demand(bug, set(bug.engines) <= set(engines), f"allowed engines: {', '.join(engines)}")
    _demand(bug, set(bug.planes) <= set(PLANES), f"allowed planes: {', '.join(PLANES)}")
    for path in bug.evidence:
        _demand(bug, (ROOT / path).is_file(), f"{path}: file not found")
    traces = {path: load(ROOT / path) for path in bug.evidence if path.endswith(SUFFIX)}
    for path, trace in traces.items():
        absent = [part for part in bug.trace if not has(trace, part)]
        _demand(bug, not absent, f"{path} lacks {', '.join(absent)}")
    for engine in bug.engines:
        capabilities = target_kind(engine).capabilities
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
    """Return whether a trace has an event, a request feature, or `key=value` in its spec."""
    key, _, text = part.partition("=")
    if key in EVENTS:
        return any(event.do == key for event in trace.events)
    if key in FEATURES:
        return any(uses_feature(submit, key) for submit in trace.submits())
    owner: object = trace.spec
    if key.startswith(f"{TRANSFER}."):
        owner, key = trace.spec.transfer, key.removeprefix(f"{TRANSFER}.")
    seen = getattr(owner, key, None)
    return seen == yaml.safe_load(text) if text else bool(seen)
