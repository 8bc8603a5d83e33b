"""Jobs and results of the benchmark that compares ranks in processes with one rank; without an engine."""

import pytest

from benchmarks.conformance.rank_processes import FINDINGS, OF_ONE_RANK, OF_RANKS, WAYS, jobs, result_of
from scenarios.capabilities import lacking
from workers.record.evidence import Site
from workers.record.verdict import NO_STATS, Agreed, Crashed
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM

ON_A_GPU = target_kind(VLLM).capabilities_under(RunConfig(engine=VLLM, device="cuda"))


@pytest.mark.parametrize("way", WAYS)
def test_each_job_has_several_ranks_and_runs_on_gpus(way: str) -> None:
    assert jobs()
    for job in jobs():
        trace = job.trace().model_copy(update={"schedule": WAYS[way]})
        assert trace.spec.num_ranks > 1
        assert lacking(trace, ON_A_GPU) is None


def test_each_finding_runs_without_and_with_its_fix() -> None:
    found = [(job.name, job.fixes) for job in jobs() if job.is_finding]
    assert found == [(name, fixes) for name in FINDINGS for fixes in ("", name)]
    assert len(jobs()) == len(OF_RANKS) + len(OF_ONE_RANK) + len(found)
    assert [job.name for job in jobs(["batch"])] == ["batch"]


def test_result_of_a_finding_names_its_error_in_one_line() -> None:
    where = Site(function="load", file="llama_eagle.py", line=157)
    crashed = Crashed(stats=NO_STATS, error="rank 1: ValueError: twice\nand more", where=where)
    assert result_of(crashed) == (
        "CRASHED: the engine ends in load in llama_eagle.py:157: rank 1: ValueError: twice and more"
    )
    assert result_of(Agreed(stats=NO_STATS)) == "tokens equal"
