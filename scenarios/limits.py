"""Limits on what a trace may cost, estimated from its values before anything runs.

Verifies: that no scenario takes excessive memory or time by the sizes that are written in it.
Does not verify: what preemption for want of blocks costs, which depends on the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scenarios.events import Event, Preempt, PromptDraw, ResetPrefixCache, Stall, Submit
from scenarios.trace import Problem, Trace


@dataclass(frozen=True, slots=True)
class CostLimit:
    """A bound on one cost of a trace: about what half a minute or a gigabyte allows on one core.

    `measure` returns the cost and the path of its largest contributor.
    """

    maximum: int
    what: str
    measure: Callable[[Trace], tuple[int, tuple[str | int, ...]]]


def _ticks(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Ticks until the last event has happened and the last stall is over."""
    ends = [(_end(event), ("events", index)) for index, event in enumerate(trace.events)]
    return max(ends, default=(0, ()))


def _end(event: Event) -> int:
    return event.tick + (event.ticks if isinstance(event, Stall) else 1)


def _lengths(trace: Trace) -> Iterator[tuple[int, int, str]]:
    """Yield the index, the most tokens and the name of each request that is submitted."""
    for index, event in enumerate(trace.events):
        if isinstance(event, Submit):
            prompt = event.prompt.tokens if isinstance(event.prompt, PromptDraw) else len(event.prompt)
            yield index, trace.spec.length_limit(prompt, event.max_tokens), event.request


def _tokens(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Tokens that are computed: those of every request, and once more for each time it is preempted."""
    lengths = list(_lengths(trace))
    longest: dict[str, int] = {}
    for _, length, request in lengths:
        longest[request] = max(length, longest.get(request, 0))
    again = sum(longest.get(event.request, 0) for event in trace.events if isinstance(event, Preempt))
    resets = sum(isinstance(event, ResetPrefixCache) and event.running for event in trace.events)
    at_once = sum(sorted(longest.values(), reverse=True)[: trace.spec.max_num_seqs])
    worst = max(lengths, key=lambda each: each[1], default=(0, 0, ""))
    return sum(length for _, length, _ in lengths) + again + resets * at_once, ("events", worst[0])


def _logits(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Logits of all tokens that can be sampled."""
    sampled = sum(min(event.max_tokens, trace.spec.max_model_len) for event in trace.submits())
    return sampled * trace.spec.vocab_size, ("spec", "vocab_size")


def _table_entries(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Entries of block tables that are kept until the end: those of a request once for each token it samples."""
    spec = trace.spec
    entries = [
        (min(event.max_tokens, length) * -(-length // spec.block_size), ("events", index))
        for (index, length, _), event in zip(_lengths(trace), trace.submits(), strict=True)
    ]
    return sum(count for count, _ in entries), max(entries, default=(0, ()))[1]


def _slots(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Slots of the cache."""
    return trace.spec.num_blocks * trace.spec.block_size, ("spec", "num_blocks")


LIMITS: tuple[CostLimit, ...] = (
    CostLimit(20_000, "ticks until the last event is over", _ticks),
    CostLimit(50_000, "tokens to compute", _tokens),
    CostLimit(250_000_000, "logits (tokens to sample x vocab_size)", _logits),
    CostLimit(32_000_000, "entries of block tables (tokens to sample x blocks of their request)", _table_entries),
    CostLimit(16_000_000, "slots in the cache (num_blocks x block_size)", _slots),
)


def over_limits(trace: Trace) -> list[Problem]:
    """Return a problem for each limit that a trace exceeds, at the path of its largest contributor."""
    measured = [(limit, *limit.measure(trace)) for limit in LIMITS]
    return [
        Problem(where, f"{count:,} {limit.what}; allowed are {limit.maximum:,} (--no-limits lifts this)")
        for limit, count, where in measured
        if count > limit.maximum
    ]
