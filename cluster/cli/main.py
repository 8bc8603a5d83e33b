"""Main function: check the installation, run a command, turn exceptions that escape it into an exit code.

Nothing of ours is imported before an exception can be caught: an import that fails is no finding.
"""

import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

# Less than this fails somewhere in a library that is loaded: OpenBLAS then ends the process with the code of a finding.
MEMORY_MIN = 256 << 20
# Less than this and a library cannot open its files somewhere on the way.
FILES_MIN = 64
# Of a longer message the beginning and the end are printed.
MESSAGE_MAX = 2000
MEMORY_LIMITS = {resource.RLIMIT_AS: "v", resource.RLIMIT_DATA: "d"}


def main() -> None:
    """Run `specstorm` with the arguments of this process and exit, within seconds of a second signal."""
    code = run(sys.argv[1:], is_program=True)
    pool = sys.modules.get("cluster.dispatch.pool")
    if pool is not None and pool.is_stuck():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str], *, is_program: bool = False) -> int:
    """Return the exit code of one command; no exception escapes.

    Where it `is_program`, a second signal ends this process.
    """
    try:
        return _run(arguments, is_program)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as error:
        # Shell completion exits by itself. Ray answers SIGTERM with SystemExit(SIGTERM) while it starts, before the
        # handler of a campaign is in place.
        if error.code in (0, None):
            return 0
        return 128 + signal.SIGTERM if error.code == signal.SIGTERM else 3
    except BaseException as error:
        return _internal(error)


def _run(arguments: list[str], is_program: bool) -> int:
    try:
        os.getcwd()
    except OSError as error:
        return _refuse(f"the working directory is gone ({error.strerror}); cd to one that exists")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < FILES_MIN:
        return _refuse(f"a process may open {files} files here (ulimit -n); at least {FILES_MIN} are required")
    for limit, flag in MEMORY_LIMITS.items():
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and most < MEMORY_MIN:
            seen = f"the memory of a process is limited to {most >> 10:,} kB here (ulimit -{flag})"
            return _refuse(f"{seen}; at least {MEMORY_MIN >> 10:,} kB are wanted")
    # Nothing here uses BLAS, whose threads each reserve memory, and interrupt the process where one cannot be started.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from cluster.dispatch.origin import foreign_packages  # noqa: PLC0415

    foreign = foreign_packages()
    for message in foreign:
        _refuse(message)
    if foreign:
        return 2
    # Not before the check above: these imports would already fail in a foreign package.
    from cluster.dispatch.signals import signal_watch  # noqa: PLC0415
    from cluster.reports.terminal import guarded_streams, say  # noqa: PLC0415

    if is_program:
        signal_watch().end_after_second()
    with guarded_streams() as (out, _):
        code = _command(arguments)
        out.flush()
        if out.lost is not None:
            say(f"stdout: {out.lost.strerror}; not everything could be printed")
            code = code or 2
    return code


def _command(arguments: list[str]) -> int:
    from typer.exceptions import TyperException  # noqa: PLC0415

    from cluster.cli.commands import UserError, app  # noqa: PLC0415
    from cluster.cli.defaults import default_map, place_of  # noqa: PLC0415
    from cluster.dispatch.ray_job import keep_campaigns  # noqa: PLC0415
    from cluster.reports.terminal import say  # noqa: PLC0415
    from cluster.storage.errors import StoreError  # noqa: PLC0415

    try:
        keep_campaigns(os.environ, Path.cwd())
        defaults = default_map(app, Path.cwd())
        code = app(arguments, prog_name="specstorm", standalone_mode=False, obj=arguments, default_map=defaults)
    except UserError as error:
        say(_shortened(str(error)))
        return 2
    except TyperException as error:
        # A value of a list of words is validated by Pydantic, which puts this before its sentence.
        message = error.format_message().replace(": Value error, ", ": ", 1)
        if message:
            say(_shortened(f"{place_of(error, Path.cwd())}{message}"))
        return 2
    except StoreError as error:
        say(str(error))
        return 3
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        say(_shortened(f"{where}{error.strerror or error}"))
        return 2
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print(f"specstorm: {message}", file=sys.stderr)
    return 2


def _shortened(message: str) -> str:
    if len(message) <= MESSAGE_MAX:
        return message
    half = MESSAGE_MAX // 2
    return f"{message[:half]}... ({len(message) - 2 * half:,} characters) ...{message[-half:]}"


def _internal(error: BaseException) -> int:
    """Print that Specstorm itself failed; the exit code is never that of a finding."""
    try:
        print("specstorm: internal error, no verdict was reached:", file=sys.stderr)
        traceback.print_exception(error)
    except Exception as another:
        # What escaped from here would end the process with the exit code of a finding.
        with suppress(OSError):
            os.write(2, f"specstorm: no more can be told of it: {type(another).__name__}\n".encode())
    return 3
