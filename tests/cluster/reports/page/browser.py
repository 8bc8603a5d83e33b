"""Headless Chromium, controlled by its debugging protocol: open, run scripts, take pictures."""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_MESSAGE_BYTES = 1 << 28
T = TypeVar("T")


def browser_path() -> str | None:
    """Return the path of a browser on this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in its own browser process; a context manager.

    `complaints` are the errors that the page's scripts and its policy have met. Requests over the network are counted.
    """

    def __init__(self, path: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._path = path
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="specstorm-browser-", ignore_cleanup_errors=True)
        home = Path(self._folder.name)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={home}"]
        command = [self._path, *flags, "--no-first-run", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._loop = asyncio.new_event_loop()
        self._wait(self._connect(home / "DevToolsActivePort"))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._disconnect())
        self._loop.close()
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def _wait(self, what: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(what)

    async def _connect(self, port_file: Path) -> None:
        until = time.monotonic() + _START_SECONDS
        while not (port_file.is_file() and port_file.read_text().count("\n")):
            assert time.monotonic() < until, f"{self._path} does not start"
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        self._session = aiohttp.ClientSession()
        async with self._session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
            address = (await answer.json())["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=_MESSAGE_BYTES)

    async def _disconnect(self) -> None:
        await self._socket.close()
        await self._session.close()

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Send a command of the debugging protocol; return the answer."""
        return self._wait(self._ask(method, values))

    async def _ask(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": values})
        while True:
            message = await self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                answer: dict[str, Any] = message["result"]
                return answer

    async def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.receive_str(timeout=_ANSWER_SECONDS))
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(str(message["params"]["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.requests.append(str(message["params"]["request"]["url"]))
            case str():
                self._events.append(message)
        return message

    def open(self, file: Path, width: int, height: int, dark: bool = False) -> None:
        """Open a file in a window of this size and wait until it is loaded."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.requests.clear()
        self.ask("Page.navigate", url=file.resolve().as_uri())
        self._wait(self._loaded())

    async def _loaded(self) -> None:
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            await self._receive()

    def wait_for(self, method: str, is_it: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for an event of the protocol with parameters that satisfy a predicate."""
        self._wait(self._seen(method, is_it))

    async def _seen(self, method: str, is_it: Callable[[dict[str, Any]], bool]) -> None:
        while not any(event["method"] == method and is_it(event["params"]) for event in self._events):
            await self._receive()

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as Tab or ArrowDown."""
        code = {"Tab": 9, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Type a text into the focused element."""
        self.ask("Input.insertText", text=text)

    def picture(self, file: Path) -> None:
        """Write a screenshot as PNG."""
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
