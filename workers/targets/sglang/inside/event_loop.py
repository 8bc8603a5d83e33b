"""Event loop of a scheduler, run one iteration at a time in a thread that waits wherever it asks for requests.

Once in an iteration the loop asks its receiver for requests. The receiver is ours: there the loop stands still until it
is told to do a step. Either the loop runs or who drives it, never both.
"""

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any


class EventLoop:
    """The loop of one scheduler; it is the scheduler's receiver of requests. What the loop raises, `step` raises."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # Requests for the next iteration; None ends the loop.
        self._coming: SimpleQueue[Sequence[Any] | None] = SimpleQueue()
        # Whether the loop has ended, each time that it stands still.
        self._standing: SimpleQueue[BaseException | bool] = SimpleQueue()
        self._has_ended = False
        scheduler.gracefully_exit = False
        scheduler.request_receiver = self
        threading.Thread(target=self._run, daemon=True).start()
        self._wait()

    def step(self, requests: Sequence[Any]) -> None:
        """Let one iteration run, which receives some requests."""
        assert not self._has_ended, "the loop goes on"
        self._coming.put(requests)
        self._wait()

    def end(self) -> None:
        """Let the loop end, behind one more iteration that receives nothing."""
        if not self._has_ended:
            self._coming.put(None)
            self._wait()

    def recv_requests(self, local_reqs: Sequence[Any] | None = None) -> list[Any]:
        """Return the requests of the iteration that begins, as the scheduler asks for them."""
        self._standing.put(False)
        requests = self._coming.get()
        if requests is None:
            self._scheduler.gracefully_exit = True
        return [*(requests or ()), *(local_reqs or ())]

    def _run(self) -> None:
        try:
            self._scheduler.run_event_loop()
        except BaseException as error:
            self._standing.put(error)
        else:
            self._standing.put(True)

    def _wait(self) -> None:
        """Wait until the loop stands still."""
        stands = self._standing.get()
        if isinstance(stands, BaseException):
            self._has_ended = True
            raise stands
        self._has_ended = stands
