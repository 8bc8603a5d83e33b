"""Run a scheduler's event loop in a thread, one iteration at a time.

Once in each iteration the loop calls its request receiver. That is ours, and blocks there until the next `step`. So
either the loop runs or its driver, never both.
"""

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any


class EventLoop:
    """Event loop of one scheduler, and its request receiver."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # Requests for the next iteration; None ends the loop.
        self._coming: SimpleQueue[Sequence[Any] | None] = SimpleQueue()
        # One item each time that the loop blocks (False), has ended (True) or has raised an exception.
        self._states: SimpleQueue[BaseException | bool] = SimpleQueue()
        self._has_ended = False
        scheduler.gracefully_exit = False
        scheduler.request_receiver = self
        threading.Thread(target=self._run, daemon=True).start()
        self._wait()

    def step(self, requests: Sequence[Any]) -> None:
        """Run one iteration in which the scheduler receives these requests."""
        assert not self._has_ended, "the loop has not ended"
        self._coming.put(requests)
        self._wait()

    def settle(self) -> None:
        """Do nothing: no other rank runs iterations later."""

    def end(self) -> None:
        """Let the loop end, after an iteration without new requests."""
        if not self._has_ended:
            self._coming.put(None)
            self._wait()

    def recv_requests(self, local_reqs: Sequence[Any] | None = None) -> list[Any]:
        """Return the requests of this iteration; the scheduler waits in this call between steps."""
        self._states.put(False)
        requests = self._coming.get()
        if requests is None:
            self._scheduler.gracefully_exit = True
        return [*(requests or ()), *(local_reqs or ())]

    def _run(self) -> None:
        try:
            self._scheduler.run_event_loop()
        except BaseException as error:
            self._states.put(error)
        else:
            self._states.put(True)

    def _wait(self) -> None:
        """Wait until the loop is blocked in its receiver, or has ended."""
        state = self._states.get()
        if isinstance(state, BaseException):
            self._has_ended = True
            raise state
        self._has_ended = state
