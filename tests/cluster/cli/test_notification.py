"""Notification after a night, by command or URL; a failure is reported without other effect."""

import shlex
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cluster.cli.inputs import InputError
from cluster.cli.notification import check_notify, notify_of
from cluster.storage.provenance import this_run

DOCUMENT = '{"exit_code": 1, "note": "\u00e4"}'


class Received(HTTPServer):
    """A server that stores what was posted to it; path `/broken` returns an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        """Return the server's address."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Handler of one HTTP request."""

    server: Received

    def do_POST(self) -> None:
        """Store the posted document."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.posts.append((self.path, self.headers["Content-Type"], body))
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Received]:
    """A server that runs in a thread."""
    with Received() as started:
        Thread(target=started.serve_forever, daemon=True).start()
        yield started
        started.shutdown()


def test_a_url_is_posted_the_document(server: Received, capsys: pytest.CaptureFixture[str]) -> None:
    notify_of(f"{server.url}/night", DOCUMENT)
    assert server.posts == [("/night", "application/json", DOCUMENT)]
    assert capsys.readouterr() == ("", "")


def test_a_command_has_the_document_on_stdin_and_no_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read()); print('on stdout')"
    notify_of(f'{sys.executable} -c "{script}" "{tmp_path}/a $(b)"', DOCUMENT)
    assert (tmp_path / "a $(b)").read_text() == DOCUMENT
    assert capsys.readouterr() == ("", "")
    notify_of(f"sh -c 'cat > {tmp_path}/by_a_shell'", DOCUMENT)
    assert (tmp_path / "by_a_shell").read_text() == DOCUMENT


def test_a_failure_is_one_line_on_stderr(server: Received, capsys: pytest.CaptureFixture[str]) -> None:
    failures = {
        f"{server.url}/broken": (f"{server.url}/...", "not posted: HTTP Error 500"),
        "http://127.0.0.1:1/SECRET": ("http://127.0.0.1:1/...", "not posted: <urlopen error"),
        "http://[": ("http://[/...", "not posted: "),
        "sh -c 'echo no disk >&2; exit 3'": ("sh -c 'echo no disk >&2; exit 3'", "exited with 3: no disk"),
        "/nowhere/at/all": ("/nowhere/at/all", "No such file"),
    }
    for target, (named, problem) in failures.items():
        notify_of(target, DOCUMENT)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"specstorm: --notify {named}: ")
        assert problem in line
    notify_of(None, DOCUMENT)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("target", ["", "  ", "/nowhere/at/all x", "a 'b", "ftp://host/"])
def test_invalid_notification_target_is_refused_before_the_night(target: str) -> None:
    with pytest.raises(InputError, match="--notify"):
        check_notify(target)


def test_valid_notification_targets_are_accepted() -> None:
    for target in (None, "https://host/hook", "cat", "sh -c 'cat >/dev/null'"):
        check_notify(target)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--notify", "https://me:pw@host:8/hooks/SECRET?a=b"], ["--notify", "https://host:8/..."]),
        (["--notify=http://host/SECRET"], ["--notify=http://host/..."]),
        (["--notify", "curl -d @- 'https://host/SECRET' -s"], ["--notify", "curl -d @- 'https://host/...' -s"]),
        (["--notify", "http://host", "--known", "a"], ["--notify", "http://host/...", "--known", "a"]),
        (["--out", "https://host/SECRET"], ["--out", "https://host/SECRET"]),
    ],
)
def test_notification_address_is_stored_without_secrets(
    given: list[str], kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["specstorm", "nightly", *given])
    assert shlex.split(this_run().command) == ["specstorm", "nightly", *kept]
