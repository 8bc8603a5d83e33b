"""Draws of the control plane for random traces of engines that have one, labelled by the trace's seed."""

from collections.abc import Callable, Iterator
from typing import Literal

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import CONTROL_EVENTS, AnyEvent, LoadWeights, Neighbour, Pause, PauseMode, Resume, Sleep, WakeUp
from scenarios.trace import Trace

_SITE = "control"
# So many traces have no control plane for one that has.
ONE_IN = 4
_TICKS = 24
# Ticks behind its arrival in which a request still runs.
_RUNNING = 8
_MODES: tuple[PauseMode, ...] = ("keep", "wait", "abort", "keep")
_LEVELS: tuple[Literal[0, 1, 2], ...] = (1, 2, 1, 0)
_LEVELS_OF_PARTS: tuple[Literal[1, 2], ...] = (1, 2, 1, 1)
# A draw below a bound, by its name.
_Pick = Callable[[str, int], int]


def controlled(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with events of the control plane, if the engine has one; the trace itself in most cases."""
    if not set(CONTROL_EVENTS) & set(capabilities.events) or below(ONE_IN, trace.seed, _SITE, "has any", 0):
        return trace
    events, submits = list(trace.events), trace.submits()
    for number in range(1 + below(3, trace.seed, _SITE, "number", 0)):

        def pick(what: str, bound: int, number: int = number) -> int:
            return below(bound, trace.seed, _SITE, what, number)

        # Most of them while somebody is there.
        begin = submits[pick("whose", len(submits))].tick if submits and pick("while one runs", 4) else 0
        events += _drawn(pick, begin + 1 + pick("tick", _RUNNING if begin else _TICKS))
    return trace.model_copy(update={"events": tuple(events)})


def _drawn(pick: _Pick, tick: int) -> Iterator[AnyEvent]:
    """Yield a pause, a sleep or other weights, with what belongs to it, or turns of a neighbour."""
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
            # Who is woken in parts does not wake before.
            ticks = max(ticks, after + apart + 1) if in_parts else ticks
            # At level 0 there are no parts.
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
