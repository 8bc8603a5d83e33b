"""Situation of control events: pause, sleep, weight exchange, second engine."""

from collections.abc import Iterator
from typing import Literal

from scenarios.events import CONTROL_EVENTS, AnyEvent, LoadWeights, Neighbour, Pause, PauseMode, Resume, Sleep, WakeUp
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import event, situation

_TICKS = 24
# Ticks from a request's arrival within which it still runs.
_RUNNING = 8
_MODES: tuple[PauseMode, ...] = ("keep", "wait", "abort", "keep")
_LEVELS: tuple[Literal[0, 1, 2], ...] = (1, 2, 1, 0)
_LEVELS_OF_PARTS: tuple[Literal[1, 2], ...] = (1, 2, 1, 1)


@situation(event(*CONTROL_EVENTS), stage="feature")
def control_plane_events(trace: TraceBuilder) -> None:
    """Add up to three control events (pause, sleep ...), mostly while a request runs."""
    submits = [each for _, each in trace.every_submit()]
    for number in range(1 + trace.pick(3, "number")):
        is_running = submits and trace.pick(4, "while one runs", number)
        begin = submits[trace.pick(len(submits), "whose", number)].tick if is_running else 0
        tick = begin + 1 + trace.pick(_RUNNING if begin else _TICKS, "tick", number)
        trace.events += _events(trace, number, tick)


def _events(trace: TraceBuilder, number: int, tick: int) -> Iterator[AnyEvent]:
    """Yield a pause, a sleep, a weight exchange, or steps of a second engine."""

    def pick(what: str, bound: int) -> int:
        return trace.pick(bound, what, number)

    ticks = 1 + pick("ticks", 10)
    mode, is_clearing = _MODES[pick("mode", len(_MODES))], bool(pick("clears", 3))
    match pick("kind", 8):
        case 0 | 1 | 2:
            yield Pause(tick=tick, mode=mode, clear_cache=is_clearing, ticks=ticks)
            if pick("resumed", 2):
                yield Resume(tick=tick + 1 + pick("resumed after", 6))
        case 3 | 4:
            in_parts, first, apart = pick("in parts", 2), pick("first part", 2), 1 + pick("apart", 3)
            after = 2 + pick("woken after", 6)
            # The sleep must not end before both parts are woken.
            ticks = max(ticks, after + apart + 1) if in_parts else ticks
            # Level 0 discards neither weights nor KV cache, so there are no parts to wake.
            levels = _LEVELS_OF_PARTS if in_parts else _LEVELS
            yield Sleep(tick=tick, mode=mode, level=levels[pick("level", 4)], ticks=ticks)
            if in_parts:
                yield WakeUp(tick=tick + after, what=("weights", "kv_cache")[first])
                yield WakeUp(tick=tick + after + apart, what=("kv_cache", "weights")[first])
        case 5 | 6:
            is_paused = pick("is paused", 2)
            if is_paused:
                yield Pause(tick=tick, mode=mode, clear_cache=is_clearing, ticks=ticks)
            later = pick("loaded after", 5) if is_paused else 0
            yield LoadWeights(tick=tick + later, version=1 + pick("version", 3), clear_cache=is_clearing)
        case _:
            yield Neighbour(tick=tick, ticks=4 * ticks)
