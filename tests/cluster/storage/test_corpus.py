"""Corpus of a hunt: its digest depends on the traces, and a snapshot is stored."""

from pathlib import Path

import pytest

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_BAD_INPUT, EXIT_FOUND
from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.seldom import keep_seldom_hit
from cluster.cli import main as cli
from cluster.dispatch.job import Answer, AnyJob, ShardJob
from cluster.storage.corpus import NO_CORPUS, PARENTS_PER_SHARD, Corpus, kept_corpus
from scenarios import codec
from scenarios.events import AcceptRate, PromptDraw, Schedule, Submit
from scenarios.generation.shards import TRACES_PER_SHARD
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.cluster.campaigns.hunt.fakes import Memory, canary_or, clean, run_through
from workers.record.verdict import Lost
from workers.run.shard import ShardReport, shard_traces

COUNTS = "vllm-38556-accepted-counts"


def submit(name: str, **fields: object) -> Submit:
    return Submit.model_validate({"tick": 0, "request": name, "prompt": (1, 2, 3), "max_tokens": 4, **fields})


def written(folder: Path, **traces: Trace) -> Path:
    folder.mkdir(exist_ok=True)
    for name, trace in traces.items():
        (folder / f"{name}.yaml").write_text(f"# {name}\n{codec.dumps(trace)}")
    return folder


def known(folder: Path, count: int = 5) -> Path:
    return written(folder, **{f"t{index}": Trace(events=(submit(f"a{index}"),)) for index in range(count)})


def test_corpus_depends_only_on_its_traces(tmp_path: Path) -> None:
    plain = Trace(events=(submit("a"),))
    said = plain.model_copy(update={"faults": (COUNTS,), "expect": {"admit": 1}})
    drawn = Trace(events=(submit("b", prompt=PromptDraw(tokens=5), accept=AcceptRate(rate=0.5)),), seed=3)
    one = Corpus.read([written(tmp_path / "one", x=plain, y=drawn)])
    other = Corpus.read([written(tmp_path / "two", a=drawn.explicit()), written(tmp_path / "three", b=said, c=plain)])
    assert one == other
    assert one.digest == other.digest
    assert len(one.traces) == 2
    assert Corpus.read([tmp_path / "two"]).digest not in ("", one.digest)
    assert NO_CORPUS.digest == ""


def test_a_trace_that_only_its_fault_makes_possible_is_left_out_and_counted(tmp_path: Path) -> None:
    deep = Trace(spec=EngineSpec(depth=3), events=(submit("a"),), faults=("specstorm-depth-3",))
    folder = written(tmp_path / "deep", deep=deep)
    with pytest.raises(codec.ScenarioError, match="without their faults"):
        Corpus.read([folder])
    assert Corpus.read([written(folder, plain=Trace(events=(submit("a"),)))]).num_left_out == 1


def test_corpus_traces_run_unchanged_once_and_then_varied(tmp_path: Path) -> None:
    corpus = Corpus.read([known(tmp_path / "known")])
    hunt = Hunt(HuntSettings(profile="labelled", corpus=corpus.digest), Memory(), Path("running"), None, corpus=corpus)
    shards = [task.job.shard for task in hunt.tasks(1, 5, True) if isinstance(task.job, ShardJob)]
    canary, *hunts = shards
    assert (canary.corpus, canary.parents) == ("", ())
    traces = [shard_traces(shard) for shard in hunts]
    first = [trace for row in traces for trace in row[:PARENTS_PER_SHARD]]
    assert first[:5] == list(corpus.traces)
    assert sum(trace in corpus.traces for trace in first[5:]) <= len(first[5:]) // 4
    for number, row in enumerate(traces):
        indexes = range(PARENTS_PER_SHARD, TRACES_PER_SHARD)
        fresh = [random_trace(number * TRACES_PER_SHARD + index).explicit() for index in indexes]
        assert row[PARENTS_PER_SHARD:] == fresh
    # A worker has the JSON of the job and nothing else.
    (job,) = [task.job for task in Hunt(hunt.settings, Memory(), Path("x"), None, corpus=corpus).tasks(1, 2, True)][1:]
    assert isinstance(job, ShardJob)
    assert shard_traces(ShardJob.model_validate_json(job.model_dump_json()).shard) == traces[0]
    assert hunt.jobs.trace(2 * TRACES_PER_SHARD + 1) == traces[2][1]


def test_another_corpus_is_another_key(tmp_path: Path) -> None:
    known(tmp_path / "known")
    keys = set()
    for count in (5, 4):
        corpus = Corpus.read([tmp_path / "known"])
        hunt = Hunt(
            HuntSettings(profile="labelled", corpus=corpus.digest), Memory(), Path("running"), None, corpus=corpus
        )
        keys.add(hunt.tasks(1, 2, True)[1].job.key)
        (tmp_path / "known" / f"t{count - 1}.yaml").unlink()
    assert len(keys) == 2


def run(*arguments: object) -> int:
    return cli.run([*map(str, arguments)])


def test_hunt_resumes_from_its_snapshot_and_refuses_another_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = known(tmp_path / "known", 2)
    hunt = ("hunt", "--traces", 2, "--ray", "off", "--out", tmp_path / "out")
    assert run(*hunt, "--corpus", folder) == EXIT_AGREED
    digest = Corpus.read([folder]).digest
    assert f"corpus {digest} of 2 traces: 3 of 12 traces begin from it" in capsys.readouterr().out
    (folder / "t0.yaml").unlink()
    assert kept_corpus(tmp_path / "out").digest == digest
    assert run(*hunt) == EXIT_AGREED
    capsys.readouterr()
    assert run(*hunt, "--corpus", folder) == EXIT_BAD_INPUT
    assert "was begun as" in capsys.readouterr().err
    (kept, _) = sorted((tmp_path / "out" / "snapshot" / digest).iterdir())
    assert kept.stat().st_mode & 0o222 == 0
    kept.unlink()
    assert run(*hunt) == EXIT_BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert "so they were edited" in line


def test_a_corpus_with_a_bad_file_is_reported_in_a_line_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = known(tmp_path / "known", 1)
    (folder / "bad.yaml").write_text("seed: 1\nevents:\n  - {tick: 0, do: abrot, request: a}\n")
    for corpus in (folder, tmp_path / "absent"):
        arguments = ("--traces", 12, "--ray", "off", "--out", tmp_path / "out", "--corpus", corpus)
        assert run("hunt", *arguments) == EXIT_BAD_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert str(corpus) in line
        assert corpus != folder or "bad.yaml:3: " in line
    assert not (tmp_path / "out").exists()


def test_a_known_trace_finds_its_bug_again_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    regression = Path("scenarios/regressions/vllm-39273-draftless-step.yaml")
    hunt = ("hunt", "--traces", 1, "--ray", "off", "--fault", "vllm-39273-draftless-step")
    assert run(*hunt, "--out", tmp_path, "--corpus", regression) == EXIT_FOUND
    assert "met by 1 trace, first by trace 0" in capsys.readouterr().out


def test_the_first_trace_of_each_rare_probe_is_kept_and_expects_to_hit_it_again(tmp_path: Path) -> None:
    hunt = Hunt(HuntSettings(profile="labelled", seed=4), Memory(), Path("running"), 10 * TRACES_PER_SHARD)

    def answer(job: AnyJob) -> Answer | Lost:
        assert isinstance(job, ShardJob)
        said = clean(job)
        assert isinstance(said, ShardReport)
        seldom = {3: {"gap": 5}, 7: {"gap": 1, "stall": 2}, 8: {"stall": 0}, 9: {"stall": 0}}.get(job.shard.number, {})
        probes = {**said.probes, **dict.fromkeys(seldom, 1)}
        return said.model_copy(update={"probes": probes, "firsts": {**said.firsts, **seldom}})

    run_through(hunt, canary_or(answer))
    written(tmp_path / "seldom", stall=Trace(events=(submit("a"),)))
    keep_seldom_hit(hunt, tmp_path)
    (kept,) = (tmp_path / "seldom").iterdir()
    trace = random_trace(4 << 32 | 3 * TRACES_PER_SHARD + 5).explicit()
    assert codec.load(kept) == trace.model_copy(update={"schedule": Schedule(), "expect": {"gap": 1}})
    assert "in 2 of 120 traces" in kept.read_text()
    assert hunt.totals.firsts == {"admit": 0, "gap": 41, "stall": 86}
