"""Main function: check the installation, run a command, turn exceptions into an exit code.

No module of ours is imported before exceptions are caught: a failing import must not look like a finding.
"""

import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

# With less memory, some library fails: OpenBLAS then ends the process with the exit code of a finding.
MEMORY_MIN = 256 << 20
# With fewer files, a library cannot open its files.
FILES_MIN = 64
# Only the start and the end of a longer message are printed.
MESSAGE_MAX = 2000
MEMORY_LIMITS = {resource.RLIMIT_AS: "v", resource.RLIMIT_DATA: "d"}


def main() -> None:
    """Run `specstorm` with this process's arguments and exit, within seconds of a second signal."""
    try:
        code = run(sys.argv[1:], is_program=True)
        pool = sys.modules.get("cluster.dispatch.pool")
        is_stuck = pool is not None and pool.is_stuck()
    except KeyboardInterrupt:
        # The second signal came while the first one was handled; Python would end this process by SIGINT.
        code, is_stuck = 128 + signal.SIGINT, True
    if is_stuck:
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str], *, is_program: bool = False) -> int:
    """Return the exit code of one command; no exception escapes.

    With `is_program`, a second signal ends this process.
    """
    try:
        return _run(arguments, is_program)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as error:
        # Shell completion exits by itself. While Ray starts, it answers SIGTERM with SystemExit(SIGTERM), before a
        # campaign's signal handler is installed.
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
            return _refuse(f"{seen}; at least {MEMORY_MIN >> 10:,} kB are required")
    # Nothing here uses BLAS; each of its threads reserves memory, and the process is interrupted if one cannot start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from cluster.dispatch.origin import foreign_packages  # noqa: PLC0415

    foreign = foreign_packages()
    for message in foreign:
        _refuse(message)
    if foreign:
        return 2
    # Imported after the check above, because these imports would already fail in a foreign package.
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
        # Pydantic validates lists of words, and prefixes its sentence with this text.
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
        # An exception here would end the process with the exit code of a finding.
        with suppress(OSError):
            os.write(2, f"specstorm: printing the error failed too: {type(another).__name__}\n".encode())
    return 3
