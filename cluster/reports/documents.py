"""JSON documents by name, and the JSON Schema of each."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema

from cluster.dispatch.job import build
from cluster.dispatch.machine import Check
from cluster.reports.hunt_report import HuntDocument, NightDocument
from cluster.reports.report import RunDocument, ShrinkDocument
from cluster.statistics.fault_table import Document, MeasureDocument
from scenarios.generation.catalogue import situations_of
from scenarios.generation.weights import WEIGHTS
from scenarios.probes import PROBES
from scenarios.scenario_file import ScenarioFile
from scenarios.spec import Value
from workers.faults.registry import FAULTS
from workers.targets.devices import devices_with
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig


class FaultEntry(Value):
    """A historical bug that can be planted in the engine.

    `requires` has the required keys and values of the specification.
    """

    id: str
    source: str
    symptom: str
    trigger: str
    plane: str
    requires: dict[str, str | int]
    devices: tuple[str, ...]


class FaultsDocument(Value):
    """Faults that can be planted."""

    specstorm: str
    faults: tuple[FaultEntry, ...]


def faults_document(names: Sequence[str]) -> FaultsDocument:
    """Return the JSON document that lists some faults."""
    entries = []
    for fault in (FAULTS[name] for name in names):
        said = {key: getattr(fault, key) for key in ("id", "source", "symptom", "trigger", "plane")}
        entries.append(FaultEntry(**said, requires=dict(fault.requires), devices=devices_with(fault)))
    return FaultsDocument(specstorm=build(), faults=tuple(entries))


class ProbeEntry(Value):
    """A probe: its id, and the situations that it counts."""

    id: str
    meaning: str


class ProbesDocument(Value):
    """Probes that a scenario can expect."""

    specstorm: str
    probes: tuple[ProbeEntry, ...]


def probes_document() -> ProbesDocument:
    """Return the document of all probes."""
    entries = tuple(ProbeEntry(id=name, meaning=meaning) for name, meaning in PROBES.items())
    return ProbesDocument(specstorm=build(), probes=entries)


class SituationInfo(Value):
    """A situation of an engine: share of traces, requirements, and the bugs it is to reveal."""

    name: str
    weight: str
    area: str
    part_of: str
    requires: str
    finds: str


class SituationsDocument(Value):
    """Situations that traces of an engine can have."""

    specstorm: str
    engine: str
    situations: tuple[SituationInfo, ...]


def situations_document(config: RunConfig) -> SituationsDocument:
    """Return the document of the situations of an engine on a device."""
    known = situations_of(target_kind(config.engine).capabilities_under(config)).values()
    keys = ("name", "area", "part_of", "requires", "finds")
    entries = tuple(
        SituationInfo(weight=str(WEIGHTS[each.name]), **{key: getattr(each, key) for key in keys}) for each in known
    )
    return SituationsDocument(specstorm=build(), engine=config.engine, situations=entries)


class ValidEntry(Value):
    """One scenario file, and its first problem if it has one."""

    file: str
    problem: str | None


class ValidateDocument(Document):
    """Results of the command `validate`."""

    files: tuple[ValidEntry, ...]


class DoctorDocument(Document):
    """Checks of a machine's ability to run campaigns."""

    checks: tuple[Check, ...]


class ReleaseEntry(Value):
    """One release or commit of an engine, and whether it has a bug.

    `seen` is the observed failure, or the reason why the release was skipped.
    """

    version: str
    # The first line of a commit's message.
    subject: str = ""
    status: Literal["bad", "good", "skipped"]
    seen: str


class BisectDocument(Document):
    """First or last release with a bug; `between`: skipped releases next to the change."""

    file: str
    bug: str | None
    releases: tuple[ReleaseEntry, ...]
    first_bad: str | None
    last_good: str | None
    last_bad: str | None
    first_good: str | None
    between: tuple[str, ...]


class GateDocument(Document):
    """Results of a gate: changed functions, selected scenarios, scenarios' and hunt's results.

    `known` are findings that were left out. `judged` has the judged and required counts, `cut_short` a sentence if the
    time ended before. `never_ran` are the edited functions that ran neither in scenarios nor in traces.
    """

    against: str
    changed: tuple[str, ...]
    why: str
    run: RunDocument
    hunt: HuntDocument
    known: tuple[str, ...]
    cut_short: str
    judged: str
    never_ran: tuple[str, ...]


SCENARIO = "scenario"
# The document that each command prints with `--json`.
DOCUMENTS: dict[str, type[Value]] = {
    "run": RunDocument,
    "replay": RunDocument,
    "shrink": ShrinkDocument,
    "hunt": HuntDocument,
    "gate": GateDocument,
    "nightly": NightDocument,
    "validate": ValidateDocument,
    "probes-list": ProbesDocument,
    "situations-list": SituationsDocument,
    "faults-list": FaultsDocument,
    "faults-show": FaultsDocument,
    "faults-measure": MeasureDocument,
    "doctor": DoctorDocument,
    "bisect": BisectDocument,
}


def document_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document by name."""
    if name == SCENARIO:
        return scenario_schema()
    return _with_dialect(DOCUMENTS[name].model_json_schema(mode="serialization"))


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors.

    It has the codec's rules for single keys; only the codec checks rules over several keys.
    """
    schema = ScenarioFile.model_json_schema(mode="validation")
    schema["title"] = "Specstorm scenario"
    for definition in schema["$defs"].values():
        # The tag of an event has a default in the value, but a file must have it.
        if "do" in definition.get("properties", {}):
            definition["required"] = ["do", *definition.get("required", [])]
    properties = schema["properties"]
    properties["expect"]["propertyNames"] = {"enum": sorted(PROBES)}
    properties["faults"]["items"] = {"enum": sorted(FAULTS)}
    return _with_dialect(schema)


def _with_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
