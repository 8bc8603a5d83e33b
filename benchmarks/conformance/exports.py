"""Run exported tests: each must fail on the release and pass with the fix of its finding.

`python -m benchmarks.conformance.exports [NAME ...]` exports findings from runs on the installed release, as
`specstorm export` does: of vLLM with `--engine vllm-v1 --device cpu`, of SGLang with `--engine sglang --device sim`. It
runs each test on the release and with the exported patch, and prints one line for each finding. `--sample N --seed S`
runs a random sample of them. Exit code 1 if a test does not fail on the release by its assertion,
or does not pass with the patch; 2 for a name without a trace and a fix.

A test of vLLM is run without any module of this project. For a test of SGLang a plugin of pytest replaces the modules
that the installation of `make sglang` lacks (`workers/targets/sglang/inside/absent.py`).
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.conformance.fixes import sampled, trace_file
from cluster.cli import main as cli
from cluster.reports.issue import EvidenceDocument
from scenarios.codec import run_on
from workers.edits.fix import FILE, FINDINGS, TRACE
from workers.record.verdict import Crashed
from workers.targets.registry import target_kind
from workers.targets.sglang.installation import HOME as SGLANG_HOME
from workers.targets.sglang.installation import SGLANG
from workers.targets.target import RunConfig
from workers.targets.vllm.installation import HOME, ROOT, home_of
from workers.targets.vllm.names import VLLM_V1

SECONDS_MAX = 600
# Exit codes of pytest: tests passed, or some failed.
PASSED, FAILED = 0, 1
# Prefixes of environment variables that change what the test's process imports, or how an engine runs.
_OWN = ("PYTHON", "VLLM_", "SGLANG_")
Outcome: TypeAlias = Literal["passes", "fails", "breaks off"]


@dataclass(frozen=True, slots=True)
class Installation:
    """An engine's installation in which exported tests run, and their run configuration."""

    config: RunConfig
    home: Path
    options: tuple[str, ...] = ()
    path: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> Path:
        """Return the folder that contains the engine's package.

        Raises:
            FileNotFoundError: the engine is not installed.
        """
        found = target_kind(self.config.engine).installed(self.config)
        if found is None:
            raise FileNotFoundError(f"{self.config.engine} is not installed in {self.home}")
        return found


VLLM_TESTS = Installation(RunConfig(engine=VLLM_V1, device="cpu"), ROOT / HOME)
SGLANG_TESTS = Installation(
    RunConfig(engine=SGLANG, device="sim"),
    ROOT / SGLANG_HOME,
    options=("-p", "workers.targets.sglang.inside.absent", "--rootdir", "."),
    path=(ROOT,),
    environment={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
)


class Run(NamedTuple):
    """Outcome of an exported test (passed, failed ...), and pytest's output."""

    outcome: Outcome
    output: str


class Exported(NamedTuple):
    """Files that `specstorm export` wrote for a finding, or why it wrote none."""

    test: Path
    evidence: Path
    patch: Path
    reason: str = ""
    is_refused: bool = True


def names_of(asked: Sequence[str], sample: int | None, seed: int) -> list[str]:
    """Return the findings to export; all that have a trace or a fix if none is named.

    Raises:
        KeyError: a finding that is named has neither.
    """
    known = {file.parent.name for name in (FILE, TRACE) for file in FINDINGS.glob(f"*/{name}")}
    for name in asked:
        if name not in known:
            raise KeyError(name)
    return sampled(asked or known, sample, seed)


def installation_of(name: str) -> Installation:
    """Return the installation that runs the exported test of a finding, of the release that its trace is for."""
    if name.startswith(f"{SGLANG}_"):
        return SGLANG_TESTS
    release = run_on(trace_file(name)).release if trace_file(name).exists() else ""
    if not release:
        return VLLM_TESTS
    config = VLLM_TESTS.config.model_copy(update={"release": release})
    return Installation(config, home_of(config))


def exported(name: str, config: RunConfig, folder: Path) -> Exported:
    """Export a finding into a folder, from a run on the installed release."""
    test, evidence, patch = folder / f"test_{name}.py", folder / f"{name}.json", folder / f"{name}.patch"
    file = trace_file(name)
    if not file.exists():
        return Exported(test, evidence, patch, "there is no trace")
    run = ["--engine", config.engine, "--device", config.device]
    run += ["--release", config.release] if config.release else []
    printed = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(printed):
        code = cli.run(["export", str(file), *run, "--out", str(folder)])
    said = printed.getvalue().strip()
    reason = said.rpartition(f"{TRACE}: ")[2].removeprefix("no test shows it: ").partition("\n")[0] if code else ""
    return Exported(test, evidence, patch, reason, code == 2)


def lay_out(package: Path, patch: str, folder: Path) -> None:
    """Make a folder with links to a package and patched copies of the files a patch changes.

    Python finds the package there first if the folder is the first on its path.
    """
    changed = [line.removeprefix("--- a/") for line in patch.splitlines() if line.startswith("--- a/")]
    assert changed, "the patch names files"
    (folder / package.name).symlink_to(package)
    for file in changed:
        _make_real(package.parent, folder, Path(file))
    # The folder may be inside another repository.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "-p1", "-"]
    subprocess.run(command, input=patch, cwd=folder, env=environment, text=True, check=True, capture_output=True)


def _make_real(source: Path, folder: Path, file: Path) -> None:
    """Replace the link to a file by a copy, and links to its parent folders by real folders."""
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


def run_test(file: Path, on: Installation, overlay: Path | None = None, error: str = "AssertionError") -> Run:
    """Run a copy of a test in its own folder; it "fails" if it raises `error`.

    With any other exception it "breaks off".
    """
    path = os.pathsep.join(map(str, (*([overlay] if overlay else []), *on.path)))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_OWN)}
    environment |= {**on.environment, **({"PYTHONPATH": path} if path else {})}
    options = ["-q", "-p", "no:cacheprovider", *on.options]
    command = [str(on.home / "bin" / "python"), "-P", "-m", "pytest", *options, file.name]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
    output = done.stdout + done.stderr
    if done.returncode == PASSED:
        return Run("passes", output)
    is_raised = re.search(rf"^\S+:\d+: {re.escape(error)}$", done.stdout, re.MULTILINE)
    return Run("fails" if done.returncode == FAILED and is_raised else "breaks off", output)


def run_both_ways(files: Exported, on: Installation) -> tuple[Run, Run | None]:
    """Run an exported test on the release and, if there is a patch, on the patched release."""
    released = run_test(files.test, on, error=_error_of(files.evidence))
    if not files.patch.exists():
        return released, None
    with tempfile.TemporaryDirectory() as made:
        package = on.packages / target_kind(on.config.engine).package
        lay_out(package, files.patch.read_text(encoding="utf-8"), Path(made))
        return released, run_test(files.test, on, Path(made))


def _error_of(evidence: Path) -> str:
    """Return the name of the exception with which a test fails.

    This is the engine's exception if the engine crashed, otherwise AssertionError.
    """
    verdict = EvidenceDocument.model_validate_json(evidence.read_text(encoding="utf-8")).verdict
    name = verdict.error.partition(":")[0] if isinstance(verdict, Crashed) else ""
    return name if name.isidentifier() else "AssertionError"


class Tried(NamedTuple):
    """The outcome of a finding's exported test: report line, success, pytest's output if wrong."""

    line: str
    is_right: bool
    output: str = ""


def tried(name: str) -> Tried:
    """Return whether an exported test fails on the release and passes with the finding's fix."""
    on = installation_of(name)
    with tempfile.TemporaryDirectory() as folder:
        files = exported(name, on.config, Path(folder))
        if files.reason:
            return Tried(f"not exported: {files.reason}", files.is_refused)
        released, fixed = run_both_ways(files, on)
    shown = f"{released.outcome} on the release"
    is_right = released.outcome == "fails"
    if fixed is None:
        return Tried(f"{shown}, there is no fix", is_right, "" if is_right else released.output)
    wrong = [run.output for run, wanted in ((released, "fails"), (fixed, "passes")) if run.outcome != wanted]
    return Tried(f"{shown}, {fixed.outcome} with the fix", not wrong, "\n".join(wrong))


def lines(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each finding's report line and whether it is right, with pytest's output if not."""
    for name in names:
        found = tried(name)
        wrong = "" if found.is_right else f"  WRONG\n{found.output}"
        yield f"{name:<36} {found.line}{wrong}", found.is_right


def main(arguments: Sequence[str] | None = None) -> int:
    """Export findings and run their tests; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="findings; default: all that have a trace or a fix")
    parser.add_argument("--sample", type=int, metavar="N", help="run N findings, selected at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of --sample (default: 0)")
    options = parser.parse_args(arguments)
    try:
        names = names_of(options.names, options.sample, options.seed)
    except KeyError as error:
        found = f"exports: {error} has no trace and no fix"
        print(f"{found}; allowed are folders of {FINDINGS} with {TRACE} or {FILE}", file=sys.stderr)
        return 2
    are_right = []
    for line, is_right in lines(names):
        print(line, flush=True)
        are_right.append(is_right)
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main())
