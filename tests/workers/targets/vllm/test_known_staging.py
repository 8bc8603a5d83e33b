"""Crashes of staged memory are known by their place and the steps before, and what else ends the engine is new."""

import pytest

from scenarios.events import DummyStep, Schedule, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Site
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, VLLM, VLLM_V1

LAUNCHED = "in the task index_select of stream 0, launched at vllm/model_executor/layers/vocab_parallel_embedding.py:86"
NO_TOKEN = f"IndexError: index out of range in self ({LAUNCHED})"
OTHER_PLACE = NO_TOKEN.replace("vocab_parallel_embedding", "rotary_embedding")
THERE = Site(function="get_output", file="gpu_model_runner.py", line=324)
ROWS = "KernelError: _causal_conv1d_update_kernel: it uses value 1599 of 256 that it was given"
IN_TASK = Site(function="run", file="triton_tasks.py", line=261)
SHORT = "RuntimeError: The expanded size of the tensor (4) must match the existing size (2)"
IN_MODEL = Site(function="_drafts_convolved", file="hybrid.py", line=117)
LAZY, EAGER = Schedule(policy="lazy"), Schedule(policy="eager")
SUBMITS = (
    Submit(tick=0, request="a", prompt=(1,) * 12, max_tokens=2),
    Submit(tick=0, request="b", prompt=(1, 2, 3), max_tokens=8),
)


def plan(step: int, *requests: int, begun: tuple[tuple[int, int], ...] = ()) -> Observation:
    return Observation("scheduled", step, requests, {"begun": [(number, [1] * length) for number, length in begun]})


def inputs(step: int, *rows: tuple[int, int, int], drafts: tuple[int, ...] = (0, 0)) -> Observation:
    starts, positions = [0], list[int]()
    for _, first, stop in rows:
        positions += range(first, stop)
        starts.append(len(positions))
    values = {"drafts": list(drafts), "starts": starts, "positions": positions}
    return Observation("inputs", step, tuple(row[0] for row in rows), values)


BEGUN = plan(0, 0, 1, begun=((0, 12), (1, 3)))
CHUNK_AND_SAMPLE = inputs(0, (0, 0, 8), (1, 0, 3))
STEPS = (BEGUN, plan(1, 1), CHUNK_AND_SAMPLE)


def known_of_tokens(
    steps: tuple[Observation, ...] = STEPS,
    error: str = NO_TOKEN,
    schedule: Schedule = LAZY,
    engine: str = VLLM_V1,
    **spec: object,
) -> str:
    trace = Trace(spec=EngineSpec.model_validate(spec), events=SUBMITS, schedule=schedule)
    return kind_of(engine).known_crash(error, THERE, trace, DEFAULT_CONFIG, steps)


def test_a_backup_token_that_is_none_is_known_behind_a_step_whose_discarded_row_could_get_it() -> None:
    assert known_of_tokens() == "vllm_backup_tokens_staging"


@pytest.mark.parametrize(
    "steps",
    [
        (),
        # The host waits for counts of drafts.
        (BEGUN, plan(1, 1), inputs(0, (0, 0, 8), (1, 0, 3), drafts=(0, 3))),
        # No row is discarded, or none is sampled.
        (BEGUN, plan(1, 1), inputs(0, (0, 0, 12), (1, 0, 3))),
        (BEGUN, plan(1, 1), inputs(0, (0, 0, 8), (1, 0, 2))),
        # Nobody whose token is in flight is planned behind it.
        (BEGUN, plan(1, 0), CHUNK_AND_SAMPLE),
        (BEGUN, CHUNK_AND_SAMPLE),
    ],
)
def test_a_token_that_is_none_is_new_behind_any_other_step(steps: tuple[Observation, ...]) -> None:
    assert known_of_tokens(steps) == ""


def test_a_token_that_is_none_is_new_under_an_eager_device_without_a_drafter_and_elsewhere() -> None:
    assert known_of_tokens(schedule=EAGER) == known_of_tokens(error=OTHER_PLACE) == known_of_tokens(engine=VLLM) == ""
    assert known_of_tokens(drafter="ngram_gpu") == known_of_tokens(num_speculative_tokens=0) == ""
    assert known_of_tokens(depth=1) == ""


def known_of_rows(
    error: str = ROWS,
    where: Site = IN_TASK,
    steps: tuple[Observation, ...] = (BEGUN,),
    schedule: Schedule = LAZY,
    has_dummy_steps: bool = True,
    **changed: object,
) -> str:
    spec = EngineSpec.model_validate({"depth": 1, "graphs": "full_and_piecewise", "drafter": "ngram_gpu"} | changed)
    events = (DummyStep(tick=0), *SUBMITS) if has_dummy_steps else SUBMITS
    trace = Trace(spec=spec, events=events, schedule=schedule)
    return kind_of(VLLM_V1).known_crash(error, where, trace, DEFAULT_CONFIG, steps)


def test_rows_of_the_step_behind_a_dummy_step_are_known_in_both_kinds_of_recurrent_layers() -> None:
    assert known_of_rows() == known_of_rows(SHORT, IN_MODEL) == "vllm_dummy_step_inputs"


def test_rows_that_are_too_long_are_new_without_a_dummy_step_or_where_the_host_waits_for_one() -> None:
    assert known_of_rows(has_dummy_steps=False) == known_of_rows(schedule=EAGER) == known_of_rows(depth=2) == ""
    assert known_of_rows(graphs="piecewise") == known_of_rows(num_speculative_tokens=0) == ""
    # The step's own inputs are there, or nothing is planned.
    assert known_of_rows(steps=(BEGUN, CHUNK_AND_SAMPLE)) == known_of_rows(steps=()) == ""
    assert known_of_rows(SHORT) == known_of_rows("KernelError: _causal_conv1d_fwd_kernel: 1") == ""


def known_of_outputs(
    reference: Reference = Reference.SYNCHRONOUS,
    plane: str = "tokens",
    schedule: Schedule = LAZY,
    has_dummy_steps: bool = True,
    **changed: object,
) -> str:
    spec = EngineSpec.model_validate({"depth": 1, "graphs": "full", "num_speculative_tokens": 0} | changed)
    events = (DummyStep(tick=0), *SUBMITS) if has_dummy_steps else SUBMITS
    trace = Trace(spec=spec, events=events, schedule=schedule)
    found = Difference(plane=plane, variable="tokens", step=9, request="a", expected=1, actual=2, reference=reference)
    return kind_of(VLLM_V1).known(found, trace, (), DEFAULT_CONFIG)


def test_outputs_that_a_late_synchronous_engine_alone_gives_beside_a_dummy_step_are_known_of_states() -> None:
    assert known_of_outputs() == known_of_outputs(plane="logits", graphs="full_and_piecewise")
    assert known_of_outputs() == "vllm_dummy_step_inputs"


def test_outputs_are_new_that_an_eager_engine_gives_or_that_no_dummy_step_had_a_part_in() -> None:
    assert (
        known_of_outputs(schedule=EAGER) == known_of_outputs(has_dummy_steps=False) == known_of_outputs(depth=2) == ""
    )
    assert known_of_outputs(graphs="piecewise") == known_of_outputs(layers="attention") == ""
    assert known_of_outputs(Reference.ALONE) == known_of_outputs(plane="contracts") == ""
