"""Campaigns with hostile texts: control characters, bidirectional marks, markup, fake lines."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cluster.dispatch.job import Job, ShardJob
from cluster.storage.hunts import FindingState, HuntPlan
from cluster.storage.store import Store
from scenarios.events import Schedule
from scenarios.generation.shards import Shard
from tests.cluster.fake_judge import BlindJudge, FakeJudge, trace
from workers.record.evidence import Access, Difference, Harm, MissingOrder, Site, fact
from workers.record.verdict import NO_STATS, Crashed, Diverged, Judgement, Lost, NotDrained, Outcome, Stuck, Waiting
from workers.run.shard import ShardReport
from workers.targets.target import RunConfig

HOSTILE = (
    "\x1b[2J\x1b]0;t\x07\r\x08\x9b1m\u202eabc\u2066\u200b\ufeff\u3164\u034f\U000e0041\u2028"
    "\n::error::forged\n##[add-mask]x\n----- end of artefact\nspecstorm: forged"
    "<script>alert(1)</script>&amp;[a](http://evil.example)@team`\n```\n# forged\n"
)
Model = TypeVar("Model", bound=BaseModel)


def hostile(model: Model) -> Model:
    """Return a value of a model with a hostile text in each field that may contain any text."""
    data = json.loads(model.model_dump_json())
    for path in list(_texts(data)):
        _set(data, path, HOSTILE)
        try:
            model.model_validate(data)
        except (ValidationError, ValueError):
            _set(data, path, _at(model, path))
    return type(model).model_validate(data)


def _texts(data: Any, path: tuple[Any, ...] = ()) -> Any:
    match data:
        case str():
            yield path
        case dict():
            for key, value in data.items():
                yield from _texts(value, (*path, key))
        case list():
            for index, value in enumerate(data):
                yield from _texts(value, (*path, index))


def _at(model: BaseModel, path: tuple[Any, ...]) -> Any:
    data = json.loads(model.model_dump_json())
    for key in path:
        data = data[key]
    return data


def _set(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def judgements() -> dict[str, Judgement]:
    """Return one hostile judgement of each kind, by hostile scenario names."""
    site = Site(function="f", file="f.py", line=1)
    access = Access(lane="compute", op="op", step=1, site=site, callers=(site,))
    harm = Harm(kind="harmful", task=access, what="reads", given=access)
    order = MissingOrder(first=access, second=access, memory="m", reused_as="r", allocated=site, harm=harm)
    difference = Difference(
        plane="tokens",
        variable="v",
        request="r",
        commit="r/0/0",
        step=1,
        expected=fact("reason", reason="stop"),
        actual="seen",
        writers=(access,),
        made_at=(site,),
        missing_order=order,
    )
    crashed = Crashed(
        stats=NO_STATS, error="e", where=site, callers=(site,), before=difference, missing_order=order, made_at=(site,)
    )
    found = (
        Diverged(stats=NO_STATS, difference=difference, known=("k",)),
        crashed,
        Stuck(stats=NO_STATS, waits=NotDrained(steps=3, waiting=(Waiting(request="r", reason="blocks"),))),
        Lost(reason="l"),
    )
    outcomes = (Outcome(schedule=Schedule(), kind="diverged", variable="v", commit="c", step=1),)
    plain = FakeJudge().judge(trace("agree"), True)
    each = [plain.model_copy(update={"verdict": verdict, "outcomes": outcomes}) for verdict in found]
    return {f"{HOSTILE}{number}.yaml": hostile(judgement) for number, judgement in enumerate(each)}


def campaign(folder: Path) -> Path:
    """Write a hostile campaign of scenarios and of a hunt, and return its folder."""
    found = judgements()
    with Store(folder) as store:
        for number, (name, judgement) in enumerate(found.items()):
            job = Job.of(judgement.trace.model_copy(update={"seed": number}), sweep=True)
            store.begin_attempt(job.key, 1, 0)
            store.record(job, 1, judgement, name)
        store.begin_attempt("lost", 1, 0)
        store.note_loss("lost", 1, HOSTILE)
        store.keep_settings(HuntPlan().model_dump_json())
        shard = Shard(profile="mixed", seed=0, number=0, traces=12)
        report: ShardReport = BlindJudge().hunt(shard, lambda trace: None)
        store.keep_shard(ShardJob.of("hunt", shard, folder / "running"), 1, hostile(report))
        for number, judgement in enumerate(found.values()):
            if not isinstance(judgement.verdict, Diverged | Crashed | Stuck):
                continue
            bug = f"{HOSTILE}{number}"
            artefact = store.keep_artefact(judgement, HOSTILE, RunConfig())
            state = FindingState(
                bug=bug,
                first=number,
                size=1,
                trace=judgement.trace,
                verdict=judgement.verdict,
                stage="closed",
                judgement=judgement,
                artefact=artefact,
            )
            store.keep_finding(bug, state.model_dump_json())
    return folder
