"""Write `tests/language_limits.toml`: limits on marker words and field nouns per folder.

`python -m tests.language_limits` counts two rates per 1,000 words: *markers*, words that stand where a noun should
be, and *nouns* of the field, such as "KV cache". A limit may only improve, so the command refuses to loosen one.

Counted: docstrings, comments, string literals of at least four words, Markdown pages, comments of YAML and C++ files,
text of HTML templates.
Not counted: fenced code of a page, `code` in backticks, the generated tests in `docs/exported`.
"""

import ast
import math
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tests" / "language_limits.toml"
COMMAND = "python -m tests.language_limits"
FOLDERS = ("benchmarks", "cluster", "docs", "findings", "scenarios", "tests", "workers")
# Packages large enough that each of their subfolders has a limit of its own.
SPLIT = ("workers/targets",)
# The second has the list of marker words itself.
NOT_OURS = ("docs/exported", "tests/language_limits.py")

# The goal of every folder. A limit is never tightened beyond it.
MARKERS_GOAL = 3
NOUNS_GOAL = 8
# A rate must be better than the next whole number by this much before its limit has to be tightened.
SLACK = 0.5
MESSAGE_WORDS_MIN = 4
# A folder of fewer words has no limit: a single word would decide.
FOLDER_WORDS_MIN = 100

_MARKER = re.compile(
    r"""
    \bbehind\b | \bbesides?\b | \b(?:who|whom|whose|whoever|nobody|somebody|everybody)\b | \b(?:told|tells?)\b
    | \b(?:so|as)\ many\b | \bso\ much\b | \b(?:goes|go|going)\ on\b | \bof\ (?:which|whom|whose)\b
    | \b(?:is|are)\ (?:due|none)\b | \b(?:whatever|whichever)\b | \bno\ such\b
    | \bthe\ former\b | \b(?:those|that)\ of\b | \b(?:lies|lie|lay)\b | \banother\ one\b | \bother\ ones?\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCE_OF = re.compile(r"(?:^|[.;:]\s+)Of\b", re.MULTILINE)
_NOUN = re.compile(
    r"""
    KV[- ]cache | block\ tables? | slot\ mappings? | rejection\ sampl | \basync(?:hronous)?\ schedul | draft\ tokens?
    | bonus\ tokens? | prefill | \bdecode | KV\ connectors? | speculative | CUDA\ graphs? | sliding[- ]window
    | prefix[- ]cache | preempt | batch\ rows? | prompt\ tokens? | output\ tokens? | \bscheduler\b | \bdrafter\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TEMPLATE_CODE = re.compile(r"\{[{%#].*?[}%#]\}|<[^>]*>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rates:
    """Number of words of a text, and its marker words and field nouns per 1,000 words."""

    words: int
    markers: float
    nouns: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum of marker words and minimum of field nouns per 1,000 words, for one folder."""

    markers_max: int
    nouns_min: int


def rates_of(text: str) -> Rates:
    """Count the words, marker words and field nouns of a text."""
    words = len(_WORD.findall(text))
    markers = len(_MARKER.findall(text)) + len(_SENTENCE_OF.findall(text))
    thousands = max(words, 1) / 1000
    return Rates(words, markers / thousands, len(_NOUN.findall(text)) / thousands)


def limit_for(rates: Rates, slack: float = 0.0) -> Limit:
    """Return the tightest integer limit for these rates and `slack`, never beyond the goals."""
    return Limit(
        max(MARKERS_GOAL, math.ceil(rates.markers + slack)), min(NOUNS_GOAL, max(0, math.floor(rates.nouns - slack)))
    )


def prose_of_python(source: str) -> Iterator[str]:
    """Yield the docstrings, messages and comments of a Python file."""
    nodes = [*ast.walk(ast.parse(source))]
    documentation = {id(value) for node in nodes if (value := _documentation(node))}
    formatted = (node for node in nodes if isinstance(node, ast.JoinedStr))
    parts = {id(part) for node in formatted for part in ast.walk(node) if part is not node}
    literals = [node for node in nodes if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in parts]
    texts = [(node, text) for node in literals if (text := _text_of(node)) is not None]
    yield from (dedent(text) for node, text in texts if id(node) in documentation or _is_message(text))
    yield from _comments(source, [node for node, _ in texts])


def _documentation(node: ast.AST) -> ast.expr | None:
    """Return the docstring of a module, class or function."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return first.value
    return None


def _comments(source: str, texts: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the comments of a source; `texts` are string literals, in which # is no comment."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node in texts:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        for line in range(node.lineno, node.end_lineno + 1):
            start = node.col_offset if line == node.lineno else 0
            spans[line].append((start, node.end_col_offset if line == node.end_lineno else sys.maxsize))
    lines = source.encode().split(b"\n")
    for number, content in enumerate(lines, 1):
        at = content.find(b"#")
        while at >= 0 and any(start <= at < end for start, end in spans[number]):
            at = content.find(b"#", at + 1)
        if at >= 0:
            yield content[at:].decode().lstrip("#! ")


def _text_of(node: ast.JoinedStr | ast.Constant) -> str | None:
    """Return a string literal with "_" for each value of an f-string; None for other constants."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
    return node.value if isinstance(node.value, str) else None


def _is_message(text: str) -> bool:
    """Return whether a string literal is prose: several words, no program."""
    if len(_WORD.findall(text)) < MESSAGE_WORDS_MIN or " " not in text:
        return False
    if "\n" in text:
        try:
            ast.parse(dedent(text))
        except (SyntaxError, ValueError):
            return True
        return False
    return True


def prose_of(path: Path) -> str:
    """Return the prose of a file, empty for file types without prose."""
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            return "\n".join(prose_of_python(source))
        case ".md":
            return re.sub(r"`[^`\n]+`", "_", _FENCE.sub("", source))
        case ".html":
            return _TEMPLATE_CODE.sub("_", source)
        case ".yaml":
            return "\n".join(re.findall(r"^\s*# (?!yaml-language-server)(.*)", source, re.MULTILINE))
        case ".cpp" | ".h":
            return "\n".join(re.findall(r"(?<!:)//\s*(.*)", source))
    return ""


def folder_of(path: Path) -> str:
    """Return the folder whose limit applies to a file: two levels deep, three in `SPLIT`."""
    *folders, name = path.relative_to(ROOT).parts
    if not folders:
        return name if name.endswith(".md") else "."
    if folders[0] == "findings":
        return "findings"
    return "/".join(folders[: 3 if "/".join(folders[:2]) in SPLIT else 2])


def files() -> Iterator[Path]:
    """Yield the project's files that can contain prose."""
    yield from ROOT.glob("*.md")
    yield from ROOT.glob("*.py")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.*"):
            if not any(path.is_relative_to(ROOT / other) for other in NOT_OURS):
                yield path


def measured() -> dict[str, Rates]:
    """Return the rates of each folder with enough prose."""
    texts: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files()):
        if path.suffix in {".py", ".md", ".html", ".yaml", ".cpp", ".h"} and path.is_file():
            texts[folder_of(path)].append(prose_of(path))
    rates = {folder: rates_of("\n".join(parts)) for folder, parts in sorted(texts.items())}
    return {folder: rate for folder, rate in rates.items() if rate.words >= FOLDER_WORDS_MIN}


def read_limits() -> dict[str, Limit]:
    """Return the stored limits by folder."""
    table = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    return {folder: Limit(**row) for folder, row in table.items()}


def problems(rates: Mapping[str, Rates], limits: Mapping[str, Limit]) -> list[str]:
    """Return a line per folder that violates its limit, or whose limit is no longer tight."""
    found = [f"{folder}: has a limit but hardly any prose; run `{COMMAND}`" for folder in limits.keys() - rates.keys()]
    for folder, rate in rates.items():
        limit = limits.get(folder)
        if limit is None:
            found.append(f"{folder}: has no limit; run `{COMMAND}`")
            continue
        if rate.markers > limit.markers_max:
            found.append(
                f"{folder}: {rate.markers:.1f} marker words per 1,000 words, at most {limit.markers_max} are allowed: "
                "name the thing instead of pointing at it (CONTRIBUTING.md)"
            )
        if rate.nouns < limit.nouns_min:
            found.append(
                f"{folder}: {rate.nouns:.1f} nouns of the field per 1,000 words, at least {limit.nouns_min} are "
                "required: say KV cache, block table, draft token ... where the text means one (CONTRIBUTING.md)"
            )
        kept = limit_for(rate, SLACK)
        if kept.markers_max < limit.markers_max or kept.nouns_min > limit.nouns_min:
            found.append(f"{folder}: better than its limit {limit}; run `{COMMAND}` to keep it so")
    return sorted(found)


def table_of(limits: Mapping[str, Limit]) -> str:
    """Return the table of limits as TOML."""
    rows = (
        f'"{folder}" = {{ markers_max = {limit.markers_max}, nouns_min = {limit.nouns_min} }}'
        for folder, limit in sorted(limits.items())
    )
    return f"# Per 1,000 words of each folder. Written by `{COMMAND}`.\n" + "\n".join(rows) + "\n"


def tightened(rates: Mapping[str, Rates], limits: Mapping[str, Limit]) -> dict[str, Limit]:
    """Return limits as tight as the rates allow; a folder that violates its limit keeps it."""
    new = {}
    for folder, rate in rates.items():
        now = limit_for(rate)
        old = limits.get(folder, now)
        new[folder] = Limit(min(now.markers_max, old.markers_max), max(now.nouns_min, old.nouns_min))
    return new


def main() -> int:
    """Rewrite the table and print all rates; return 1 if a folder violates its limit."""
    rates = measured()
    limits = tightened(rates, read_limits() if LIMITS.exists() else {})
    LIMITS.write_text(table_of(limits), encoding="utf-8")
    for folder, rate in rates.items():
        print(f"{folder:40} {rate.words:7} words  {rate.markers:5.1f} markers  {rate.nouns:5.1f} nouns")
    worse = problems(rates, limits)
    print("\n".join(worse), file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
