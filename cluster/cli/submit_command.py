"""Commands `submit`, `attach` and `extract`: run campaigns as jobs of a Ray cluster."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal, TypeAlias

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED
from cluster.cli.campaign import with_out
from cluster.cli.inputs import InputError, bundled_path
from cluster.dispatch.git import git
from cluster.dispatch.inside import write_inside
from cluster.dispatch.job import build, program, words_of
from cluster.dispatch.job_server import (
    ADDRESS_DEFAULT,
    ADDRESS_VARIABLE,
    JobServer,
    JobState,
    LinePrinter,
    ServerError,
    SilenceError,
)
from cluster.dispatch.origin import ROOT
from cluster.dispatch.ray_job import CAMPAIGNS
from cluster.dispatch.runtime_environment import (
    PROBE,
    is_checkout,
    read_probe,
    requirements_of,
    runtime_env,
    sent_tree,
)
from cluster.dispatch.session import Stop, stop_on_signal
from cluster.reports.job_log import WithoutArtefacts, from_log, home_of, replay_lines
from cluster.reports.terminal import say, show
from cluster.storage.archive import ArchiveError, Unpacked, in_the_way, note_origin, pack_command, unpack, visible_name
from cluster.storage.provenance import GIT_SECONDS_MAX, commit
from scenarios.input_file import read_file
from scenarios.strict_yaml import describe_value

PROBE_SECONDS = 120.0
FETCH_SECONDS = 300.0
# Attempts to fetch: a foreign line in the log spoils one.
FETCHES = 2
LOG_BYTES_MAX = 64 << 20
# Commands that make a campaign and take --out.
SUBMITTABLE = ("run", "hunt", "nightly", "faults measure")

Interrupt: TypeAlias = Literal["stop", "detach"]
Install: TypeAlias = Literal["auto", "yes", "no"]
Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help=f"Use this Ray job server (default: {ADDRESS_VARIABLE}, else {ADDRESS_DEFAULT})."),
]
OnInterrupt = Annotated[Interrupt, typer.Option(help="On a signal, stop the job or leave it running.")]


def submit(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help=f"Command to submit, with its options: {', '.join(SUBMITTABLE)}."),
    ],
    address: Address = None,
    job: Annotated[str | None, typer.Option("--id", metavar="ID", help="Name the job; must be a new name.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait; use `specstorm attach ID` later.")] = False,
    on_interrupt: OnInterrupt = "stop",
    install: Annotated[Install, typer.Option(help="Install packages for the job (auto: only missing ones).")] = "auto",
) -> int:
    """Run a command as a job of a Ray cluster, wait for it, and fetch its campaign.

    The exit code is the job's own. The campaign is fetched to the folder that the command's --out names; the same
    command with the same --out continues it.
    """
    parsed = _parse_command(context, command)
    name = job or f"specstorm-{parsed.name.replace(' ', '-')}-{token_hex(4)}"
    campaign = parsed.out or str(CAMPAIGNS / name)
    home = home_of(campaign)
    hindrance = in_the_way(home) if home is not None else f"{campaign}: is no folder below {CAMPAIGNS}/"
    if home is None or hindrance is not None:
        raise InputError(f"{hindrance}; give the command another --out")
    server = JobServer(_address(address))
    words = [*parsed.words, *([] if parsed.out else ["--out", campaign])]
    metadata = {
        "specstorm": build(),
        "command": shlex.join(command),
        "campaign": campaign,
        "program": program(),
        **({"commit": commit()} if commit() else {}),
    }
    try:
        server.check_new(name)
        with sent_tree(parsed.sent) as tree:
            environment, how = _environment(server, name, tree, install, ["gpu"] if parsed.needs_gpu_extra else [])
            server.submit(name, shlex.join(["python", "-m", "cluster", *words]), environment, metadata)
    except SilenceError as error:
        say(str(error))
        return EXIT_NOT_JUDGED
    note_origin(home, name, server.address, campaign)
    show(f"job {name} at {server.address}: {how}", to=sys.stderr)
    if detach:
        show(f"continue with: {_attach_line(name, server)}", to=sys.stderr)
        return EXIT_AGREED
    return _follow_and_fetch(server, name, on_interrupt)


def attach(
    job: Annotated[str, typer.Argument(metavar="ID", help="ID of a running or ended job.")],
    address: Address = None,
    on_interrupt: OnInterrupt = "detach",
) -> int:
    """Follow a job to its end and fetch its campaign; the exit code is the job's own."""
    return _follow_and_fetch(JobServer(_address(address)), job, on_interrupt)


def extract(
    file: Annotated[Path, typer.Argument(metavar="LOG", help="File with a job's log, or - for stdin.")],
) -> int:
    """Write the artefacts that a job's log contains, if nothing else of the job is left."""
    content = sys.stdin.buffer.read(LOG_BYTES_MAX + 1) if str(file) == "-" else read_file(file, LOG_BYTES_MAX)
    if len(content) > LOG_BYTES_MAX:
        raise InputError(f"{file}: more than {LOG_BYTES_MAX} bytes; cut the log to its end, where artefacts are")
    text = content.decode("utf-8", "replace")
    artefacts = from_log(text)
    if not artefacts:
        raise InputError(f"{file}: has no artefacts of a job; a job without findings writes none")
    hindrances = [why for home in {path.parents[1] for path in artefacts} if (why := in_the_way(home)) is not None]
    hindrances += [f"{path}: exists with another content" for path in artefacts if _differs(path, artefacts)]
    if hindrances:
        raise InputError(f"{hindrances[0]}; run it in another folder")
    for path, text in artefacts.items():
        write_inside(path.parents[1], f"artefacts/{path.name}", text)
        show(str(path))
    for line in replay_lines(artefacts):
        show(f"replay: {line.replace('specstorm', program(), 1)}")
    return EXIT_AGREED


def _differs(path: Path, artefacts: Mapping[Path, str]) -> bool:
    """Return whether the file at an artefact's path exists and has other content."""
    return os.path.lexists(path) and (not path.is_file() or read_file(path, LOG_BYTES_MAX) != artefacts[path].encode())


@dataclass(frozen=True, slots=True)
class _JobCommand:
    """A command for a job: name, arguments for the job's folder, --out, extras to install.

    `sent` are input files by the names under which they are sent.
    """

    name: str
    words: tuple[str, ...]
    out: str | None
    needs_gpu_extra: bool
    sent: Mapping[str, Path]


def _parse_command(context: typer.Context, words: Sequence[str]) -> _JobCommand:
    """Parse a command as this program would, without running it."""
    name = " ".join(words[:2]) if words[0] == "faults" else words[0]
    if name not in SUBMITTABLE:
        raise InputError(f"{name!r} cannot be submitted; allowed are {', '.join(SUBMITTABLE)}")
    command: Any = context.find_root().command
    for part in name.split():
        command = command.get_command(context, part)
    values = command.make_context(name, list(words[len(name.split()) :]), parent=context).params
    if values["ray"] != "auto":
        raise InputError(f"--ray is {values['ray']}; a submitted job uses the cluster of its job server")
    out = values["out"]
    if out is not None and not out.is_absolute() and home_of(str(out)) != out:
        wanted = f"a folder in {CAMPAIGNS}/, which is fetched, or an absolute one on shared storage"
        raise InputError(f"--out is {out}; a job takes {wanted}")
    inputs = [path for value in values.values() for path in _paths(value) if path != out]
    if is_checkout():
        moved, sent = {str(path): _in_tree(path) for path in inputs}, dict[str, Path]()
    else:
        own = [path for path in inputs if bundled_path(path) == path and path.exists()]
        moved = {str(path): f"inputs/{number}/{path.name}" for number, path in enumerate(own)}
        sent = {moved[str(path)]: path for path in own}
    return _JobCommand(
        name,
        tuple(moved.get(word, word) for word in words),
        None if out is None else str(out),
        needs_gpu_extra=values.get("device", "sim") != "sim",
        sent=sent,
    )


def _paths(value: object) -> Iterable[Path]:
    if isinstance(value, Path):
        return [value]
    return [each for each in value if isinstance(each, Path)] if isinstance(value, list | tuple) else []


def _in_tree(path: Path) -> str:
    """Return the path of an input in the working tree that is sent.

    An absolute path that does not exist here is on the cluster. A bundled name has the same meaning there.
    """
    absolute = Path(os.path.abspath(path))
    if bundled_path(path) != path:
        return str(path)
    if not absolute.exists():
        if not path.is_absolute() and not (ROOT / path).exists():
            raise InputError(f"{path}: no such file or folder")
        return str(path)
    if not absolute.is_relative_to(ROOT):
        raise InputError(f"{path}: is outside of {ROOT}, the tree that a job is sent with")
    ignored = git(ROOT, "check-ignore", "--quiet", "--", str(absolute), seconds=GIT_SECONDS_MAX)
    if ignored.returncode == 0:
        raise InputError(f"{path}: is ignored by git and not sent with a job; copy it to a folder that is not")
    return absolute.relative_to(ROOT).as_posix()


def _address(given: str | None) -> str:
    return given or os.environ.get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT


def _environment(
    server: JobServer, job: str, tree: Path, install: Install, extras: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Return the runtime environment of a job that is sent with a tree, and its description."""
    wanted = requirements_of(tree, extras)
    what = "the working tree" if is_checkout() else f"the installed specstorm {build()}"
    if install == "no":
        return runtime_env(tree, ()), f"{what} alone, because of --install no"
    if install == "yes":
        return runtime_env(tree, wanted.installable()), f"{what}, and all packages installed for it"
    unknown = f"{server.address}: its packages could not be listed; use --install yes or --install no"
    try:
        installed = read_probe(server.output_of(f"{job}-probe-{token_hex(2)}", PROBE, PROBE_SECONDS))
    except ServerError as error:
        raise ServerError(f"{unknown} ({error})") from error
    if installed is None:
        raise ServerError(unknown)
    misfits = wanted.misfits(installed)
    if misfits:
        raise ServerError(f"{server.address}: {'; '.join(misfits)}; use another cluster or image")
    lacking = wanted.lacking(installed)
    if not lacking:
        return runtime_env(tree, ()), f"{what} alone; Python {installed.python} there has every package"
    return runtime_env(tree, lacking), f"{what}, and installed for it: {', '.join(lacking)}"


def _attach_line(job: str, server: JobServer) -> str:
    return f"{program()} {shlex.join(['attach', '--address', server.address, job])}"


def _resume_line(server: JobServer, state: JobState) -> str:
    """Return the command that resumes a stopped job's campaign."""
    words, campaign = _stored_command(state.metadata)
    if not words or campaign is None:
        return "submit it again with the same --out to continue"
    again = with_out(words, campaign)
    return f"continue with: {program()} {shlex.join(['submit', '--address', server.address, *again])}"


def _stored_command(metadata: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the command and the campaign folder that `submit` stored with a job.

    A job submitted in another way has no words, and a folder only if it made a campaign.

    Raises:
        InputError: the metadata were not written by `submit`.
    """
    command, campaign = metadata.get("command", ""), metadata.get("campaign") or metadata.get("folder")
    try:
        words = words_of(command)
    except ValueError as error:
        raise InputError(
            f"its command is {describe_value(command)}: {error}; expected a command written by `submit`"
        ) from error
    if words and campaign is None:
        raise InputError(
            f"its command is {describe_value(command)}, and it names no campaign; "
            "expected a command written by `submit`"
        )
    return words, campaign


def _follow_and_fetch(server: JobServer, job: str, on_interrupt: Interrupt) -> int:
    """Follow a job, fetch its results, and return its exit code."""
    stop = Stop()
    printer = LinePrinter(WithoutArtefacts(show))
    try:
        with stop_on_signal(stop):
            state = server.follow(job, printer, stop, on_interrupt == "stop")
    except SilenceError as error:
        say(f"{error}; the job may still be running: {_attach_line(job, server)}")
        return EXIT_NOT_JUDGED
    if not state.has_ended:
        show(f"left job {job} running; continue with: {_attach_line(job, server)}", to=sys.stderr)
        return 128 + (stop.signum or 0)
    try:
        _stored_command(state.metadata)
        said = brought_home(server, job, state)
    except ValueError as error:
        raise InputError(f"job {job}: {error}") from error
    show(said, to=sys.stderr)
    code, remark = state.own_code(stop.signum)
    if remark:
        how = f"; {_resume_line(server, state)}" if state.status == "STOPPED" else ""
        say(f"{remark}{how}")
    return code


def _fetch_campaign(server: JobServer, job: str, campaign: str, home: Path) -> Unpacked | None:
    """Run a small job that packs a campaign, and unpack the campaign from its log.

    On failure print the reason and return None.

    Raises:
        ArchiveError: the archive is not that of a campaign.
    """
    for _ in range(FETCHES):
        fetch = f"{job}-fetch-{token_hex(4)}"
        try:
            output = server.output_of(fetch, pack_command(campaign), FETCH_SECONDS)
        except (ServerError, SilenceError) as error:
            say(str(error))
            return None
        try:
            unpacked = unpack(output, home)
        except ArchiveError as error:
            raise ArchiveError(f"its campaign was not brought home: job {fetch} printed an archive: {error}") from error
        if unpacked is not None:
            return unpacked
        say(f"job {fetch} printed an incomplete campaign: {output[-80:]!r}")
    return None


def _left_out_text(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    return f"; skipped files that no campaign has: {len(paths)} files, the first is {visible_name(paths[0])}"


def brought_home(server: JobServer, job: str, state: JobState) -> str:
    """Copy the campaign of an ended job to this machine; return the folder's path.

    Raises:
        InputError: the folder belongs to another campaign of this machine, or the metadata name no folder.
        ArchiveError: the archive is not that of a campaign.
    """
    _, campaign = _stored_command(state.metadata)
    if campaign is None:
        return f"job {job} made no campaign"
    home = home_of(campaign)
    if home is not None and Path(campaign).is_absolute() and (Path(campaign) / "campaign.sqlite").exists():
        return f"the campaign is in {campaign}, also on this machine"
    if home is None:
        raise InputError(f"its campaign was not brought home: {describe_value(campaign)} names no folder of a campaign")
    hindrance = in_the_way(home, job, server.address)
    if hindrance is not None:
        raise InputError(f"its campaign was not brought home: {hindrance}")
    # Other folders of the job's working folder were deleted with it.
    is_left = Path(campaign).is_absolute() or home == Path(campaign)
    unpacked = _fetch_campaign(server, job, campaign, home) if is_left else None
    if unpacked is not None:
        note_origin(home, job, server.address, campaign)
        part = "" if unpacked.is_whole else ", without its store, which is too big for a log"
        number = f"{unpacked.artefacts} {'artefact' if unpacked.artefacts == 1 else 'artefacts'}"
        return f"brought home: {home} ({number}{part}{_left_out_text(unpacked.left_out)})"
    artefacts = from_log(server.log(job))
    for path, text in artefacts.items():
        write_inside(home, f"artefacts/{path.name}", text)
    if artefacts:
        note_origin(home, job, server.address, campaign)
        return f"the campaign could not be fetched; from the job's log: {len(artefacts)} artefacts in {home}"
    return f"the campaign could not be fetched, and the job's log has no artefacts; on the head node it was {campaign}"
