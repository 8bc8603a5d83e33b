"""Fuzz the parsers of foreign text: archives, job logs, job metadata, engine messages.

Verifies: only documented errors are raised, no file is written outside a campaign and no link inside, and no run takes
long. Does not verify: the values that are read.

    python -m benchmarks.robustness.parser_fuzz --runs 10000
"""

import argparse
import base64
import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from cluster.cli.inputs import InputError
from cluster.cli.submit_command import brought_home
from cluster.dispatch.job_server import JobServer, JobState
from cluster.dispatch.ray_job import CAMPAIGNS, job_id, job_metadata, reader_program
from cluster.reports.job_log import WithoutArtefacts, from_log, replay_lines
from cluster.reports.terminal import printable
from cluster.storage.archive import ArchiveError, unpack
from workers.targets.child import answers
from workers.targets.child.messages import MessageError, message_in, read_message

SECONDS_MAX = 2.0
MEMORY_MAX = 4 << 30
TRACE = "events:\n- {tick: 0, do: submit, request: r0, prompt: {tokens: 2}, max_tokens: 2, accept: {rate: 0.5}}\n"
NAMES = (
    *("a", "./artefacts/kv-0123abcd.yaml", "campaign.sqlite", "running/x.yaml", "artefacts", "campaign.lock", "."),
    *(
        "../outside",
        "/tmp/outside",
        "..",
        "/",
        "",
        "a/../../outside",
        "n" * 300,
        "d/" * 300,
        "a\0b",
        "é",
        "\udcff",
        "\n",
    ),
)
FOLDERS = (
    *("campaigns/run-0001", "campaigns", "campaigns/..", "campaigns/a/../../b", "/data/run-0001", "/data/..", "/", "."),
    *("", "~", "campaigns/" + "n" * 300, "/" + "d/" * 3000, "a\0b", "/a\0b", "campaigns/\udcff", "/\udcff", "\x1b[2J"),
    *("campaigns/linked/a", "campaigns/inside", "campaigns/run-0001/artefacts", "//x", "campaigns//x", "-rf", "$(id)"),
)
LOG = (
    f"----- artefact campaigns/run-0001/artefacts/kv-0123abcd.yaml\n{TRACE}----- end of artefact\n"
    f"Ray says something\n----- artefact /data/run-2/artefacts/counts-00000000.yaml\n{TRACE}----- end of artefact\n"
    "----- 3 more in campaigns/run-0001/artefacts: a, b, c\n"
)
ENVIRONMENTS = (
    '{"metadata": {"job_submission_id": "raysubmit_1", "program": "specstorm", "campaign": "campaigns/run-0001"}}',
    '{"metadata": []}',
    "[]",
    "null",
    "{" * 2000,
    "[" * 100_000,
    '{"metadata": {"job_submission_id": ' + "1" * 5000 + "}}",
)
SEEN = [
    {"point": "margins", "step": 2, "requests": [0], "values": {"margins": [0.5]}},
    {"point": "inputs", "step": 3, "requests": [0], "values": {"input_ids": [1], "slots": [[1]], "is": [True]}},
    {"point": "processed", "step": 3, "requests": [0], "values": {"sampled": [[1, 2]]}},
]
DELIVERY = {"request": "a", "output": [[1], None, [1, -0.5], []], "is_late": False}
MESSAGES = (
    {"number": 3, "answer": {"seen": SEEN, "deliveries": [DELIVERY], "drained": False, "probes": {"x": 1}}},
    {"number": 3, "answer": {"seen": SEEN, "races": [], "counts": {"launches": 7}}},
    {"number": 3, "answer": {}},
    {"number": 3, "error": "IndexError: 7", "where": {"function": "f"}},
    {"number": 3, "answer": {"version": "0.32.0"}},
)
KINDS = (answers.Stepped, answers.Reported, answers.Nothing, answers.Greeting, answers.Harmed)
# Bytes that are spliced into an input.
SPLICES = (
    *(b"\0", b"\n", b"\r", b"\xff", b"\x1b[2J", b"{", b"}" * 9, b"[" * 3000, b'"', b"-1", b"1e999", b"NaN", b"\\ud800"),
    *(b"9" * 5000, b"null", b"true", b"&a [*a]", b"../", b"!!python/object:os.system", "\u2028é".encode(), b" " * 999),
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes after up to 16 random flips, cuts, repeats, moves or splices."""
    content = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(content) + 1)
        end = min(len(content), at + rng.choice((1, 1, 4, 64, 4096)))
        match rng.randrange(6):
            case 0 if at < len(content):
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:end]
            case 2:
                content[at:at] = content[at:end] * rng.choice((1, 1, 50))
            case 3:
                content[at:end] = rng.choice(SPLICES)
            case 4:
                content[at:at] = rng.choice(SPLICES)
            case _:
                piece = content[at:end]
                del content[at:end]
                to = rng.randrange(len(content) + 1)
                content[to:to] = piece
    return bytes(content)


def mutated_text(text: str, rng: random.Random) -> str:
    """Mutate the UTF-8 bytes of `text`; invalid bytes become lone surrogates or U+FFFD."""
    return mutated(text.encode("utf-8", "surrogateescape"), rng).decode(
        "utf-8", rng.choice(("replace", "surrogateescape"))
    )


def archive_log(rng: random.Random) -> str:
    """Return the log of a packing job, mutated in or after one of its layers."""
    buffer = io.BytesIO()
    form = rng.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for _ in range(rng.randrange(5)):
            with contextlib.suppress(ValueError):
                tar.addfile(*_member(rng, form))
    layer = rng.randrange(4)
    content = mutated(buffer.getvalue(), rng) if layer == 0 else buffer.getvalue()
    packed = gzip.compress(content, compresslevel=1, mtime=0)
    packed = mutated(packed, rng) if layer == 1 else packed
    mark = rng.choice(("specstorm-archive-whole", "specstorm-archive-part"))
    log = f"Running entrypoint\n{mark}\n{base64.encodebytes(packed).decode()}specstorm-archive-end\n"
    return mutated_text(log, rng) if layer == 2 else log


def _member(rng: random.Random, form: int) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(rng.choice(NAMES))
    content = rng.choice((b"", b"x", TRACE.encode(), bytes(5000)))
    kinds = (
        tarfile.DIRTYPE,
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.GNUTYPE_SPARSE,
    )
    info.type = tarfile.REGTYPE if rng.random() < 0.8 else rng.choice(kinds)
    info.linkname = rng.choice(NAMES) if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    info.size = len(content) if info.type == tarfile.REGTYPE else 0
    info.mode = rng.choice((0o644, 0o777, 0, 0o7777))
    info.mtime = rng.choice((0, 1_700_000_000, -1, 2**33)) if form != tarfile.USTAR_FORMAT else 0
    info.uid = rng.choice((0, 2**21 - 1))
    return info, io.BytesIO(content)


def fuzz_archive(rng: random.Random) -> None:
    """Unpack a mutated archive log below `campaigns`."""
    home = CAMPAIGNS / rng.choice(("a", "run-0001"))
    with contextlib.suppress(ArchiveError):
        unpacked = unpack(archive_log(rng), home)
        assert unpacked is None or unpacked.artefacts >= 0, "the number of artefacts is not negative"
    left = [path.name for path in CAMPAIGNS.iterdir() if path.name.startswith(".")]
    assert not left, f"left behind: {left}"


def fuzz_log(rng: random.Random) -> None:
    """Read artefacts from a mutated job log."""
    log = mutated_text(LOG.replace("run-0001", rng.choice((*FOLDERS, "run-0001"))), rng)
    artefacts = from_log(log)
    for path in artefacts:
        parts = path.parts
        assert parts[0] == CAMPAIGNS.name, f"{path} is not below {CAMPAIGNS}"
        assert ".." not in parts, f"{path} leads out of {CAMPAIGNS}"
    assert len(replay_lines(artefacts)) <= len(artefacts), "at most one line for each artefact"
    lines: list[str] = []
    show = WithoutArtefacts(lambda line: lines.append(printable(line)))
    for line in log.split("\n"):
        show(line)
    assert all(map(str.isprintable, lines)), "no line contains control characters"


class Server:
    """A job server that returns mutated output."""

    address = "http://127.0.0.1:1"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def output_of(self, job: str, entrypoint: str, seconds: float) -> str:
        """Return the mutated log of a job that packs a campaign."""
        return archive_log(self._rng)

    def log(self, job: str) -> str:
        """Return the mutated log of the job itself."""
        return mutated_text(LOG, self._rng)


def fuzz_metadata(rng: random.Random) -> None:
    """Read mutated job metadata from the environment, and fetch the campaign in it."""
    environment = {"RAY_JOB_CONFIG_JSON_ENV_VAR": mutated_text(rng.choice(ENVIRONMENTS), rng)}
    metadata: Mapping[str, str] = job_metadata(environment)
    assert job_id(environment) is None or job_id(environment) in metadata.values(), "the id is in the metadata"
    assert reader_program(environment) is None or job_id(environment), "a program needs a job"
    folder = rng.choice(FOLDERS)
    folder = mutated_text(folder, rng) if rng.random() < 0.5 else folder
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        state = JobState("SUCCEEDED", 0, "", {rng.choice(("campaign", "folder")): folder})
        try:
            told = brought_home(cast(JobServer, Server(rng)), "job-1", state)
        except (InputError, ArchiveError) as error:
            told = str(error)
    assert all(char.isprintable() for char in told + said.getvalue().replace("\n", "")), f"a terminal obeys: {told!r}"


def fuzz_messages(rng: random.Random) -> None:
    """Read a mutated message of an engine's process."""
    content = mutated(json.dumps(rng.choice(MESSAGES)).encode() + b"\n", rng)
    stream = io.BytesIO(content)
    with contextlib.suppress(MessageError):
        while read_message(stream) is not None:
            pass
    for read in (message_in, lambda line: answers.answer_in(line, 3, rng.choice(KINDS))):
        with contextlib.suppress(MessageError):
            read(content)


PARSERS: Mapping[str, Callable[[random.Random], None]] = {
    "archive": fuzz_archive,
    "log": fuzz_log,
    "metadata": fuzz_metadata,
    "messages": fuzz_messages,
}


@contextlib.contextmanager
def playground() -> Iterator[Path]:
    """Change into a temporary folder with `campaigns`, and links out of it, for a `with` block."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="specstorm-fuzz-") as name:
        (Path(name) / "here").mkdir()
        (Path(name) / "outside").mkdir()
        os.chdir(Path(name) / "here")
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def _furnish() -> None:
    """Create the folder `campaigns` anew: a real campaign, and links that lead out of the folder."""
    shutil.rmtree(CAMPAIGNS, ignore_errors=True)
    (CAMPAIGNS / "inside").mkdir(parents=True)
    (CAMPAIGNS / "linked").symlink_to("../../outside")
    for name in ("artefacts", "running"):
        (CAMPAIGNS / "inside" / name).symlink_to("../../../outside")


def wrong_of(parser: str, seed: int, folder: Path) -> str | None:
    """Run one parser on one mutated text; return a description of what went wrong, or None."""
    _furnish()
    begin = time.process_time()
    try:
        PARSERS[parser](random.Random(f"{parser} {seed}"))
    except Exception as error:  # no exception is documented here
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    seconds = time.process_time() - begin
    if seconds > SECONDS_MAX:
        return f"took {seconds:.1f} s"
    outside = [
        *(folder / "outside").iterdir(),
        *(path for path in (folder / "here").iterdir() if path.name != "campaigns"),
    ]
    links = {path for path in CAMPAIGNS.rglob("*") if path.is_symlink()}
    made = links - {CAMPAIGNS / name for name in ("linked", "inside/artefacts", "inside/running")}
    return f"written outside: {outside}, links: {made}" if outside or made else None


def main() -> int:
    """Run each parser on many mutated texts; print failures, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="runs of each parser (default 10,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARSERS)
    chosen = parser.parse_args()
    # Unbounded reading fails at this limit instead of exhausting the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    counts: Counter[str] = Counter()
    with playground() as folder:
        for name in PARSERS if chosen.only is None else (chosen.only,):
            begin, slowest = time.monotonic(), 0.0
            for seed in range(chosen.seed, chosen.seed + chosen.runs):
                started = time.monotonic()
                wrong = wrong_of(name, seed, folder)
                slowest = max(slowest, time.monotonic() - started)
                if wrong is not None:
                    counts[name] += 1
                    print(f"{name}, seed {seed}: {wrong}")
            seconds = time.monotonic() - begin
            print(f"{name}: {chosen.runs} runs in {seconds:.0f} s, the slowest {slowest:.2f} s; {counts[name]} wrong")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
