"""Pauses of a session, as SGLang's front makes them: what its scheduler is asked, and requests held back.

With `keep` the scheduler stands still; where the cache is to be cleared its requests go back to its queue first. With
`abort` all requests are given up, again and again until none is left: the scheduler goes on, and has nothing to do.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from scenarios.events import Pause

# Notes what was done to the engine, by its name.
Note = Callable[[str], None]


class Pauses:
    """The pauses of one session. Its methods return what its scheduler is to receive next."""

    def __init__(self, scheduler: Any, probes: Counter[str], note: Note) -> None:
        self._scheduler, self._probes, self._note = scheduler, probes, note
        self._pausing: Pause | None = None
        self._is_complete = False
        # Whether the scheduler was told to stand still.
        self._stands_still = False
        # Whether all were asked to be given up, and whether the cache is to be cleared.
        self._has_asked = self._is_clearing = False
        # The tick in which the pause ends, if it is complete by then.
        self._until = 0
        self._tick = 0
        self._held: list[Any] = []

    @property
    def are_on(self) -> bool:
        """Whether the front holds requests back."""
        return self._pausing is not None

    def begin(self, event: Pause, is_in_flight: bool) -> list[Any]:
        """Begin a pause; of several the last one holds."""
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        self._probes["pause"] += 1
        self._probes["pause_in_flight"] += is_in_flight
        self._pausing, self._until = event, self._tick + event.ticks
        self._is_complete, self._has_asked, self._is_clearing = event.mode == "keep", False, event.clear_cache
        if event.mode == "abort":
            # Who stands still gives nobody up.
            if self._stands_still:
                self._note("resume")
            return self._going_on()
        self._note("pause_keep")
        self._stands_still = True
        mode = "retract" if event.clear_cache else "in_place"
        return [io_struct.PauseGenerationReqInput(mode=mode), *self._clearing()]

    def resume(self) -> None:
        """End the pause as soon as it is complete."""
        self._until = min(self._until, self._tick)

    def hold(self, request: Any) -> None:
        """Hold back a request that comes during a pause."""
        assert self.are_on, "it could be sent"
        self._held.append(request)

    def holds(self, request_id: str) -> bool:
        """Tell whether a request is held back."""
        return any(request.rid == request_id for request in self._held)

    def drop(self, request_id: str) -> None:
        """Drop a request that is held back."""
        self._held = [request for request in self._held if request.rid != request_id]

    def due(self) -> list[Any]:
        """Return what is asked for before the next iteration."""
        self._tick += 1
        pausing = self._pausing
        if pausing is None:
            return []
        if not self._is_complete:
            return self._given_up()
        if self._tick <= self._until:
            return []
        self._pausing = None
        held, self._held = self._held, []
        self._note("resume")
        self._probes["resumed"] += 1
        return [*self._going_on(), *held]

    def _given_up(self) -> list[Any]:
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

    def heard(self, output: Any) -> None:
        """Note that the cache was cleared, if an output says so; a scheduler refuses it beside grammars that wait."""
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        if isinstance(output, io_struct.FlushCacheReqOutput) and output.success:
            self._is_clearing = False
            self._note("cleared")

    def _going_on(self) -> list[Any]:
        """Return what has a scheduler that stands still go on."""
        from sglang.srt.managers import io_struct  # noqa: PLC0415

        if not self._stands_still:
            return []
        self._stands_still = False
        return [io_struct.ContinueGenerationReqInput(torch_empty_cache=False)]
