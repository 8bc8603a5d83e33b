"""The comparison of vLLM's kernels with ours, without vLLM: what is the same, and the list of what differs."""

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


def test_a_difference_that_is_not_listed_and_a_listed_one_that_is_none_are_told() -> None:
    assert unlisted(LISTED) == []
    (kernel, condition), *_ = KNOWN
    new = Row(kernel, "", "", counted([Found("", [1], [2])])[""])
    assert unlisted([*LISTED, new]) == [f"not on the list: {kernel}, in its domain: ours [1], vLLM's [2]"]
    same = [Row(kernel, "", condition, Count(num_same=1)), *LISTED[1:]]
    assert unlisted(same) == [f"on the list, and not seen: {kernel}, {condition}"]


@pytest.mark.parametrize(
    ("ours", "theirs", "tolerance", "is_same"),
    [
        (np.nan, np.nan, 0.0, True),
        ([-np.inf, 1.0], [-np.inf, 1.0], 0.0, True),
        ([1.0], [1.0, 2.0], 0.0, False),
        (1.0, 1.0 + 1e-6, 0.0, False),
        (1.0, 1.0 + 1e-6, 1e-5, True),
        ("a token that may come", "a token that cannot come", 0.0, False),
    ],
)
def test_values_are_the_same_to_the_bit_or_within_what_is_said(
    ours: object, theirs: object, tolerance: float, is_same: bool
) -> None:
    assert Found("", ours, theirs, tolerance).is_same is is_same


def test_what_a_kernel_is_not_given_is_counted_apart() -> None:
    count = counted([Found("", 1, None), Found("", 1, 1), Found("", 1, 2), Found("", 1, 3)])[""]
    assert (count.num_same, count.num_other, count.num_not_given, count.example) == (1, 2, 1, "ours 1, vLLM's 2")


def test_every_listed_difference_is_on_the_page_with_its_reason() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [known.reason for known in KNOWN.values() if known.reason not in text] == []


def test_without_triton_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/python", "installed"):
        (tmp_path / name).touch()
    with pytest.raises(DeviceError, match=f"Triton is not installed in {tmp_path}/triton; make vllm-kernels"):
        rows_of(tmp_path, "definition")
