"""Command line: runs a PyTorch program on the simulated device and reports its races.

Exit codes: 0 no race; 1 races; 2 bad usage, or the device cannot be built here; 3 the program failed without a race, or
used device memory outside of tasks.
"""

import argparse
import re
import runpy
import sys
import traceback
from pathlib import Path

from pydantic import ValidationError

from scenarios.events import Hold, Label, Schedule
from workers.simulated_torch.build import BuildError
from workers.simulated_torch.cuda_program import cuda_program
from workers.simulated_torch.device import POLICIES, Watching, activate
from workers.simulated_torch.reports import Report

_HOLD = re.compile(r"(?P<op>\w+)@(?P<op_step>\d+):(?P<until>\w+)@(?P<until_step>\d+)")


def main(arguments: list[str]) -> int:
    """Run the program given on the command line; return the exit code."""
    options = _parser().parse_intermixed_args(arguments)
    program = Path(options.program)
    if not program.is_file():
        return _refuse(f"{program}: no such file")
    try:
        schedule = Schedule(policy=options.schedule, seed=options.seed, holds=tuple(map(_hold, options.hold)))
    except (ValidationError, argparse.ArgumentTypeError) as error:
        return _refuse(str(error))
    try:
        device = activate()
    except BuildError as error:
        return _refuse(str(error))
    device.root = program.resolve().parent
    device.begin(schedule, Watching(guard=not options.no_guard, closed=options.closed))
    failed = _run(program, options.arguments)
    try:
        report = device.end()
    except Exception:
        traceback.print_exc()
        failed, report = True, device.report()
    _print(report)
    if report.races:
        return 1
    return 3 if failed or report.bypasses else 0


def _run(program: Path, arguments: list[str]) -> bool:
    """Run a program as `python PROGRAM` would; return whether it failed."""
    sys.argv = [str(program), *arguments]
    sys.path[0] = str(program.resolve().parent)
    try:
        with cuda_program():
            runpy.run_path(str(program), run_name="__main__")
    except SystemExit as exited:
        return exited.code not in (None, 0)
    except Exception:
        traceback.print_exc()
        return True
    return False


def _print(report: Report) -> None:
    for race in report.races:
        print("\n".join(race.lines))
    for bypass in report.bypasses:
        print(f"BYPASS  {bypass}")
    for op, count in report.forced.items():
        print(f"note: the host waited for {op}, {count} times, unlike on a GPU: its races are not detected")
    counts = report.counts
    races = "no race" if not report.races else f"{len(report.races)} race{'s' * (len(report.races) > 1)}"
    print(
        f"{races}: {counts['tasks']} tasks on {counts['streams']} stream{'s' * (counts['streams'] > 1)}, "
        f"{counts['pending_max']} pending at most, {counts['synchronizations']} synchronizations, "
        f"{counts['reused']} of {counts['allocations']} allocations reused memory"
    )


def _hold(text: str) -> Hold:
    found = _HOLD.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"--hold {text}: expected OP@STEP:UNTIL@STEP, as in copy_h2d@3:launched@4")
    op, until = (Label(name=found[key], step=int(found[f"{key}_step"])) for key in ("op", "until"))
    return Hold(op=op, until=until)


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workers.simulated_torch",
        description="Run a PyTorch program on a simulated device, and report unordered accesses to the same memory.",
        epilog="The program can use the device names sim and cuda; torch.cuda refers to the simulated device.",
    )
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs="*", help="arguments of the program; after -- if they begin with a dash")
    parser.add_argument("--schedule", choices=POLICIES, default="eager", help="when the device runs launched tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random schedule")
    parser.add_argument(
        "--hold",
        action="append",
        default=[],
        metavar="OP@STEP:UNTIL@STEP",
        help="delay an op until op UNTIL has run",
    )
    parser.add_argument("--no-guard", action="store_true", help="do not check the host's accesses to pinned memory")
    parser.add_argument(
        "--closed", action="store_true", help="protect device memory from the host: finds ops that are not queued"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
