"""Triton kernels of vLLM compared with our ops, and with their definitions.

Every difference from our ops is on a list, with its reason. The kernels never differ from their definitions.
"""

from pathlib import Path

from benchmarks.conformance.vllm_kernels.__main__ import held_of, lines_of, rows_of, table_of
from benchmarks.conformance.vllm_kernels.differences import unlisted
from workers.targets.vllm.installation import HOME, ROOT


def test_vllm_kernels_differ_from_our_ops_only_as_listed() -> None:
    rows = rows_of(ROOT / HOME, "definition")
    assert unlisted(rows) == [], table_of(rows)


def test_kernel_definitions_write_the_same_bytes_as_their_kernels() -> None:
    held = held_of(ROOT / HOME, batches=1)
    assert len(held) > 30
    assert all(each.is_of_this and each.num_other == 0 for each in held), lines_of(held)
    assert all(each.num_same > each.num_broke_off for each in held), lines_of(held)


def test_edited_kernel_of_an_overlay_differs_from_its_definition(tmp_path: Path) -> None:
    name = "vllm/v1/worker/gpu/sample/min_p.py"
    (installed,) = (ROOT / HOME).glob("lib/python*/site-packages")
    text = (installed / name).read_text()
    changed = text.replace("tl.log(min_p)", "tl.log(min_p) + 1.0")
    assert changed != text
    for file, content in ((name, changed), ("vllm/__init__.py", (installed / "vllm/__init__.py").read_text())):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    held = held_of(ROOT / HOME, batches=1, tree=tmp_path)
    others = [
        (each.kernel.rpartition(".")[2], each.is_of_this) for each in held if each.num_other or not each.is_of_this
    ]
    assert others == [("_min_p_kernel", False)]
