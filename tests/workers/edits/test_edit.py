"""Edits of sources: replaced, removed and inserted code, and the equivalent patch."""

import ast
from pathlib import Path

import pytest

from workers.edits.edit import Edit, EditError, apply_replacements, edited_tree
from workers.edits.patch import diff, patched_source
from workers.edits.tree import overlay

MODULE = '''
def outer(items):
    total = 0
    for item in items:
        if (
            item > 0
            and item < 9
        ):
            total += item
    for item in items:
        total += 1
    return total


class Box:
    def size(self):
        """Say how large it is."""

        def inner():
            return (1 +
                    2)

        return inner() * 2
'''


def run(text: str, call: str) -> object:
    names: dict[str, object] = {}
    exec(compile(ast.parse(text), "module", "exec"), names)
    return eval(call, names)


def edit(function: str, find: str = "", put: str = "", *, without: str = "", within: str = "") -> Edit:
    return Edit(at=f"package.module:{function}", find=find, put=put, without=without, within=within)


@pytest.mark.parametrize(
    ("change", "call", "result"),
    [
        (edit("outer", "item > 0 and item < 9", "item > 5"), "outer([1, 7, 30])", 7 + 30 + 3),
        (edit("outer", without="if item > 0 and item < 9"), "outer([1, 7, 30])", 3),
        (edit("outer", without="total += 1"), "outer([1, 7, 30])", 8),
        (edit("outer", "total = 0", "total = 100"), "outer([1])", 102),
        (edit("Box.size.inner", "1 + 2", "5"), "Box().size()", 10),
        (edit("Box.size", "inner() * 2", "inner()"), "Box().size()", 3),
    ],
)
def test_edit_changes_the_named_part_and_moves_no_line(change: Edit, call: str, result: int) -> None:
    text = apply_replacements(MODULE, [change])
    assert run(text, call) == result
    assert run(MODULE, call) != result
    assert [number for number, line in enumerate(text.splitlines()) if line.startswith(("def", "class"))] == [
        number for number, line in enumerate(MODULE.splitlines()) if line.startswith(("def", "class"))
    ]


def test_within_selects_one_of_two_equal_statements() -> None:
    twice = "def f(a, b):\n    if a:\n        b += 1\n    else:\n        b += 1\n    return b\n"
    with pytest.raises(EditError, match="'b \\+= 1' matches 2 times; expected once"):
        apply_replacements(twice, [edit("f", without="b += 1")])
    text = apply_replacements(twice, [edit("f", without="b += 1", within="if a")])
    assert (run(text, "f(True, 0)"), run(text, "f(False, 0)")) == (0, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (edit("outer", "item > 7", "True"), "'item > 7' matches 0 times"),
        (edit("outer", "item", "0"), "'item' matches"),
        (edit("no", "item", "0"), "package.module:no: the module has 0 functions of that name"),
        (edit("outer", "total = 0", "total ="), "not valid Python"),
        (edit("outer", "total = 0", "total = 1", within="while True"), "'while True' matches 0 times"),
    ],
)
def test_edit_without_one_match_is_refused_by_name(change: Edit, why: str) -> None:
    with pytest.raises(EditError, match=why):
        apply_replacements(MODULE, [change])


def test_two_edits_of_a_module_are_both_made_unless_they_overlap() -> None:
    both = [edit("outer", "total = 0", "total = 50"), edit("Box.size", "inner() * 2", "inner() * 4")]
    text = apply_replacements(MODULE, both)
    assert (run(text, "outer([])"), run(text, "Box().size()")) == (50, 12)
    with pytest.raises(EditError, match="overlap"):
        apply_replacements(MODULE, [edit("outer", "item > 0 and item < 9", "True"), edit("outer", "item > 0", "True")])


def test_overlay_holds_edited_modules_and_package_init(tmp_path: Path) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "overlay"
    (installed / "package").mkdir(parents=True)
    (installed / "package" / "__init__.py").write_text("VERSION = 1\n")
    (installed / "package" / "module.py").write_text(MODULE)
    (installed / "package" / "other.py").write_text("")
    overlay([edit("outer", "total = 0", "total = 1")], installed, folder)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py")) == [
        "package/__init__.py",
        "package/module.py",
    ]
    with pytest.raises(EditError, match="there is no module"):
        overlay([Edit(at="package.missing:f", find="a", put="b")], installed, folder)


def insertion(function: str, code: str, *, before: str = "", after: str = "", instead: str = "") -> Edit:
    at = f"package.module:{function}".removesuffix(":")
    return Edit(at=at, before=before, after=after, instead=instead, code=code)


def value(tree: ast.Module, call: str) -> object:
    names: dict[str, object] = {}
    exec(compile(tree, "module", "exec"), names)
    return eval(call, names)


@pytest.mark.parametrize(
    ("change", "call", "result"),
    [
        (insertion("outer", "for item in items:\n    total -= 1", before="return total"), "outer([1, 7])", 8),
        (insertion("outer", "total = 50\ntotal += 1", after="total = 0"), "outer([1])", 53),
        (insertion("outer", "if items:\n    total += item", instead="total += item"), "outer([1])", 2),
        (
            insertion("Box", "def twice(self):\n    return 2 * self.size()", before="def size(self)"),
            "Box().twice()",
            12,
        ),
        (insertion("", "BOUND = 7", before="class Box"), "BOUND", 7),
    ],
)
def test_insertion_runs_and_its_patch_is_the_same_program(change: Edit, call: str, result: int) -> None:
    assert value(edited_tree(MODULE, [change]), call) == result
    assert run(patched_source(MODULE, [change]), call) == result
    text = diff("package/module.py", MODULE, [change])
    assert text.startswith("--- a/package/module.py\n+++ b/package/module.py\n@@")
    assert "+" in [line[:1] for line in text.splitlines()[3:]]


def test_insertion_moves_no_line_of_the_compiled_code() -> None:
    changes = [
        insertion("outer", "for item in items:\n    total -= 1", before="return total"),
        insertion("Box.size", "if not self:\n    return 0", before="return inner() * 2"),
    ]
    before = [(node.lineno, ast.unparse(node)) for node in ast.walk(ast.parse(MODULE)) if isinstance(node, ast.Return)]
    tree = edited_tree(MODULE, changes)
    after = [(node.lineno, ast.unparse(node)) for node in ast.walk(tree) if isinstance(node, ast.Return)]
    assert set(before) <= set(after)
    # An inserted statement has the line of the statement that it precedes.
    (line,) = [line for line, text in before if text == "return inner() * 2"]
    assert (line, "return 0") in after


def test_insertions_at_one_statement_keep_their_order() -> None:
    changes = [
        insertion("outer", "total += 3", before="return total"),
        insertion("outer", "total *= 2", before="return total"),
        insertion("outer", "total = 1", after="total = 0"),
        insertion("outer", "total += 4", after="total = 0"),
    ]
    assert value(edited_tree(MODULE, changes), "outer([])") == ((1 + 4) + 3) * 2
    assert run(patched_source(MODULE, changes), "outer([])") == ((1 + 4) + 3) * 2


def test_parameter_and_keyword_argument_are_edited() -> None:
    source = "def f(a, b=1):\n    return dict(a=a, b=b)\n"
    changes = [edit("f", "a", "a, c=5"), edit("f", "b=b", "b=b, c=c")]
    with pytest.raises(EditError, match="'a' matches 2 times"):
        apply_replacements(source, changes)
    source = "def f(a: int, b=1):\n    return dict(a=a, b=b)\n"
    changes = [edit("f", "a: int", "a: int, c=5"), edit("f", "b=b", "b=b, c=c")]
    assert run(apply_replacements(source, changes), "f(1)") == {"a": 1, "b": 1, "c": 5}


def test_insertion_next_to_a_replaced_statement_is_refused() -> None:
    changes = [
        insertion("outer", "total = 5", instead="total = 0"),
        insertion("outer", "total = 7", instead="total = 0"),
    ]
    with pytest.raises(EditError, match="another edit has replaced the statement 'total = 0'"):
        edited_tree(MODULE, changes)


def test_insertion_into_a_triton_kernel_is_refused() -> None:
    source = "@triton.jit\ndef kernel(x):\n    y = x\n"
    with pytest.raises(EditError, match="cannot be inserted into a Triton kernel"):
        edited_tree(source, [insertion("kernel", "y = 2", after="y = x")])
    assert "y = 2" in apply_replacements(source, [edit("kernel", "y = x", "y = 2")])


@pytest.mark.parametrize(
    "fields",
    [
        {"find": "a"},
        {"without": "a", "code": "b"},
        {"before": "a"},
        {"find": "a", "put": "b", "without": "c"},
        {},
    ],
)
def test_edit_with_missing_or_extra_keys_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"an edit has exactly one of|find needs put"):
        Edit(at="package.module:f", **fields)
