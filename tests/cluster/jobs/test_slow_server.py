"""A slow or endless job server: the command ends with one message within a time limit."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from cluster.dispatch import job_server
from cluster.dispatch.job_server import JobServer, ServerError, SilenceError, within

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
VERSION = json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": "s"}).encode()
Answer = Callable[[socket.socket, threading.Event], None]


def whole(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(VERSION) + VERSION)


def silent(_: socket.socket, ended: threading.Event) -> None:
    ended.wait()


def trickling(connection: socket.socket, ended: threading.Event) -> None:
    """Send a header without end, one byte at a time."""
    connection.sendall(OK)
    while not ended.wait(0.05):
        connection.sendall(b"x")


def endless(connection: socket.socket, ended: threading.Event) -> None:
    """Send a body without end, as fast as the client reads."""
    connection.sendall(OK + b"\r\n")
    while not ended.is_set():
        connection.sendall(b" " * 65_536)


@contextmanager
def served(*answers: Answer) -> Iterator[str]:
    """Yield the address of a server that answers in these ways in turn, then repeats the last."""
    ended, left = threading.Event(), list(answers)

    def answer(connection: socket.socket, act: Answer) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            act(connection, ended)

    def accept() -> None:
        while not ended.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                act = left.pop(0) if len(left) > 1 else left[0]
                threading.Thread(target=answer, args=(connection, act), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_server, "REACH_SECONDS", 0.5)
    monkeypatch.setattr(job_server, "SILENT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(job_server, "ANSWER_BYTES_MAX", 1 << 20)


@pytest.mark.parametrize("act", [silent, trickling])
def test_a_server_that_never_ends_its_first_answer_is_refused(act: Answer) -> None:
    with served(act) as address, pytest.raises(ServerError, match=f"no Ray job server answers at {address}: "):
        JobServer(address)


@pytest.mark.parametrize("act", [silent, trickling])
def test_a_server_that_never_ends_its_second_answer_is_refused(act: Answer) -> None:
    with served(whole, act) as address, pytest.raises(ServerError, match=r"no whole answer within 0\.5 s"):
        JobServer(address)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (silent, "no whole answer within 0.5 s"),
        (trickling, "no whole answer within 0.5 s"),
        (endless, "an answer has more than 1048576 bytes"),
    ],
)
def test_a_server_that_stops_answering_about_a_job_is_given_up(
    monkeypatch: pytest.MonkeyPatch, act: Answer, said: str
) -> None:
    with served(whole) as address:
        monkeypatch.setattr(job_server, "REACH_SECONDS", 60.0)
        server = JobServer(address)
    monkeypatch.setattr(job_server, "ANSWER_SECONDS", 60.0 if act is endless else 0.5)
    with served(act) as address:
        server._client._address = server.address = address
        with pytest.raises(SilenceError, match=f"{address} does not answer: {said}"):
            server.state("job")
        assert server.log("job") == ""


def test_an_answer_in_time_is_returned_and_an_error_is_raised() -> None:
    assert within(60, lambda: 3) == 3
    with pytest.raises(TimeoutError, match="its own"):
        within(60, lambda: (_ for _ in ()).throw(TimeoutError("its own")))
