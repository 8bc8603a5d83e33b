"""Results as JSON lines, one object per line, for programs that do not read SQLite."""

import json
from collections.abc import Iterator
from pathlib import Path

from cluster.dispatch.inside import writing_inside
from cluster.storage.campaign import Contents
from cluster.storage.errors import storing
from scenarios.visible import visible_json

RESULTS = "results.jsonl"


def result_lines(contents: Contents) -> Iterator[str]:
    """Yield the runs, results, shards, trials and findings of a campaign as JSON lines.

    The `kind` of a line is run, judgement, shard, trial or finding.
    """
    for run in contents.runs():
        yield f'{{"kind":"run","run":{run.model_dump_json()}}}'
    for result in contents.results():
        head = {
            "kind": "judgement",
            "job": result.job,
            "scenario": result.scenario,
            "attempt": result.attempt,
            "artefact": result.artefact,
        }
        yield f'{json.dumps(head)[:-1]}, "judgement":{result.judgement.model_dump_json()}}}'
    for shard in contents.shards():
        head = {"kind": "shard", "job": shard.job, "role": shard.role, "number": shard.number}
        yield f'{json.dumps(head)[:-1]}, "report":{shard.report.model_dump_json()}}}'
    for trial in contents.trials():
        yield f'{{"kind":"trial","trial":{trial.model_dump_json()}}}'
    for bug, state in contents.findings():
        yield f'{{"kind":"finding","bug":{json.dumps(bug)},"state":{state}}}'


def write_lines(contents: Contents, path: Path) -> None:
    """Write the results of a campaign as JSON lines, as a complete file or not at all."""
    with storing(path), writing_inside(path.parent, path.name, is_durable=False) as file:
        for line in map(visible_json, result_lines(contents)):
            assert "\n" not in line, "a line of results is one line"
            file.write(f"{line}\n".encode())
