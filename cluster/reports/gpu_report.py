"""Report on simulated races that were reproduced on a GPU by delays."""

from collections.abc import Iterable, Iterator

from cluster.reports.terminal import show
from scenarios.events import Delay
from scenarios.visible import visible_json
from workers.record.words import finding_lines, missing_order_text
from workers.run.widening import DelayedRuns, Tries, Way

_WAYS: dict[Way, str] = {
    "plain": "as it is",
    "joined": "each launch waited for",
    "in_its_step": "in its step",
    "in_every_step": "in every step",
}


def print_confirmed(found: Iterable[DelayedRuns], as_json: bool) -> int:
    """Print each race's result as soon as it is known, as a JSON line or in words.

    Return the number of harmful ones.
    """
    num_races, num_places, num_harmful = 0, 0, 0
    for each in found:
        num_races, num_places = num_races + each.num_races, num_places + 1
        num_harmful += each.does_harm
        show(*([visible_json(each.model_dump_json())] if as_json else _lines(num_places, each)))
    if not as_json:
        races = f"{num_races} races of {num_places} places"
        show(f"{races}: the races of {num_harmful} are harmful on the GPU; no harm of the others was observed")
    return num_harmful


def _lines(number: int, found: DelayedRuns) -> Iterator[str]:
    yield f"RACE {number}    {missing_order_text(found.order)}"
    if found.num_races > 1:
        yield f"          and {found.num_races - 1} more with a first access at that place"
    yield f"          {_delayed(found.delay)}"
    for tries in found.tries:
        yield f"          {_WAYS[tries.way]}: {_tries_text(tries)}"
        for line in finding_lines(tries.verdict) if tries.verdict is not None else ():
            yield f"            {line}"


def _delayed(delay: Delay | None) -> str:
    if delay is None:
        return "its first access has no place in the engine's program: nothing was delayed"
    who = "the host sleeps" if delay.of == "host" else "the stream waits"
    return f"{who} {delay.microseconds / 1000:g} ms before {', called from '.join(delay.at)}, step {delay.step}"


def _tries_text(tries: Tries) -> str:
    return f"harm in {tries.harmed} of {tries.runs} runs" if tries.harmed else f"no harm in {tries.runs} runs"
