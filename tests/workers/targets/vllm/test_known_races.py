"""Known races of vLLM: each by its runner, both sides, the memory that they use, and the traces that meet it."""

from pathlib import Path
from typing import Literal

import pytest

from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import HOST, Access, MissingOrder, Site
from workers.targets.vllm.known_races import KNOWN_RACES, is_known_race
from workers.targets.vllm.target import Vllm, VllmV1

STATES = "runner.sampler.sampling_states"
PROPOSER = Site(function="propose", file="vllm/v1/spec_decode/llm_base_proposer.py", line=1078)
STAGED = "runner.drafter.backup_next_token_ids.cpu"


def race(
    first: str,
    second: str,
    memory: str,
    allocated: Site | None = None,
    reused_as: str = "",
    op: str = "copy",
    how: Literal["read", "write"] = "write",
) -> MissingOrder:
    sides = [Access(lane="stream", op=op, step=1, how=how, site=Site(function=each)) for each in (first, second)]
    return MissingOrder(first=sides[0], second=sides[1], memory=memory, allocated=allocated, reused_as=reused_as)


@pytest.mark.parametrize(
    ("order", "known"),
    [
        (race("copy_to_gpu", "prepare_next_token_ids_padded", STAGED), ["v1"]),
        (race("copy_to_gpu", "prepare_next_token_ids_padded", "runner.input_ids.cpu"), []),
        (race("copy_to_gpu", "_prepare_inputs", STAGED), []),
        (race("_copy_valid_sampled_token_count", "forward", "a buffer", PROPOSER, "another"), ["v1"]),
        (race("_copy_valid_sampled_token_count", "forward", "a buffer", PROPOSER), []),
        (race("_copy_request_inputs", "copy_to_uva", f"{STATES}.seeds.pool._uva_bufs.cpu"), ["v2"]),
        (race("_copy_request_inputs", "copy_to_uva", f"{STATES}.top_k.pool._uva_bufs.cpu"), []),
        # The host reads what is still being copied.
        (race("_copy_valid_sampled_token_count", "_get_valid_sampled_token_count", "runner.counts_cpu"), []),
        (race("forward", "_copy", "drafter.caches[0]", op="load_blocks"), ["v2"]),
        (race("do_kv_cache_update", "copy", "drafter.caches[0]", op="load_blocks"), ["v2"]),
        (race("run_fused_postprocess_align", "_copy", "drafter.caches[0]", op="load_blocks"), ["v2"]),
        (race("run_fused_postprocess_align", "_copy", "runner.kv_caches[0]", op="load_blocks"), ["v2"]),
        # So is one in a producer, but none between what it writes and what its consumer reads.
        (race("copy_to_gpu", "prepare_next_token_ids_padded", f"producer.{STAGED}"), ["v1"]),
        (race("forward", "_copy", "producer.drafter.caches[0]", op="load_blocks", how="read"), []),
        # The target's kernels are done with a block once it is given back.
        (race("forward", "_copy", "runner.kv_caches[1]", op="load_blocks"), []),
        (race("forward", "copy", "runner.kv_caches[1]", op="load_blocks"), []),
        (race("forward", "_copy", "drafter.caches[0]", op="store_blocks"), []),
        (race("forward", "copy", "drafter.caches[0]", op="store_blocks"), []),
    ],
)
def test_a_race_is_known_by_its_runner_both_sides_and_the_memory(order: MissingOrder, known: list[str]) -> None:
    assert [runner for runner in KNOWN_RACES if is_known_race(order, Trace(events=()), runner)] == known


@pytest.mark.parametrize(
    ("depth", "by", "memory", "lane", "is_known"),
    [
        (1, "_dummy_run", "runner.query_start_loc.cpu", HOST, True),
        (1, "_dummy_run", "runner.optimistic_seq_lens_cpu", HOST, True),
        # With asynchronous scheduling there is an event for it.
        (2, "_dummy_run", "runner.query_start_loc.cpu", HOST, False),
        (1, "_prepare_inputs", "runner.query_start_loc.cpu", HOST, False),
        (1, "_dummy_run", "runner.kv_caches[0]", HOST, False),
        (1, "_dummy_run", "runner.query_start_loc.cpu", "stream 0", False),
    ],
)
def test_inputs_of_dummy_steps_race_where_scheduling_is_synchronous(
    depth: int, by: str, memory: str, lane: str, is_known: bool
) -> None:
    copies = Access(
        lane="stream 0",
        op="copy_h2d",
        step=0,
        how="read",
        site=Site(function="copy_to_gpu", file="vllm/v1/utils.py", line=143),
        callers=(Site(function=by),),
    )
    writes = Access(lane=lane, op="host", step=1, how="write", site=Site(function="append_row"))
    order = MissingOrder(first=copies, second=writes, memory=memory)
    trace = Trace(spec=EngineSpec(depth=depth), events=())
    assert VllmV1().is_known(order, trace) is is_known
    assert not Vllm().is_known(order, trace)


def test_every_known_race_has_its_page() -> None:
    folder = Path(__file__).resolve().parents[4] / "findings"
    assert all((folder / race.page / "README.md").is_file() for races in KNOWN_RACES.values() for race in races)
