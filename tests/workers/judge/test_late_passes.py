"""Late passes of a drafter: what they write lies there for whoever runs behind them, and for nobody before."""

import pytest

from tests.workers.judge.test_drafter_identities import PROMPT, judge_of, slots
from workers.judge.judge import End
from workers.record.observation import Observation


@pytest.mark.parametrize("is_late", [True, False])
def test_a_pass_that_runs_behind_a_later_step_writes_behind_it(is_late: bool) -> None:
    # The chunk of request 1 is computed in block 5, which request 0 is given for its drafts once nobody holds it.
    prompts = [(0, PROMPT), (1, [1, 2, 3, 4, 15, 16])]
    plan = {"planned_drafts": [0, 0], "follows": True}
    both = {"scheduled_computed": [0, 0], "begun": prompts, "blocks": [(0, [7, 8]), (1, [5])]}
    rest = {"scheduled_computed": [4], "begun": [], "blocks": [(1, [5, 6]), (0, [7, 8])], "planned_drafts": [0]}
    chunk = {"positions": [4, 5], "slots": slots([4, 5], (5, 6)), "starts": [0, 2], "seq_lens": [6]}
    first = {
        "positions": [0, 1, 2, 3, 4, 0, 1, 2, 3],
        "slots": [*slots([0, 1, 2, 3, 4], (7, 8)), *slots([0, 1, 2, 3], (5,))],
        "starts": [0, 5, 9],
        "seq_lens": [5, 4],
    }
    further = Observation(
        "drafting",
        0,
        (0,),
        {
            "index": 1,
            "input_ids": [20],
            "positions": [5],
            "slots": slots([5], (7, 5)),
            "starts": [0, 1],
            "seq_lens": [6],
            "bounds": [],
            "tables": [[7, 5]],
            "blocks": [(0, [7, 5])],
            "behind": int(is_late),
        },
    )
    seen = [
        Observation("scheduled", 0, (0, 1), {**plan, **both}),
        Observation("inputs", 0, (0, 1), {"drafts": [0, 0], "input_ids": [*PROMPT, 1, 2, 3, 4], **first}),
        Observation(
            "drafting",
            0,
            (0, 1),
            {"index": 0, "input_ids": [2, 3, 4, 5, 6, 2, 3, 4, 15], "tables": [[7, 8], [5]], "bounds": [], **first},
        ),
        Observation("scheduled", 1, (1,), {**plan, **rest}),
        Observation("inputs", 1, (1,), {"drafts": [0], "input_ids": [15, 16], **chunk}),
        Observation("drafting", 1, (1,), {"index": 0, "input_ids": [16, 9], "tables": [[5, 6]], "bounds": [], **chunk}),
        Observation("processed", 0, (0, 1), {"sampled": [[6], []]}),
        Observation("processed", 1, (1,), {"sampled": [[9]]}),
        Observation("proposed", 0, (0,), {"proposed": [[20, 21]]}),
    ]
    judge = judge_of([])
    judge.see_log([*seen, further])
    found = judge.at_end(End(2, {}))
    assert (found is None) == is_late
    assert found is None or (found.variable, found.request, found.position) == ("draft_cache", "submit 1", 1)
