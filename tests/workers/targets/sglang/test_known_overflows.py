"""Known overflows of SGLang are recognised by the memory and how near its end a request comes, and by nothing else."""

from collections.abc import Sequence

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Site, fact
from workers.record.observation import Observation
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, SGLANG

KIND = kind_of(SGLANG)
INDICES, ROW = "sglang_draft_indices_overflow", "sglang_row_overflow"
WHERE = Site(function="__call__", file="interpreter.py", line=1515)
# A context of 38 tokens.
END = 32


def stores(kernel: str) -> str:
    return f"InterpreterError: KernelError('{kernel} stores to byte 880 of 880 that it was given')"


DRAFTED, HELD = stores("generate_draft_decode_kv_indices"), stores("assign_req_to_token_pool")
LOST = "ValueError: pool memory leak detected! [full] total=128, available=125, evictable=0"


def trace_of(prompt: int = 3, **spec: object) -> Trace:
    keys = {"num_speculative_tokens": 5, "max_model_len": END, "block_size": 1, **spec}
    submit = Submit(tick=0, request="a", prompt=(1,) * prompt, max_tokens=END)
    return Trace(spec=EngineSpec.model_validate(keys), events=(submit,))


def plan(rows: Sequence[tuple[int, int]]) -> Sequence[Observation]:
    """Return a plan of rows: tokens computed, and drafts."""
    values = {"scheduled_computed": [row[0] for row in rows], "planned_drafts": [row[1] for row in rows]}
    return (Observation("scheduled", 9, tuple(range(len(rows))), values),)


def known(error: str, rows: Sequence[tuple[int, int]] = (), prompt: int = 3, **spec: object) -> str:
    return KIND.known_crash(error, WHERE, trace_of(prompt, **spec), DEFAULT_CONFIG, plan(rows))


def test_indices_of_drafts_behind_their_buffer_are_known_near_the_end_of_the_context() -> None:
    # All drafts kept there are 34 tokens, and five more are drafted; pages do not matter.
    assert known(DRAFTED, [(4, 5), (28, 5)]) == known(DRAFTED, [(28, 5)], block_size=16) == INDICES
    assert known(DRAFTED, [(27, 5)]) == ""
    # Neither of a prompt, nor another kernel, nor what is loaded.
    assert known(DRAFTED, [(28, 0)]) == ""
    assert known(stores("create_flashinfer_kv_indices_triton"), [(28, 5)]) == ""
    assert known(DRAFTED.replace("stores to", "loads from"), [(28, 5)]) == ""


@pytest.mark.parametrize("error", [HELD, LOST])
def test_slots_behind_a_row_are_known_where_a_tree_is_held_near_the_end_of_the_context(error: str) -> None:
    # A row has 38 + 4 + 6 slots; 20 are held.
    assert known(error, [(23, 5)], tree_width=2) == ROW
    assert known(error, [(22, 5)], tree_width=2) == ""
    # The first decode behind a prompt.
    assert known(error, [(0, 0)], prompt=29, tree_width=2) == ROW
    # Neither without a tree, nor in pages of several tokens, whose rows are wider, nor without drafts.
    assert known(error, [(28, 5)]) == ""
    assert known(error, [(23, 5)], tree_width=2, block_size=2) == ""
    assert known(error, [(28, 0)], prompt=29, num_speculative_tokens=0) == ""
    # So many drafts need no tree.
    assert known(error, [(28, 12)], num_speculative_tokens=12) == ROW


def test_slots_that_are_lost_are_known_where_a_row_is_too_short_for_what_is_held() -> None:
    found = Difference(plane="books", variable="leaks", step=9, expected=fact("none_held", what="slots"), actual=3)
    trace = trace_of(tree_width=2)
    assert KIND.known(found, trace, plan([(23, 5)])) == ROW
    assert KIND.known(found, trace, plan([(22, 5)])) == ""
    assert KIND.known(found.model_copy(update={"variable": "tables"}), trace, plan([(23, 5)])) == ""


def test_where_no_steps_were_asked_for_a_request_may_come_to_its_end() -> None:
    def of(error: str, max_tokens: int) -> str:
        submit = Submit(tick=0, request="a", prompt=(1, 2, 3), max_tokens=max_tokens)
        spec = EngineSpec(num_speculative_tokens=5, max_model_len=END, block_size=1, tree_width=2)
        return KIND.known_crash(error, WHERE, Trace(spec=spec, events=(submit,)), DEFAULT_CONFIG)

    assert (of(DRAFTED, END), of(HELD, END)) == (INDICES, ROW)
    assert (of(DRAFTED, 9), of(HELD, 9)) == ("", "")


def test_they_are_among_its_known_bugs() -> None:
    assert {INDICES, ROW} <= {bug.name for bug in KIND.known_bugs()}
