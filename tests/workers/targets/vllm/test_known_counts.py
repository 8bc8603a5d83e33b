"""Crashes of a row's count are known by their place and the plans before, and what else ends the engine is new."""

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Site
from workers.record.observation import Observation
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, VLLM, VLLM_V1

TOO_LONG = (
    "AssertionError: Sampled token IDs exceed the max model length. Total number of tokens: 41 > max_model_len: 40",
    Site(function="_bookkeeping_sync", file="gpu_model_runner.py", line=3574),
)
NO_ROOM = (
    "ValueError: could not broadcast input array from shape (4,) into shape (0,)",
    Site(function="update_req_spec_token_ids", file="gpu_input_batch.py", line=519),
)
PENALTY = SamplingParams(presence_penalty=1.0)


def plan(*rows: tuple[int, int, int]) -> Observation:
    values = {"scheduled_computed": [row[1] for row in rows], "planned_drafts": [row[2] for row in rows]}
    return Observation("scheduled", 9, tuple(row[0] for row in rows), values)


NEAR = plan((0, 38, 0), (1, 8, 3))


def known(
    crash: tuple[str, Site] = TOO_LONG,
    last: Observation = NEAR,
    beside: SamplingParams = PENALTY,
    engine: str = VLLM_V1,
    **spec: object,
) -> str:
    submits = (
        Submit(tick=0, request="a", prompt=(1,) * 28, max_tokens=12),
        Submit(tick=4, request="b", prompt=(1, 2, 3), max_tokens=20, params=beside),
    )
    of = EngineSpec.model_validate({"max_model_len": 40, "num_speculative_tokens": 3, **spec})
    return kind_of(engine).known_crash(*crash, Trace(spec=of, events=submits), DEFAULT_CONFIG, (last,))


def test_a_row_that_counts_rejected_drafts_is_known_where_its_plan_has_room() -> None:
    assert known() == known(NO_ROOM, plan((0, 35, 3), (1, 8, 3))) == "vllm_optimistic_rows"
    # The plan itself is too long, or nobody is near the end.
    assert not known(last=plan((0, 39, 0), (1, 8, 3)))
    assert not known(last=plan((0, 30, 3), (1, 8, 3)))


def test_it_is_known_beside_drafts_in_flight_and_a_request_that_needs_output_tokens_alone() -> None:
    assert not known(beside=SamplingParams())
    assert known(beside=SamplingParams(bad_words=((5,),)))
    # Who needs them has left.
    assert not known(last=plan((0, 38, 0)))
    assert not known(depth=1)
    assert not known(num_speculative_tokens=0)
    assert not known(engine=VLLM)


def test_another_crash_or_another_place_is_new() -> None:
    assert not known(("AssertionError: ", TOO_LONG[1]))
    assert not known((TOO_LONG[0], NO_ROOM[1]))
    assert not known((NO_ROOM[0], TOO_LONG[1]))
