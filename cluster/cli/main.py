"""Main function: check the installation, run a command, turn what escapes it into an exit code."""

import os
import signal
import sys
import traceback

from cluster.dispatch.origin import foreign_packages


def main() -> None:
    """Run `specstorm` with the arguments of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Return the exit code of one command; no exception escapes."""
    foreign = foreign_packages()
    if foreign:
        for message in foreign:
            print(f"specstorm: {message}", file=sys.stderr)
        return 2
    # Not before the check above: these imports would already fail in a foreign package.
    from typer.exceptions import TyperException  # noqa: PLC0415

    from cluster.campaigns.exit_codes import EXIT_BAD_INPUT, EXIT_NOT_JUDGED  # noqa: PLC0415
    from cluster.cli.commands import UserError, app  # noqa: PLC0415

    try:
        code = app(arguments, prog_name="specstorm", standalone_mode=False)
    except UserError as error:
        print(f"specstorm: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except TyperException as error:
        if error.format_message():
            print(f"specstorm: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as error:
        # Ray answers SIGTERM with SystemExit(SIGTERM) while it starts, before the handler of a campaign is in place.
        return 128 + signal.SIGTERM if error.code == signal.SIGTERM else EXIT_NOT_JUDGED
    except BrokenPipeError:
        # The reader of our output has gone; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NOT_JUDGED
    except Exception:
        print("specstorm: internal error, no verdict was reached:", file=sys.stderr)
        traceback.print_exc()
        return EXIT_NOT_JUDGED
    return code if isinstance(code, int) else 0
