"""Counting of equal values and unlisted differences in kernel comparisons, without vLLM."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.conformance.vllm_kernels.__main__ import rows_of
from benchmarks.conformance.vllm_kernels.comparison import Count, Found, counted
from benchmarks.conformance.vllm_kernels.differences import KNOWN, Row, unlisted
from workers.targets.target import DeviceError
from workers.targets.vllm.installation import ROOT

LISTED = [Row(kernel, "", condition, Count(num_other=1)) for kernel, condition in KNOWN]
PAGE = ROOT / "docs" / "results" / "vllm_kernels.md"


def test_unlisted_differences_and_unseen_list_entries_are_reported() -> None:
    assert unlisted(LISTED) == []
    (kernel, condition), *_ = KNOWN
    new = Row(kernel, "", "", counted([Found("", [1], [2])])[""])
    assert unlisted([*LISTED, new]) == [f"not listed: {kernel}, in its domain: ours [1], vLLM's [2]"]
    same = [Row(kernel, "", condition, Count(num_same=1)), *LISTED[1:]]
    assert unlisted(same) == [f"listed but not found: {kernel}, {condition}"]


@pytest.mark.parametrize(
    ("ours", "theirs", "tolerance", "is_same"),
    [
        (np.nan, np.nan, 0.0, True),
        ([-np.inf, 1.0], [-np.inf, 1.0], 0.0, True),
        ([1.0], [1.0, 2.0], 0.0, False),
        (1.0, 1.0 + 1e-6, 0.0, False),
        (1.0, 1.0 + 1e-6, 1e-5, True),
        ("a token that can follow", "a token that cannot follow", 0.0, False),
    ],
)
def test_found_compares_exactly_or_within_tolerance(
    ours: object, theirs: object, tolerance: float, is_same: bool
) -> None:
    assert Found("", ours, theirs, tolerance).is_same is is_same


def test_count_of_inputs_not_given_to_the_kernel() -> None:
    count = counted([Found("", 1, None), Found("", 1, 1), Found("", 1, 2), Found("", 1, 3)])[""]
    assert (count.num_same, count.num_other, count.num_not_given, count.example) == (1, 2, 1, "ours 1, vLLM's 2")


def test_page_has_the_reason_of_every_known_difference() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [known.reason for known in KNOWN.values() if known.reason not in text] == []


def test_missing_triton_is_reported_with_the_make_target(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/python", "installed"):
        (tmp_path / name).touch()
    with pytest.raises(DeviceError, match=f"Triton is not installed in {tmp_path}/triton; make vllm-kernels"):
        rows_of(tmp_path, "definition")
