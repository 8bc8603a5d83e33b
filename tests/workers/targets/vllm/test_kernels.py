"""vLLM's own Triton kernels beside the definitions of our ops: what differs is on a list, with its reason.

Beside the definitions that run in their place nothing differs.
"""

from benchmarks.conformance.vllm_kernels.__main__ import held_of, lines_of, rows_of, table_of
from benchmarks.conformance.vllm_kernels.differences import unlisted
from workers.targets.vllm.installation import HOME, ROOT


def test_vllm_kernels_differ_from_ours_in_what_is_listed_alone() -> None:
    rows = rows_of(ROOT / HOME, "definition")
    assert unlisted(rows) == [], table_of(rows)


def test_definitions_leave_the_bytes_that_their_kernels_leave() -> None:
    held = held_of(ROOT / HOME, batches=1)
    assert len(held) > 30
    assert all(each.is_of_this and each.num_other == 0 for each in held), lines_of(held)
    assert all(each.num_same > each.num_broke_off for each in held), lines_of(held)
