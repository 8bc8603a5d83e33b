"""Delays at source lines, tested without a GPU: at which line, call and step they apply."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest

from scenarios.events import Delay, Schedule
from workers.targets.child.inside.gpu import DelayedLines, Gpu

FILE = Path(__file__).name


def copied(seen: list[str]) -> None:
    seen.append("before")
    seen.append("the line")
    seen.append("behind")


def early(seen: list[str]) -> None:
    copied(seen)


def late(seen: list[str]) -> None:
    copied(seen)


def line_of(function: object, text: str) -> str:
    """Return the line of a function that contains a text, as a delay names it."""
    lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
    return f"child/{FILE}:{first + next(index for index, line in enumerate(lines) if text in line)}"


class Recorded(DelayedLines):
    """Delays that are recorded instead of made."""

    def __init__(self, delays: Sequence[Delay], seen: list[str]) -> None:
        super().__init__(delays)
        self._seen = seen

    def pause(self, delay: Delay) -> None:
        self._seen.append(f"pause {delay.of}")


def seen_with(delay: Delay, steps: int = 1) -> list[str]:
    seen: list[str] = []
    with Recorded([delay], seen) as lines:
        for step in range(steps):
            lines.step = step
            early(seen)
            late(seen)
    return seen


LINE = line_of(copied, "the line")
PLAIN = ["before", "the line", "behind"]


def test_delay_is_made_before_or_after_its_line() -> None:
    assert seen_with(Delay(at=(LINE,), microseconds=1)) == 2 * ["before", "pause stream", "the line", "behind"]
    behind = Delay(at=(LINE,), microseconds=1, where="behind", of="host")
    assert seen_with(behind) == 2 * ["before", "the line", "pause host", "behind"]


def test_delay_after_the_last_line_is_made_at_return() -> None:
    last = Delay(at=(line_of(copied, '"behind"'),), microseconds=1, where="behind")
    assert seen_with(last) == 2 * [*PLAIN, "pause stream"]


def test_delay_applies_to_its_callers_and_its_step_only() -> None:
    called = Delay(at=(LINE, line_of(late, "copied(seen)")), microseconds=1)
    assert seen_with(called) == [*PLAIN, "before", "pause stream", "the line", "behind"]
    of_step = Delay(at=called.at, microseconds=1, step=1)
    assert seen_with(of_step, steps=2) == [*3 * PLAIN, "before", "pause stream", "the line", "behind"]


def test_delay_in_another_file_does_not_apply() -> None:
    assert seen_with(Delay(at=(LINE.replace("child/", "other/"),), microseconds=1)) == 2 * PLAIN


def test_tracing_ends_with_the_context() -> None:
    seen: list[str] = []
    with Recorded([Delay(at=(LINE,), microseconds=1)], seen):
        pass
    early(seen)
    assert seen == PLAIN


def test_delay_of_the_host_is_counted() -> None:
    with DelayedLines([Delay(at=(LINE,), microseconds=1, of="host")]) as lines:
        early([])
    assert lines.counts == {"delayed_host": 1}


@pytest.mark.parametrize("at", [(), ("sampler.py",), ("sampler.py:0",), ("a b.py:1",)])
def test_delay_without_file_and_line_is_refused(at: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="at"):
        Delay(at=at, microseconds=1)


def counts_of(rank: int, schedule: Schedule) -> dict[str, int]:
    """Return how often a rank's process is delayed while it calls a function."""
    delays = Gpu(rank)
    delays.begin({}, schedule, races=False, digests=False, writers=False)
    try:
        early([])
        counts: dict[str, int] = delays.report()["counts"]
        return counts
    finally:
        delays.idle()


def test_delay_of_a_rank_applies_to_its_process_only() -> None:
    delay = Delay(at=(LINE,), microseconds=1, of="host", rank=1)
    assert counts_of(1, Schedule(delays=(delay,))) == {"delayed_host": 1}
    assert counts_of(0, Schedule(delays=(delay,))) == {}
    assert counts_of(0, Schedule(delays=(delay.model_copy(update={"rank": None}),))) == {"delayed_host": 1}
