"""The judge of ranks reports a rank with other model inputs than rank 0, or without a step."""

from typing import Any

import pytest

from scenarios.capabilities import Capabilities
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.history import History
from workers.judge.judge import Case, End
from workers.judge.rank_inputs import RankInputsJudge
from workers.oracle.model_values import ModelValueCache
from workers.record.engine_records import (
    EngineRecord,
    Inputs,
    InputsValues,
    Opened,
    OpenedValues,
    Processed,
    ProcessedValues,
    RankInputs,
    RankInputsValues,
    RankProcessed,
    RankProcessedValues,
    Scheduled,
    ScheduledValues,
)
from workers.targets.vllm.limits import SECOND_RUNNER

ROW = {
    "input_ids": [7, 8],
    "positions": [0, 1],
    "slots": [32, 33],
    "starts": [0, 2],
    "seq_lens": [2],
    "tables": [[1]],
    "drafts": [0],
}


def _end(*ranks: EngineRecord) -> End:
    plan = ScheduledValues(
        scheduled_computed=[0], planned_drafts=[0], begun=[(0, [7, 8])], blocks=[(0, [1])], states=[]
    )
    records: list[EngineRecord] = [
        Opened(step=-1, requests=(), values=OpenedValues(vocab_size=32, block_size=32, state_sizes=[])),
        Scheduled(step=0, requests=(0,), values=plan),
        Inputs(step=0, requests=(0,), values=InputsValues.model_validate(ROW)),
        *ranks,
    ]
    return End(1, {}, history=History.of(records))


def _rank(number: int, request: int = 0, **changed: Any) -> RankInputs:
    return RankInputs(
        step=0, requests=(request,), values=RankInputsValues.model_validate({**ROW, **changed, "rank": number})
    )


def test_equal_inputs_of_all_ranks_agree() -> None:
    judge, end = RankInputsJudge(3), _end(_rank(1), _rank(2))
    assert list(judge.differences(end)) == []
    assert judge.compared(end.history) == ("ranks",)


@pytest.mark.parametrize(
    ("changed", "variable", "expected", "actual"),
    [
        ({"input_ids": [7, 9]}, "rank_1_input_ids", (7, 8), (7, 9)),
        ({"positions": [1, 2]}, "rank_1_positions", (0, 1), (1, 2)),
        ({"slots": [32, 34]}, "rank_1_slots", (32, 33), (32, 34)),
        ({"seq_lens": [3]}, "rank_1_seq_len", 2, 3),
        ({"drafts": [1]}, "rank_1_num_drafts", 0, 1),
        ({"tables": [[2]]}, "rank_1_table", (1,), (2,)),
    ],
)
def test_other_inputs_of_a_rank_are_reported(
    changed: dict[str, Any], variable: str, expected: object, actual: object
) -> None:
    (found,) = RankInputsJudge(2).differences(_end(_rank(1, **changed)))
    assert (found.plane, found.variable, found.step, found.request) == ("ranks", variable, 0, "submit 0")
    assert (found.expected, found.actual) == (expected, actual)


@pytest.mark.parametrize(("sampled", "differs"), [([5, 6], False), ([5], True), ([5, 7], True)])
def test_other_sampled_tokens_of_a_rank_are_reported(sampled: list[int], differs: bool) -> None:
    processed = Processed(step=0, requests=(0,), values=ProcessedValues(sampled=[[5, 6]]))
    own = RankProcessed(step=0, requests=(0,), values=RankProcessedValues(sampled=[sampled], rank=1))
    found = list(RankInputsJudge(2).differences(_end(_rank(1), processed, own)))
    expected = ("rank_1_sampled", "submit 0", 0, (5, 6), tuple(sampled))
    assert [(each.variable, each.request, each.step, each.expected, each.actual) for each in found] == (
        [expected] if differs else []
    )


def test_other_request_in_a_row_is_reported() -> None:
    (found,) = RankInputsJudge(2).differences(_end(_rank(1, request=4)))
    assert (found.variable, found.expected, found.actual) == ("rank_1_request", 0, 4)


def test_rank_without_the_step_is_reported() -> None:
    (found,) = RankInputsJudge(3).differences(_end(_rank(1)))
    assert (found.variable, found.request) == ("rank_2_step", "")


@pytest.mark.parametrize(("num_ranks", "capabilities"), [(1, SECOND_RUNNER), (2, Capabilities())])
def test_judge_needs_several_ranks_and_engine_records(num_ranks: int, capabilities: Capabilities) -> None:
    trace = Trace(spec=EngineSpec(tensor_ranks=num_ranks), events=())
    assert RankInputsJudge.of(Case(trace, ModelValueCache(), capabilities, None)) is None
