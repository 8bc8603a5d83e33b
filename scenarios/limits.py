"""Cost limits of a trace, estimated from its specification and events before the run.

Verifies: that the sizes in a scenario cause no excessive memory use or run time.
Does not verify: the cost of preemptions caused by a full KV cache, which depends on the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scenarios.events import AcceptRate, Continuation, Event, Preempt, ResetPrefixCache, Stall, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Problem, Trace


@dataclass(frozen=True, slots=True)
class CostLimit:
    """Maximum of one cost of a trace, about a minute or a gigabyte on one core.

    `measure` returns the cost and the path of its largest contributor in the trace.
    """

    maximum: int
    what: str
    measure: Callable[[Trace], tuple[int, tuple[str | int, ...]]]


def _ticks(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return the tick after which no event happens and no request is stalled."""
    ends = [(_end(event), ("events", index)) for index, event in enumerate(trace.events)]
    return max(ends, default=(0, ()))


def _end(event: Event) -> int:
    return event.tick + (event.ticks if isinstance(event, Stall) else 1)


def _lengths(trace: Trace) -> Iterator[tuple[int, int, str]]:
    """Yield event index, maximum number of tokens and name of each submitted request."""
    for index, event in enumerate(trace.events):
        if isinstance(event, Submit):
            yield index, trace.spec.length_limit(_prompt_length(event, trace.spec), event.max_tokens), event.request


def _prompt_length(event: Submit, spec: EngineSpec) -> int:
    """Return the maximum number of prompt tokens of a request."""
    return spec.max_model_len - 1 if isinstance(event.prompt, Continuation) else event.prompt_length


def _tokens(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return the number of tokens to compute, including recomputation after preemptions."""
    lengths = list(_lengths(trace))
    worst = max(lengths, key=lambda each: each[1], default=(0, 0, ""))
    return sum(length for _, length, _ in lengths) + sum(_lengths_again(trace)), ("events", worst[0])


def _lengths_again(trace: Trace) -> Iterator[int]:
    """Yield a request's maximum length once per recomputation that an event causes."""
    longest: dict[str, int] = {}
    for _, length, request in _lengths(trace):
        longest[request] = max(length, longest.get(request, 0))
    at_once = sorted(longest.values(), reverse=True)[: trace.spec.max_num_seqs]
    for event in trace.events:
        if isinstance(event, Preempt):
            yield longest.get(event.request, 0)
        elif isinstance(event, ResetPrefixCache) and event.running:
            yield from at_once


def _steps(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return an estimate of the engine steps of a run, and the longest request's path.

    The estimate is the maximum of three: the steps of the longest request alone, the batch rows divided by
    `max_num_seqs`, and the tokens divided by the token budget.

    A request takes one step for each prefill chunk, and one for each run of draft tokens that its script accepts.
    """
    spec = trace.spec
    budget = spec.max_num_batched_tokens
    chunk = min(spec.long_prefill_token_threshold or budget, budget)
    rows, tokens, worst = 0, 0, (0, 0)
    for (index, length, _), event in zip(_lengths(trace), trace.submits(), strict=True):
        prompt = _prompt_length(event, spec)
        decodes = round((length - prompt) / _tokens_per_decode(event, spec))
        num_steps = -(-prompt // chunk) + decodes
        rows, tokens = rows + num_steps, tokens + prompt + decodes * (1 + spec.num_speculative_tokens)
        worst = max(worst, (num_steps, index))
    for length in _lengths_again(trace):
        rows, tokens = rows + -(-length // chunk), tokens + length
    return max(worst[0], -(-rows // spec.max_num_seqs), -(-tokens // budget)), ("events", worst[1])


def _tokens_per_decode(event: Submit, spec: EngineSpec) -> float:
    """Return the mean number of output tokens of a step that verifies K draft tokens."""
    match event.accept:
        case AcceptRate(rate=rate):
            right = rate
        case str(bits):
            bits = {"all": "1", "none": "0", "alternate": "10"}.get(bits, bits)
            right = bits.count("1") / len(bits)
    return sum(right**count for count in range(1 + spec.num_speculative_tokens))


def _logits(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return the number of logits (output tokens x vocabulary) of a run, and a path."""
    sampled = sum(min(event.max_tokens, trace.spec.max_model_len) for event in trace.submits())
    return sampled * trace.spec.vocab_size, ("spec", "vocab_size")


def _table_entries(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return the number of block table entries that a run keeps."""
    spec = trace.spec
    entries = [
        (min(event.max_tokens, length) * -(-length // spec.block_size), ("events", index))
        for (index, length, _), event in zip(_lengths(trace), trace.submits(), strict=True)
    ]
    return sum(count for count, _ in entries), max(entries, default=(0, ()))[1]


def _slots(trace: Trace) -> tuple[int, tuple[str | int, ...]]:
    """Return the number of KV cache slots (tokens), and the path of `num_blocks`."""
    return trace.spec.num_blocks * trace.spec.block_size, ("spec", "num_blocks")


LIMITS: tuple[CostLimit, ...] = (
    CostLimit(20_000, "ticks until the end of the last event", _ticks),
    CostLimit(50_000, "tokens to compute", _tokens),
    # Every schedule of a sweep runs all these steps again.
    CostLimit(5_000, "engine steps (an estimate from prefill chunks, runs of drafts, rows and budget)", _steps),
    CostLimit(250_000_000, "logits (output tokens x vocab_size)", _logits),
    CostLimit(32_000_000, "block table entries (output tokens x blocks of their request)", _table_entries),
    CostLimit(16_000_000, "slots in the KV cache (num_blocks x block_size)", _slots),
)


def over_limits(trace: Trace) -> list[Problem]:
    """Return a problem for each exceeded limit, at the path of its largest contributor."""
    measured = [(limit, *limit.measure(trace)) for limit in LIMITS]
    return [
        Problem(where, f"{count:,} {limit.what}; allowed are {limit.maximum:,} (--no-limits lifts this)")
        for limit, count, where in measured
        if count > limit.maximum
    ]
