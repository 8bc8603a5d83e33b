"""Client of a Ray job server: submit, follow and stop jobs, and read their state and log.

Ray is imported when a client is created.
"""

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from cluster.dispatch.reach import token_file
from cluster.dispatch.session import Stop
from scenarios.visible import visible_line

ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
ADDRESS_DEFAULT = "http://127.0.0.1:8265"
POLL_SECONDS = 0.3
# A log that cannot be streamed is read again completely at this interval.
READ_SECONDS = 5.0
# Loggers that report every skipped file of an upload, and how a stream ended.
VERBOSE_LOGGERS = (
    "ray.dashboard.modules.job.sdk",
    "ray.dashboard.modules.dashboard_sdk",
    "ray._private.runtime_env.packaging",
    "ray._private.runtime_env.working_dir",
)
# The end of a log reaches the stream late; after this time the rest is read from the complete log.
TAIL_SECONDS = 1.0
REACH_SECONDS = 30.0
# A new head node answers before it accepts jobs, by this much at most.
AGENT_SECONDS = 30.0
NO_AGENT = "No available agent"
# The agent starts drivers and observes their end; a driver that was not started, or was killed, logs nothing itself.
AGENT_LOG = "dashboard_agent.log in the head's /tmp/ray/session_latest/logs says more"
NO_AGENT_HINT = (
    "; if another Ray of this host uses port 52365, give the head another one: --dashboard-agent-listen-port N; "
    f"{AGENT_LOG}"
)
# A server without an answer for this long is given up; its job may continue.
SILENT_SECONDS_MAX = 60.0
# Limits of one answer: its time, its time for a submission with an upload, and its size.
ANSWER_SECONDS = 20.0
SUBMIT_SECONDS = 600.0
ANSWER_BYTES_MAX = 256 << 20
OWN_CODES = (0, 1, 2, 3, 130, 143)
NOT_JUDGED = 3

_Answer = TypeVar("_Answer")
Status: TypeAlias = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]


class ServerError(ValueError):
    """A Ray job server cannot be used, or refuses a job; the message is one line for users."""


class SilenceError(RuntimeError):
    """A job server stopped answering while a job was being followed."""


@dataclass(frozen=True, slots=True)
class JobState:
    """State of a job on its server; `exit_code` is the driver's, if it has one."""

    status: Status
    exit_code: int | None
    message: str
    metadata: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")

    def own_code(self, signum: int | None) -> tuple[int, str]:
        """Return the exit code of the command that follows the job, and a remark or "".

        `signum` is the signal by which this command stopped the job. An exit code that no driver returns means that the
        job was not judged completely: the driver was killed, or its command was not found.
        """
        assert self.has_ended, f"a job that is {self.status} has no exit code"
        if self.status == "STOPPED":
            return 128 + (signum or signal.SIGTERM), "the job was stopped"
        if self.exit_code in OWN_CODES:
            return self.exit_code, ""
        if self.exit_code is None:
            return NOT_JUDGED, f"the job failed: {_line(self.message)}; {AGENT_LOG}"
        if self.exit_code < 0:
            killed = f"the driver was killed by signal {-self.exit_code}; submit the job again to continue"
            return NOT_JUDGED, f"{killed}; {AGENT_LOG}"
        code = f"the driver ended with exit code {self.exit_code}; specstorm never returns it"
        return NOT_JUDGED, f"{code}; {AGENT_LOG}"


class JobServer:
    """Client of one Ray job server: submits, follows and stops jobs.

    Raises:
        ServerError: nothing answers at the address, or it refuses access.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"--address is {address}; expected the URL of a job server, as in {ADDRESS_DEFAULT}")
        self.address = address.rstrip("/")
        self._client = _connect(self.address)

    def submit(
        self, job: str, entrypoint: str, runtime_env: Mapping[str, Any], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Submit a job to the server.

        Raises:
            ServerError: the server refuses it, or the id was used before: a job never runs twice.
        """
        self.check_new(job)
        given_up = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                within(
                    SUBMIT_SECONDS,
                    lambda: self._client.submit_job(
                        entrypoint=entrypoint,
                        submission_id=job,
                        runtime_env=dict(runtime_env),
                        metadata=dict(metadata or {}),
                    ),
                )
                return
            except (
                Exception
            ) as error:  # the SDK raises exceptions of its HTTP library, RuntimeError, ValueError, TypeError
                is_early = NO_AGENT in str(error)
                if not is_early or time.monotonic() > given_up:
                    hint = NO_AGENT_HINT if is_early else ""
                    raise ServerError(
                        f"job {job} was not taken by {self.address}: {_line(str(error))}{hint}"
                    ) from error
            time.sleep(1.0)

    def check_new(self, job: str) -> None:
        """Refuse a job id that the server has already.

        Raises:
            ServerError: it has one.
        """
        before = self.state(job)
        if before is not None:
            how = f"follow it with `specstorm attach {job}`, or give another --id"
            raise ServerError(f"job {job} exists already, {before.status.lower()}; it is not run twice: {how}")

    def state(self, job: str) -> JobState | None:
        """Return the state of a job, None if the server has no job of that id."""
        from requests import RequestException  # noqa: PLC0415  comes with Ray's client

        began = time.monotonic()
        while True:
            try:
                details = within(ANSWER_SECONDS, lambda: self._client.get_job_info(job))
            except (RequestException, RuntimeError, TimeoutError) as error:
                if "status code 404" in str(error):
                    return None
                # A busy server may be late, or report an internal error for a moment.
                if time.monotonic() - began > SILENT_SECONDS_MAX:
                    raise SilenceError(f"{self.address} does not answer: {_line(str(error))}") from error
                time.sleep(POLL_SECONDS)
            else:
                metadata = {str(key): str(value) for key, value in (details.metadata or {}).items()}
                code = details.driver_exit_code
                return JobState(details.status.value, code, details.message or "", metadata)

    def known(self, job: str) -> JobState:
        """Return the state of a job, or raise if the server has no such job.

        Raises:
            ServerError: the server has no job of that id.
        """
        found = self.state(job)
        if found is None:
            raise ServerError(f"{self.address} has no job {job}; `ray job list` names those it has")
        return found

    def log(self, job: str) -> str:
        """Return the log of a job so far, empty if it cannot be read."""
        try:
            return str(within(ANSWER_SECONDS, lambda: self._client.get_job_logs(job)))
        except Exception:  # a log may be lost with its node; the SDK raises exceptions of its HTTP library
            return ""

    def stop(self, job: str) -> None:
        """Ask a job to stop."""
        try:
            within(ANSWER_SECONDS, lambda: self._client.stop_job(job))
        except Exception as error:
            raise SilenceError(f"job {job} could not be stopped: {_line(str(error))}") from error

    def follow(self, job: str, printer: "LinePrinter", stop: Stop, stops_job: bool) -> JobState:
        """Print the log of a job until it ends, and return its state.

        A signal stops the job, or only the printing without `stops_job`.
        """
        tail = _Tail(self._client, job)
        asked, read_at = False, time.monotonic() + READ_SECONDS
        while True:
            for text in tail.texts():
                printer.feed(text)
            state = self.known(job)
            if state.has_ended:
                break
            if stop.signum is not None and not asked:
                if not stops_job:
                    return state
                asked = True
                print(visible_line(f"specstorm: stopping job {job}; a second signal leaves it alone"), file=sys.stderr)
                self.stop(job)
            if not tail.lives and time.monotonic() > read_at:
                read_at = time.monotonic() + READ_SECONDS
                printer.catch_up(self.log(job))
            time.sleep(POLL_SECONDS)
        tail.wait(TAIL_SECONDS)
        for text in tail.texts():
            printer.feed(text)
        printer.catch_up(self.log(job))
        printer.close()
        return state

    def output_of(self, job: str, entrypoint: str, seconds: float) -> str:
        """Run a small job, without a working folder, and return its output.

        Raises:
            ServerError: it is refused, failed, or took too long.
        """
        self.submit(job, entrypoint, {})
        end = time.monotonic() + seconds
        while not (state := self.known(job)).has_ended:
            if time.monotonic() > end:
                self.stop(job)
                raise ServerError(f"job {job} has not ended after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        # The job stays in the server's list: if it is deleted so soon, Ray lists it again as failed.
        if state.status != "SUCCEEDED":
            raise ServerError(f"job {job} {state.status.lower()}: {_line(state.message)}; {AGENT_LOG}")
        return self.log(job)


class LinePrinter:
    """Prints each line of a log once, from its stream or from the complete log."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._num_lines = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        """Print the lines completed by the next piece of the stream."""
        assert "\n" not in self._rest, "a line that has ended is printed at once"
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._num_lines += 1
            self._show(line)

    def catch_up(self, log: str) -> None:
        """Print the lines of the complete log that were not printed yet."""
        *lines, rest = log.split("\n")
        if len(lines) >= self._num_lines:
            self._rest = ""
            self.feed("\n".join([*lines[self._num_lines :], rest]))
            assert self._num_lines == len(lines), f"{self._num_lines} lines are printed, the log has {len(lines)}"

    def close(self) -> None:
        """Print the last line if it has no line break."""
        assert "\n" not in self._rest, "a line that has ended is printed at once"
        if self._rest:
            self._show(self._rest)
            self._rest = ""


class _Tail:
    """Thread that reads the log stream of a job."""

    def __init__(self, client: Any, job: str) -> None:
        self._texts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(client, job), daemon=True)
        self._thread.start()

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def texts(self) -> Iterator[str]:
        while not self._texts.empty():
            yield self._texts.get()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self, client: Any, job: str) -> None:
        async def read() -> None:
            async for text in client.tail_job_logs(job):
                self._texts.put(text)

        try:
            asyncio.run(read())
        except Exception:  # the stream is a convenience: without it the log is read as a whole
            return


def _connect(address: str) -> Any:
    """Return Ray's client of a server, with Ray's token if the server requires one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray reads the mode once per process: find out what the server requires before Ray is imported.
    if asks_for_token(address):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    # Ray would prefer either variable to the address.
    for name in (ADDRESS_VARIABLE, "RAY_ADDRESS"):
        os.environ.pop(name, None)
    from ray.exceptions import AuthenticationError  # noqa: PLC0415
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415

    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        client: Any = within(REACH_SECONDS, lambda: JobSubmissionClient(address))
        client._do_request = partial(client._do_request, stream=True, hooks={"response": _read_bounded})
    except AuthenticationError as error:
        has_token = os.environ.get("RAY_AUTH_TOKEN") or token_file().is_file()
        seen = "its token is not the cluster's" if has_token else "there is no token"
        where = "RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
        raise ServerError(f"{address} requires its token, and {seen}: put it into {where}") from error
    except Exception as error:  # the SDK raises ConnectionError, and exceptions of its HTTP library
        raise ServerError(f"{address} is no Ray job server: {_line(str(error))}") from error
    return client


def within(seconds: float, ask: Callable[[], _Answer]) -> _Answer:
    """Call `ask` and return its answer; raise if it takes longer than a time limit.

    HTTP timeouts limit only single pieces of it.

    Raises:
        TimeoutError: the answer is not complete in time; its thread continues and is ignored.
        Exception: any exception of `ask`.
    """
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():
            raise
        raise TimeoutError(f"no whole answer within {seconds:g} s") from None


def _read_bounded(response: Any, **_: object) -> None:
    """Read the body of an answer, refusing one that is too large."""
    body = bytearray()
    for chunk in response.iter_content(1 << 16):
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            response.close()
            raise RuntimeError(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
    response._content = bytes(body)


def asks_for_token(address: str) -> bool:
    """Whether a server requires a token.

    Raises:
        ServerError: nothing answers.
    """
    try:
        within(REACH_SECONDS, lambda: urllib.request.urlopen(f"{address}/api/version", timeout=REACH_SECONDS).close())
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        how = "ray_configs/local/head.sh starts one on this machine; --address names another"
        raise ServerError(f"no Ray job server answers at {address}: {reason}; {how}") from error
    return False


def _line(text: str) -> str:
    """Return an error's cause: the last line of a traceback, else the first line of the text."""
    lines = text.strip().splitlines() or [""]
    line = lines[-1] if any(each.startswith("Traceback") for each in lines) else lines[0]
    return line.strip().rstrip(".")
