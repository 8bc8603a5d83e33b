"""A campaign as the report page reads it: rates per process, shards counted once, merges."""

import json
from pathlib import Path

import pytest

from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.cli import main as cli
from cluster.dispatch.job import Role, ShardJob
from cluster.reports.page.campaign import Campaign, read_campaigns
from cluster.storage.merging import merge
from cluster.storage.store import Store
from scenarios.generation.shards import Shard
from scenarios.probes import PROBES
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from workers.run.shard import ShardReport
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, SPECSTORM, RunConfig
from workers.targets.vllm.names import VLLM


def report_of(traces: int, digest: str) -> ShardReport:
    """Return the report of a clean shard."""
    return ShardReport(
        traces=traces,
        runs=3 * traces,
        steps=30 * traces,
        commits=traces,
        captures=traces,
        reached=traces,
        lengths=(10,) * traces,
        digests=(digest,) * traces,
        probes={"admit": traces},
        firsts={"admit": 0},
        hits=(),
    )


def keep(store: Store, role: Role, number: int, traces: int, seed: int, digest: str = "") -> None:
    """Store a shard's report; its captures have the digest `digest`."""
    shard = Shard(profile="labelled", seed=seed, number=number, traces=traces, first=0 if traces > 1 else number)
    job = ShardJob.of(role, shard, Path("running"))
    store.begin_attempt(job.key, 1, 0)
    store.keep_shard(job, 1, report_of(traces, digest or f"seed {seed}"))


def hunt_of(folder: Path, seed: int, num_shards: int, config: RunConfig = DEFAULT_CONFIG) -> Path:
    """Write a hunt of shards without findings; the first shard was judged twice."""
    with Store(folder) as store:
        store.keep_settings(HuntSettings(seed=seed, config=config, canary="").plan().model_dump_json())
        for number in range(num_shards):
            keep(store, "hunt", number, 12, seed)
        if num_shards:
            keep(store, "again", 0, 12, seed)
    return folder


def read(folder: Path) -> Campaign:
    """Return the only campaign in a folder."""
    (campaign,) = read_campaigns(folder)
    return campaign


def test_rates_are_over_the_time_that_processes_wrote(tmp_path: Path) -> None:
    campaign = read(hunt_of(tmp_path, 1, 3))
    (process,) = campaign.processes
    seconds = process.run.seconds
    assert seconds is not None
    assert 0 < seconds < 60
    assert process.jobs == 4
    assert campaign.rates == {
        "traces a second": pytest.approx(36 / seconds),
        "steps a second": pytest.approx(1080 / seconds),
    }
    page = Page(page_of(tmp_path))
    assert process.run.command in [element.text for element in page.all("code")]


def test_a_night_has_the_rates_of_its_parts(tmp_path: Path) -> None:
    hunt_of(tmp_path, 1, 3)
    campaign_of(tmp_path / "regressions", {"a": judged("agree")})
    times = {"regressions": (20, 50), "hunt": (36, 12), "faults": (0, 3)}
    parts = {name: {"done": done, "seconds": seconds} for name, (done, seconds) in times.items()}
    (tmp_path / "report.json").write_text(json.dumps({"parts": parts}))
    night, regressions = read_campaigns(tmp_path)
    assert night.rates == {"traces a second": 3.0}
    assert regressions.rates == {"regressions a second": 0.4}
    assert (night.gaps, regressions.gaps) == ([], [])
    for broken in ("{", "[]", '{"parts": {"hunt": 3}}', '{"parts": {}, "regressions": [3]}'):
        (tmp_path / "report.json").write_text(broken)
        assert [campaign.parts for campaign in read_campaigns(tmp_path)] == [{}, {}]


def test_uncounted_probes_are_not_reported_as_never_hit(tmp_path: Path) -> None:
    hunted = read(hunt_of(tmp_path / "vllm", 1, 1, RunConfig(engine=VLLM)))
    counted = target_kind(VLLM).capabilities.probes
    assert sorted(hunted.probes_counted) == sorted(counted)
    assert sorted(hunted.probes_never_hit) == sorted(set(counted) - {"admit"})
    others = len(PROBES) - len(counted)
    assert f"{others} other probes are not counted in engine vllm." in page_of(tmp_path / "vllm")
    own = target_kind(SPECSTORM).capabilities.probes
    assert len(read(hunt_of(tmp_path / "ours", 1, 1)).probes_never_hit) == len(own) - 1
    with Store(tmp_path / "run", engine=VLLM):
        pass
    assert read(tmp_path / "run").engines == (VLLM,)


def test_a_process_that_was_killed_has_no_rate_and_its_campaign_is_not_judged_to_the_end(tmp_path: Path) -> None:
    campaign_of(tmp_path, {"a": judged("agree")})
    store = Store(tmp_path)
    keep(store, "hunt", 0, 12, 1)
    # As a kill leaves it: nothing is written at the end.
    store._close()
    campaign = read(tmp_path)
    assert [process.run.seconds is None for process in campaign.processes] == [False, True]
    assert [process.rate is None for process in campaign.processes] == [False, True]
    assert campaign.rates == {}
    assert campaign.gaps == ["its last run was killed, or has not ended yet"]
    assert "not said" in [element.text for element in Page(page_of(tmp_path)).all("td")]


def test_a_night_has_no_rate_since_its_time_is_shared(tmp_path: Path) -> None:
    campaign_of(hunt_of(tmp_path, 1, 1) / "regressions", {"a": judged("agree")})
    assert [bool(campaign.rates) for campaign in read_campaigns(tmp_path)] == [True, False]


def test_a_shard_that_was_split_counts_once(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.keep_settings(HuntSettings().plan().model_dump_json())
        keep(store, "hunt", 0, 1, 0)
        keep(store, "hunt", 0, 12, 0)
    campaign = read(tmp_path)
    assert campaign.hunt is not None
    assert campaign.hunt.tally.traces == 12


def test_shards_that_differ_when_judged_twice_are_a_gap(tmp_path: Path) -> None:
    folder = hunt_of(tmp_path, 1, 2)
    with Store(folder) as store:
        keep(store, "again", 1, 12, 1, "something else")
    campaign = read(folder)
    assert campaign.hunt is not None
    assert (campaign.hunt.judged_twice, campaign.hunt.mismatches) == (2, 1)
    assert campaign.exit_code == 3


def test_hunts_that_were_merged_are_counted_together(tmp_path: Path) -> None:
    parts = [hunt_of(tmp_path / str(seed), seed, 3) for seed in (1, 2)]
    merge(parts, tmp_path / "both")
    campaign = read(tmp_path / "both")
    assert campaign.hunt is not None
    assert sorted(plan.seed for plan in campaign.hunt.plans) == [1, 2]
    assert (campaign.hunt.tally.traces, campaign.hunt.judged_twice, campaign.hunt.mismatches) == (72, 2, 0)
    assert campaign.gaps == []


def test_values_of_another_version_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = hunt_of(tmp_path, 1, 1)
    with Store(folder) as store:
        store.keep_finding("0.0.1 a bug", '{"bug": "a bug", "colour": "red"}')
    assert cli.run(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    row = f"{folder}/campaign.sqlite: row '0.0.1 a bug' of findings"
    assert error.startswith(f"specstorm: {row} holds what this version cannot read: state: ")
    assert error.count("\n") == 1
