"""Fuzz the command line in this process: hostile options, paths, files and environments.

Verifies: every run ends with a documented exit code, without a traceback and without an internal error.
Does not verify: other output; commands that would start long work are not given any.

    python -m benchmarks.robustness.command_fuzz --runs 2000
"""

import argparse
import contextlib
import io
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from cluster.cli import main as cli
from cluster.cli.commands import app

CODES = (0, 1, 2, 3)
MEMORY_MAX = 4 << 30
SCENARIO = "events:\n- {tick: 0, do: submit, request: r0, prompt: {tokens: 2}, max_tokens: 2, accept: {rate: 0.5}}\n"
WORDS: tuple[str, ...] = (
    "",
    "-",
    "--",
    "0",
    "-1",
    "1",
    "2",
    "nan",
    "1e400",
    "9" * 40,
    "two",
    "off",
    "banana",
    "\x00",
    "a\nb",
    "\x1b[2J",
    "é",
    "\udcff",
    "x" * 5000,
)
WORDS += (
    "127.0.0.1:1",
    "http://127.0.0.1:1",
    "[::1]:x",
    "sim",
    "specstorm",
    "vllm-38556-backup-token",
    "not (a",
    "*",
    "~",
    "$HOME",
)
PATHS = (
    "good.yaml",
    "bad.yaml",
    "empty.yaml",
    "binary.yaml",
    "folder",
    "nothing",
    "loop.yaml",
    "loops",
    "dir.yaml",
    "n" * 300,
    "/proc/self/mem",
    "/dev/null",
    "/dev/full",
    "out",
    "pipe.yaml",
    "..",
    "folder/../good.yaml",
    "good.yaml/below",
)
# Without these options a command may start long work or its own Ray.
CALM: Mapping[str, tuple[str, ...]] = {
    "run": ("--ray", "off"),
    "hunt": ("--minutes", "0", "--ray", "off"),
    "nightly": ("--regressions", "nothing"),
    "shrink": ("--limit", "1", "--ray", "off"),
    "measure": ("--ray", "127.0.0.1:1"),
    "submit": ("--address", "http://127.0.0.1:1"),
}
# Excluded by design: `watch` may wait without end, `doctor` starts a Ray and uses a GPU.
LONG = ("doctor", "watch")
ENVIRONMENTS: tuple[Mapping[str, str], ...] = (
    {},
    {"COLUMNS": "1"},
    {"COLUMNS": "many", "TERM": "dumb"},
    {"RAY_ADDRESS": "http://nowhere:1"},
    {"RAY_ADDRESS": "banana"},
    {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a fuzzed command line: arguments, exit code and output."""

    arguments: tuple[str, ...]
    code: object
    said: str

    @property
    def is_wrong(self) -> bool:
        """Return whether the run ended with an undocumented exit code or output."""
        return self.code not in CODES or "Traceback" in self.said or "internal error" in self.said


@contextlib.contextmanager
def playground() -> Iterator[Path]:
    """Change into a temporary folder with good and hostile files, for a `with` block."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="specstorm-fuzz-") as name:
        folder = Path(name)
        (folder / "good.yaml").write_text(SCENARIO)
        (folder / "bad.yaml").write_text("events: [{do: dance}]\n")
        (folder / "empty.yaml").write_text("")
        (folder / "binary.yaml").write_bytes(bytes(range(256)))
        (folder / "loop.yaml").symlink_to("loop.yaml")
        (folder / "dir.yaml").mkdir()
        os.mkfifo(folder / "pipe.yaml")
        for below in ("folder", "loops"):
            (folder / below).mkdir()
            (folder / below / "s.yaml").write_text(SCENARIO)
        (folder / "loops" / "self").symlink_to("../loops")
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def fuzzed(seed: int, folder: Path) -> Outcome:
    """Run one random command line and return its outcome."""
    rng = random.Random(seed)
    arguments = _arguments(rng)
    if rng.random() < 0.3:
        _mutate(rng, folder / "good.yaml")
    else:
        (folder / "good.yaml").write_text(SCENARIO)
    # No Ray is joined or started: no process listens at this address.
    environment = {"RAY_ADDRESS": "127.0.0.1:1", **rng.choice(ENVIRONMENTS)}
    said = io.StringIO()
    nothing = io.TextIOWrapper(io.BytesIO(b""))
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch("sys.stdin", nothing),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            code: object = cli.run(list(arguments))
        except BaseException as error:  # nothing may escape, not even an exit
            code = repr(error)
    return Outcome(tuple(arguments), code, said.getvalue())


def _arguments(rng: random.Random) -> list[str]:
    command: Any = get_command(app)
    words: list[str] = []
    if rng.random() < 0.05:
        words.append(_word(rng))
    while hasattr(command, "commands"):
        if rng.random() < 0.03:
            return [*words, _word(rng)]
        name = rng.choice(sorted(set(command.commands) - set(LONG)))
        command = command.commands[name]
        words.append(name)
    typed = [*_options(rng, command), *_operands(rng, command)]
    # The last occurrence of an option counts.
    return [*words, *_shuffled(rng, typed), *(CALM.get(words[-1], ()) if "submit" not in words else ())]


def _options(rng: random.Random, command: Any) -> list[list[str]]:
    options = [each for each in command.params if each.opts[0].startswith("-")]
    found = []
    for option in rng.sample(options, min(len(options), rng.randrange(4))):
        name = rng.choice(option.opts)
        found.append([name] if getattr(option, "is_flag", False) else [name, _word(rng)])
    if "submit" in command.name:
        found.append(list(CALM["submit"]))
    return found


def _operands(rng: random.Random, command: Any) -> list[list[str]]:
    if all(each.opts[0].startswith("-") for each in command.params):
        return [[_word(rng)]] if rng.random() < 0.05 else []
    # A log may be a pipe, and reading one waits for its writer.
    paths = [path for path in PATHS if path != "pipe.yaml" or command.name != "extract"]
    return [[rng.choice(paths) if rng.random() < 0.85 else _word(rng)] for _ in range(rng.choice((0, 1, 1, 1, 2)))]


def _shuffled(rng: random.Random, groups: list[list[str]]) -> list[str]:
    rng.shuffle(groups)
    return [word for group in groups for word in group]


def _word(rng: random.Random) -> str:
    pool = rng.choice((WORDS, WORDS, PATHS))
    return rng.choice(pool)


def _mutate(rng: random.Random, path: Path) -> None:
    content = bytearray(SCENARIO.encode())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(content))
        match rng.randrange(3):
            case 0:
                content[at] = rng.randrange(256)
            case 1:
                del content[at : at + rng.randrange(1, 8)]
            case _:
                content[at:at] = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    path.write_bytes(bytes(content))


def main() -> int:
    """Run many fuzzed command lines; print the wrong outcomes, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    # Unbounded reading fails at this limit instead of exhausting the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    codes: Counter[object] = Counter()
    wrong, begin, slowest = 0, time.monotonic(), (0.0, "")
    with playground() as folder:
        for seed in range(chosen.seed, chosen.seed + chosen.runs):
            started = time.monotonic()
            outcome = fuzzed(seed, folder)
            slowest = max(slowest, (time.monotonic() - started, ascii(outcome.arguments)[:200]))
            codes[outcome.code] += 1
            if outcome.is_wrong:
                wrong += 1
                print(f"seed {seed}: {outcome.code}: {ascii(outcome.arguments)[:300]}\n{outcome.said[-1500:]}")
    seconds = time.monotonic() - begin
    ends = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items(), key=str))
    print(f"{chosen.runs} runs in {seconds:.0f} s: {ends}; {wrong} ended wrongly")
    print(f"slowest: {slowest[0]:.1f} s: {slowest[1]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
