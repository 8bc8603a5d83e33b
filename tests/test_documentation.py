"""Links, files, `make` targets, commands and options that pages of the project name exist.

Verifies: all pages except the change log, which names things of the past.
Does not verify: what pages say about them; external addresses; output of commands.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cluster.cli.commands import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("scenarios/**/*.md"),
        *ROOT.glob("workers/**/*.md"),
    }
    - {ROOT / "CHANGELOG.md"}
)
LINES_MAX = {"README.md": 180}
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(
    r"(?:\.github|benchmarks|cluster|docs|generate|known|ray_configs|scenarios|tests|workers)/[\w./-]*[\w/]"
    r"|[A-Z]+\.md|(?:engine|faults|judge|kernels|lanes|oracle|record|run|shrink|targets)/[\w/]+\.py"
)
_MAKE = re.compile(r"(?:^|[`;] *)make ([a-z][\w-]*(?: [a-z][\w-]*)*)", re.MULTILINE)
_MODULE = re.compile(r"python -m (\w+(?:\.\w+)*)")
_COMMAND = re.compile(r"(?:^|[`\s/])specstorm ((?:[^`\n|\\]|\\\|)+)", re.MULTILINE)
_OPTION = re.compile(r"(?<![^\s`])(?:--[a-z][a-z-]*|-[a-z])(?![\w*])")


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors_of(page: Path) -> frozenset[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return frozenset(anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE))


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            yield link


def absent_files(text: str, folder: Path) -> Iterator[str]:
    """Yield the files named in code that are not in the project, `workers/` or `folder`."""
    for code in _CODE.findall(_FENCE.sub("", text)):
        if _FILE.fullmatch(code) and not any((base / code).exists() for base in (ROOT, ROOT / "workers", folder)):
            yield code


def absent_targets(text: str) -> Iterator[str]:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for called in _MAKE.findall(text):
        yield from (target for target in called.split() if target not in targets)


def absent_modules(text: str) -> Iterator[str]:
    """Yield the modules of the project that a text runs and that do not exist."""
    for module in _MODULE.findall(text):
        if (ROOT / module.partition(".")[0]).is_dir() and find_spec(module) is None:
            yield module


def absent_options(text: str) -> Iterator[str]:
    """Yield the commands of `specstorm` in a text that do not exist, and their unknown options."""
    for line in text.splitlines():
        is_row, of_row = line.startswith("| `specstorm "), set[str]()
        for words in _COMMAND.findall(line):
            name, known, unknown = resolved(re.sub(r"\s#.*", "", words).split())
            if unknown:
                yield unknown
            of_row |= known
            yield from (f"{name} {option}" for option in _OPTION.findall(words) if option not in known and not is_row)
        yield from (f"{line[:24]}: {option}" for option in _OPTION.findall(line) if is_row and option not in of_row)


@cache
def program() -> Any:
    return get_command(app)


def resolved(words: list[str]) -> tuple[str, set[str], str]:
    """Return the command at the start of words, its options, and an unknown subcommand."""
    command = program()
    name, known = "specstorm", options_of(command)
    while words and re.fullmatch(r"[a-z]+", words[0]) and hasattr(command, "commands"):
        if words[0] not in command.commands:
            return name, known, f"{name} {words[0]}"
        command, name = command.commands[words[0]], f"{name} {words[0]}"
        known, words = options_of(command), words[1:]
    if name == "specstorm submit":
        # `submit` takes another command with its own options.
        known |= resolved(words)[1]
    return name, known, ""


def options_of(command: Any) -> set[str]:
    return {
        "--help",
        *(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)),
    }


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_files_and_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [*broken_links(page)] == []
    assert [*absent_files(text, page.parent)] == []
    assert [*absent_targets(text)] == []
    assert [*absent_modules(text)] == []
    assert [*absent_options(text)] == []


def leaves(command: Any, name: str = "specstorm") -> Iterator[tuple[str, Any]]:
    """Yield each command without subcommands, by its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, sub in command.commands.items():
        yield from leaves(sub, f"{name} {word}")


def test_help_of_each_command_ends_with_an_example_of_known_options() -> None:
    examples = {name: command.epilog or "" for name, command in leaves(program())}
    assert [name for name, example in examples.items() if not example.startswith(f"Example: {name}")] == []
    assert [*absent_options("\n".join(f"`{example[9:]}`" for example in examples.values()))] == []


@pytest.mark.parametrize("name", LINES_MAX)
def test_pages_keep_their_length_limit(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= LINES_MAX[name]


def test_absent_links_files_and_commands_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n[a](page.md#a-page) [b](gone.md) [c](#gone) [d](https://example.org/gone)\n")
    assert [*broken_links(page)] == ["gone.md", "#gone"]
    files = "`workers/run` `run/check.py` `run/gone.py` `GONE.md` `workers/<op>/`"
    assert [*absent_files(files, tmp_path)] == ["run/gone.py", "GONE.md"]
    assert [*absent_targets("`make gone` and make sense\nmake check test\nmake lost")] == ["gone", "lost"]
    assert [*absent_modules("python -m workers.gone; python -m pytest; python -m cluster")] == ["workers.gone"]
    commands = "`specstorm gone`, `specstorm faults gone`\n.venv/bin/specstorm run a.yaml --workers 2 --gone -k 'a b'\n"
    assert [*absent_options(commands)] == ["specstorm gone", "specstorm faults gone", "specstorm run --gone"]
    row = "| `specstorm watch DIR` | until it ends, `--once`, `--gone` |"
    assert [*absent_options(row)] == ["| `specstorm watch DIR` : --gone"]
