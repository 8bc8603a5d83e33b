"""Pauses of generation: messages to SGLang's scheduler; new requests wait until the end.

This does the work of SGLang's front end. With mode `keep`, the scheduler stops scheduling; if the cache is to be
cleared, running requests first return to the waiting queue. With mode `abort`, all requests are aborted, repeatedly
until none is left; the scheduler keeps running without work.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from scenarios.events import Pause

# Records a control action, by its name.
Note = Callable[[str], None]


class Pauses:
    """Pauses of one trace; its methods return the messages to send to the scheduler."""

    def __init__(self, scheduler: Any, probes: Counter[str], note: Note) -> None:
        self._scheduler, self._probes, self._note = scheduler, probes, note
        self._pausing: Pause | None = None
        self._is_complete = False
        # Whether the scheduler was asked to stop scheduling.
        self._is_stopped = False
        # Whether the abort of all requests was sent, and whether the prefix cache is to be cleared.
        self._has_asked = self._is_clearing = False
        # The tick in which the pause ends, if it is complete by then.
        self._until = 0
        self._tick = 0
        self._held: list[Any] = []

    @property
    def are_active(self) -> bool:
        """Whether a pause is active, so that new requests must wait."""
        return self._pausing is not None

    def begin(self, event: Pause, is_in_flight: bool) -> list[Any]:
        """Begin a pause, replacing an active one; return the messages to the scheduler."""
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        self._probes["pause"] += 1
        self._probes["pause_in_flight"] += is_in_flight
        self._pausing, self._until = event, self._tick + event.ticks
        self._is_complete, self._has_asked, self._is_clearing = event.mode == "keep", False, event.clear_cache
        if event.mode == "abort":
            # A stopped scheduler does not process aborts, so it is resumed first.
            if self._is_stopped:
                self._note("resume")
            return self._continue()
        self._note("pause_keep")
        self._is_stopped = True
        mode = "retract" if event.clear_cache else "in_place"
        return [io_struct.PauseGenerationReqInput(mode=mode), *self._clearing()]

    def resume(self) -> None:
        """End the pause in this tick or, if requests are being aborted, when that is complete."""
        self._until = min(self._until, self._tick)

    def hold(self, request: Any) -> None:
        """Let a request that arrives during a pause wait."""
        assert self.are_active, "without a pause a request is sent, not held"
        self._held.append(request)

    def holds(self, request_id: str) -> bool:
        """Return whether a request waits for the end of a pause."""
        return any(request.rid == request_id for request in self._held)

    def drop(self, request_id: str) -> None:
        """Forget a waiting request."""
        self._held = [request for request in self._held if request.rid != request_id]

    def next_messages(self) -> list[Any]:
        """Return the messages to the scheduler for the next iteration of its event loop."""
        self._tick += 1
        pausing = self._pausing
        if pausing is None:
            return []
        if not self._is_complete:
            return self._abort_all()
        if self._tick <= self._until:
            return []
        self._pausing = None
        held, self._held = self._held, []
        self._note("resume")
        self._probes["resumed"] += 1
        return [*self._continue(), *held]

    def _abort_all(self) -> list[Any]:
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        if not self._has_asked or not self._scheduler.is_fully_idle():
            self._has_asked = True
            return [io_struct.AbortReq(abort_all=True)]
        self._is_complete = True
        self._note("pause_abort")
        return self._clearing()

    def _clearing(self) -> list[Any]:
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        return [io_struct.FlushCacheReqInput()] if self._is_clearing else []

    def receive(self, output: Any) -> None:
        """Process a message of the scheduler: the prefix cache may have been cleared.

        A scheduler refuses to clear it while requests wait for their grammars to compile.
        """
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        if isinstance(output, io_struct.FlushCacheReqOutput) and output.success:
            self._is_clearing = False
            self._note("cleared")

    def _continue(self) -> list[Any]:
        """Return the message that lets a stopped scheduler continue, if it is stopped."""
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        if not self._is_stopped:
            return []
        self._is_stopped = False
        return [io_struct.ContinueGenerationReqInput(torch_empty_cache=False)]
