"""vLLM's own Triton kernels beside the definitions of our ops: what differs is on a list, with its reason."""

from benchmarks.conformance.vllm_kernels.__main__ import rows_of, table_of
from benchmarks.conformance.vllm_kernels.differences import unlisted
from workers.targets.vllm.installation import HOME, ROOT


def test_vllm_kernels_differ_from_ours_in_what_is_listed_alone() -> None:
    rows = rows_of(ROOT / HOME, "definition")
    assert unlisted(rows) == [], table_of(rows)
