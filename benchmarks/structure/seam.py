"""Count the lines outside SGLang's folders that exist for SGLang only.

Run with `python -m benchmarks.structure.seam`; `--places` lists each line. Counted, in files tracked by git: lines that
name SGLang, unless they only name the source of a historical bug; lines that name a specification key or drafter that
only SGLang's capabilities have; and lines of SERVING, which serve it under other names: `_late_writes`, for example,
keeps the KV entries of draft tokens whose forward pass runs late. Lines of a generated file, and files with its name,
are reported separately.

Does not count: its folders, its scenarios, the simulated device, tests, docs, findings, the check of exported tests,
the census of fixes,
the Makefile and CI; lines that another engine uses as well. SERVING was compiled by reading the source: lines missing
there are not counted.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from scenarios.drafters import Drafter
from scenarios.spec import EngineSpec
from workers.targets.registry import known_engines, target_kind
from workers.targets.sglang.installation import SGLANG

ROOT = Path(__file__).resolve().parents[2]
# Code that serves SGLang without its name, by file: identifiers, and parts of lines. A function counts as a whole.
SERVING: Mapping[str, Sequence[str]] = {
    "scenarios/generation/batches.py": ("pause_while_chunking", "Pause("),
    "scenarios/generation/builder.py": ('"last"',),
    "scenarios/generation/catalogue.py": ("replaces", "own.get", '"last"'),
    "scenarios/generation/situation.py": ("replaces",),
    "scenarios/generation/weights.py": (
        *(
            "draft_trees",
            "mixed_chunks",
            "plan_stream",
            "relay_lengths",
            "no_drafts_more_often",
            "pause_while_chunking",
        ),
        *("short_pool", "wide_pages", "retract_at_last_token", "repeated_grammars"),
    ),
    "workers/judge/drafter_inputs.py": (
        *("_tables", "plan.shared", "].hit, count)", "held = dict", " in held", "held[", "_late_writes"),
    ),
    "workers/record/engine_records.py": ("shared: list", "behind"),
    "workers/run/references.py": ("_SWITCHES",),
    "workers/targets/child/inside/observations.py": ("_place", "        step: int | None"),
    "workers/targets/child/inside/replacements.py": ("until",),
    "workers/targets/child/inside/simulated_device.py": ("stand_in",),
    "workers/targets/child/releases.py": ("has_compiled_code", "        _check_torch(python"),
    "workers/targets/vllm/inside/plans.py": ("shared=[]",),
}
_NOT_COUNTED = re.compile(
    r"(\.github|tests|docs|findings|known|scenarios/sglang|workers/(targets/sglang|simulated_torch))/|Makefile|.*\.md$"
    r"|.*/structure/seam.py|.*/conformance/exports.py|.*/power/recall/.*"
)
_OF_ITS_NAME = re.compile(r"constraints-sglang|benchmarks/\w+/sglang")
# Ends a sentence, a list item or a paragraph of a docstring.
_SENTENCE_END = re.compile(r'[.;](?=\s)|\n\s*\n|\n\s*- |"""')
_GENERATED = "scenarios/scenario.schema.json"
_REPORTED = re.compile(r"\bsglang-\d+|\bsglang (PR|issue)s? #\d+", re.IGNORECASE)


def asked_alone(engine: str) -> set[str]:
    """Return the specification keys and drafters that no other engine supports."""
    kinds = {name: target_kind(name).capabilities for name in known_engines()}
    taken = {
        name: {key for key, field in EngineSpec.model_fields.items() if kind.allowed(key) != (field.default,)}
        | {drafter for drafter in get_args(Drafter) if kind.allows("drafter", drafter)}
        for name, kind in kinds.items()
    }
    return taken.pop(engine).difference(*taken.values())


def lines_with(text: str, part: str) -> Iterator[int]:
    """Yield the numbers of lines that contain a text, up to the brace that closes a line."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if part in line:
            end = number
            if line.endswith("{"):
                indent = line[: len(line) - len(line.lstrip())]
                end = next(at for at in range(number, len(lines)) if lines[at].startswith(f"{indent}}}"))
            yield from range(number + 1, end + 2)


def lines_of(text: str, part: str) -> Iterator[int]:
    """Yield the numbers of lines of Python that use some code, or explain it.

    These are lines of code with it, functions of that name, sentences of docstrings that quote it in backticks, and
    comments directly above a line of code with it.
    """
    lines, prose = text.splitlines(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == part:
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    name = part.partition(":")[0]
    for quoted in re.finditer(rf"`{re.escape(name)}`", text):
        start = max((bound.end() for bound in _SENTENCE_END.finditer(text, 0, quoted.start())), default=0)
        end = next((bound.start() for bound in _SENTENCE_END.finditer(text, quoted.end())), len(text))
        first = end - len(text[start:end].lstrip())
        # A line counts as part of the sentence that begins it.
        whole = not text[text.rfind("\n", 0, first) + 1 : first].strip(" -")
        starts = text.count("\n", 0, first) + (1 if whole else 2)
        yield from range(min(starts, text.count("\n", 0, quoted.start()) + 1), text.count("\n", 0, end) + 2)
    used = re.compile(rf"\b{part}\b" if part.isidentifier() else re.escape(part))
    comments = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    for number, line in enumerate(lines, 1):
        if number not in prose | comments and used.search(line):
            first = number
            while first - 1 in comments:
                first -= 1
            yield from range(first, number + 1)


def seam(root: Path, engine: str, serving: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the source lines that exist for one engine only, by file, with line numbers.

    Raises:
        ValueError: a line of `serving` does not exist.
    """
    alone = re.compile(rf"\b({'|'.join(sorted(asked_alone(engine)))})\b")
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    found = {}
    for file in tracked:
        if _NOT_COUNTED.match(file) or _OF_ITS_NAME.match(file):
            continue
        text = (root / file).read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        own = {match[0] for line in lines if (match := alone.search(line))}
        own |= {line for line in lines if engine in _REPORTED.sub("", line).lower()}
        numbers = {number for part in own for number in lines_with(text, part)}
        for part in serving.get(file, ()):
            if part not in text:
                raise ValueError(f"{file} has no line with {part!r}")
        if file.endswith(".py"):
            parts = {*serving.get(file, ()), *(match[0] for match in alone.finditer(text))}
            numbers |= {number for part in parts for number in lines_of(text, part)}
        if numbers:
            found[file] = [f"{number}: {lines[number - 1]}" for number in sorted(numbers)]
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the number of lines by file; `--places` prints the lines."""
    found = seam(ROOT, SGLANG, SERVING)
    for file, lines in found.items():
        print(f"{len(lines):>5}  {file}{' (generated)' if file == _GENERATED else ''}")
        if "--places" in arguments:
            print(*(f"         {line}" for line in lines), sep="\n")
    written = sum(len(lines) for file, lines in found.items() if file != _GENERATED)
    print(f"{written:>5}  in all, without generated lines")


if __name__ == "__main__":
    main(sys.argv[1:])
