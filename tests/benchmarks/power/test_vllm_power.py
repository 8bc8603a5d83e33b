from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.power.reversals import runs
from benchmarks.power.reversals.command import options_of, sampled, tasks_of, unexpected
from benchmarks.power.reversals.runs import Results, UsageError
from benchmarks.power.reversals.table import TableError
from benchmarks.power.reversals.trial import Found, Result, Task, drawn, nearness
from benchmarks.power.vllm_power.__main__ import SUITE
from benchmarks.power.vllm_power.reversals import ENGINES, Reversal, all_reversals
from scenarios.generation.shards import Shard
from workers.edits.edit import Edit
from workers.record.evidence import Site
from workers.run.shard import shard_traces
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM_V1


def test_table_is_valid_and_covers_ten_classes() -> None:
    reversals = all_reversals()
    assert len(reversals) >= 60
    assert len({each.kind for each in reversals}) >= 10
    assert all(len(of_kind) >= 4 for of_kind in by_kind(reversals).values())
    assert all(not each.title.endswith(".") and each.title[0].islower() for each in reversals)
    assert {runner for each in reversals for runner in each.runners} == set(ENGINES)


def by_kind(reversals: Sequence[Reversal]) -> dict[str, list[Reversal]]:
    found: dict[str, list[Reversal]] = {}
    for each in reversals:
        found.setdefault(each.kind, []).append(each)
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- id: vllm-1-a\n", "vllm-1-a: .*Field required"),
        ("a: 1\n", "expected a list of reversals"),
        (
            "- id: vllm-1-a\n  title: t\n  runners: [v1]\n  plane: p\n  edits:\n    - at: vllm.a:f\n      find: a\n",
            "find needs put",
        ),
    ],
)
def test_invalid_reversal_file_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(text)
    with pytest.raises(TableError, match=why):
        all_reversals(tmp_path)


@pytest.mark.parametrize(
    ("site", "near"),
    [
        (Site(function="Scheduler.schedule", file="vllm/v1/core/sched/scheduler.py"), "function"),
        (Site(function="schedule", file="scheduler.py"), "function"),
        (Site(function="update_from_output", file="scheduler.py"), "file"),
        (Site(function="schedule", file="async_scheduler.py"), "elsewhere"),
        (None, "nowhere"),
    ],
)
def test_nearness_follows_the_reported_source_locations(site: Site | None, near: str) -> None:
    edits = [Edit(at="vllm.v1.core.sched.scheduler:Scheduler.schedule", find="a", put="b")]
    assert nearness([site] if site else [], edits) == near


def test_trials_run_hunt_traces_in_order() -> None:
    config = RunConfig(engine=VLLM_V1)
    hunted = [
        trace for number in range(2) for trace in shard_traces(Shard(profile="mixed", seed=5, number=number), config)
    ]
    named = [trace for _, trace in zip(hunted, drawn(VLLM_V1, 5), strict=False)]
    assert [trace for _, trace in named] == hunted


def test_larger_sample_of_reversals_extends_smaller_sample() -> None:
    reversals = all_reversals()
    assert sampled(reversals, 3, 1) == sampled(reversals, 9, 1)[:3]
    assert sampled(reversals, 9, 1) != sampled(reversals, 9, 2)
    assert sampled(reversals, None, 1) == list(reversals)


def test_reversal_runs_on_engines_that_contain_its_code() -> None:
    both = next(each for each in all_reversals() if each.runners == ("v1", "v2"))
    engines = {
        name: [task.engine for task in tasks_of(SUITE, [both], options_of(SUITE, ["--engine", name]))]
        for name in CHOICES
    }
    assert engines == {"first": [ENGINES["v1"]], "each": list(ENGINES.values()), ENGINES["v2"]: [ENGINES["v2"]]}
    second = both.model_copy(update={"runners": ("v2",)})
    assert tasks_of(SUITE, [second], options_of(SUITE, ["--engine", ENGINES["v1"]])) == []


CHOICES = ("first", "each", ENGINES["v2"])
TASK = Task("vllm-1-a", (Edit(at="vllm.a:f", find="a", put="b"),), VLLM_V1)


def result(found: bool = True, refused: str = "") -> Result:
    what = Found(bug="b", plane="p", sites=(), nearness="nowhere", trace="t") if found else None
    return Result(
        key=TASK.key, id=TASK.id, engine=VLLM_V1, source="drawn", traces=1, seconds=2.0, found=what, refused=refused
    )


def test_results_resume_and_drop_a_truncated_last_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(result())
    with file.open("a") as opened:
        opened.write('{"key": "half')
    kept = Results(file)
    assert kept.by_key == {TASK.key: result()}
    assert file.read_text().endswith("}\n")
    file.write_text("no\n")
    with pytest.raises(UsageError, match="line 1"):
        Results(file)


def test_trial_key_depends_on_edits() -> None:
    other = TASK._replace(edits=(Edit(at="vllm.a:f", find="a", put="c"),))
    assert len({TASK.key, other.key, TASK._replace(seed=1).key, TASK._replace(minutes=1.0).key}) == 4


def test_missed_reversals_must_be_listed_and_refused_never() -> None:
    base = all_reversals()[0].model_copy(update={"id": TASK.id, "missed": ""})
    listed = base.model_copy(update={"missed": "a reason"})
    assert unexpected([result()], [base]) == []
    assert unexpected([result(found=False)], [base]) != []
    assert unexpected([result(found=False)], [listed]) == []
    assert unexpected([result(found=False, refused="it cannot begin")], [listed]) != []


def test_undetectable_reversals_are_expected_to_be_missed() -> None:
    reversal = all_reversals()[0].model_copy(update={"missed": "", "needs": ("hybrid", "prefix_cache")})
    assert reversal.expected_missed == ""
    assert reversal.model_copy(update={"needs": ("hybrid", "offloading")}).expected_missed
    assert reversal.model_copy(update={"needs": ("hybrid", "drafter")}).expected_missed == ""
    assert reversal.model_copy(update={"missed": "why"}).expected_missed == "why"


def test_raising_trial_is_refused_and_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    (result,) = runs.run(
        [Task("vllm-1-x", (Edit(at="package.module:none", find="a", put="b"),), VLLM_V1)], 1, 1, Results(file)
    )
    assert result.refused
    assert not file.exists()
