"""What tests of engines compare today, as a baseline: outputs at the end of an asynchronous run against another's.

Verifies: tokens, logprobs and finish reason of every request, that a run ends, and that it does not crash.
Does not verify: anything before the end. Of a request that is aborted, or whose logits an event spoils, only the common
part of its tokens is compared: how far it came depends on when. Names that are used again are left out: which of their
requests come to be does too. So are those whose tokens depend on their drafts.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from scenarios.events import Abort, NanLogits, Schedule
from scenarios.trace import Trace
from workers.lanes.lane import Deadlock
from workers.oracle.incremental_tape import depends_on_drafts
from workers.oracle.logprobs import Flat, are_close
from workers.oracle.tape import Tapes
from workers.record.observation import Observation
from workers.run.check import Options, Run
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Output(NamedTuple):
    """What a client gets of one request."""

    tokens: tuple[int, ...]
    finish_reason: str | None
    logprobs: Flat


Outputs = dict[str, Output]


def outputs(trace: Trace, tapes: Tapes, steps_max: int, config: RunConfig = DEFAULT_CONFIG) -> Outputs | str:
    """Run an explicit trace with nothing checked; return each request's output, or how the run broke off."""
    run = Run(trace, tapes, Options(races=False), config=config)
    engine = run.engine
    logprobs: dict[int, list[int | float]] = defaultdict(list)
    try:
        while not run.drained():
            if engine.tick > steps_max:
                return "it does not end"
            run.step()
            for seen in engine.log:
                if isinstance(seen, Observation) and "logprobs" in seen.values:
                    for index, values in zip(seen.requests, seen.values["logprobs"], strict=True):
                        logprobs[index] += values
            engine.log.clear()
            run.recorder.take()
    except Deadlock:
        return "deadlock"
    except Exception as error:
        return f"{type(error).__name__}"
    return {
        request.name: Output(
            tuple(request.tokens[request.num_prompt :]), request.finish_reason, tuple(logprobs[request.index])
        )
        for request in engine.requests.values()
    }


def synchronous(trace: Trace) -> Trace:
    """Return the same trace for an engine that processes each step before it schedules the next."""
    spec = trace.spec.model_copy(update={"depth": 1})
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()})


def first_difference(trace: Trace, seen: Outputs | str, wanted: Outputs | str) -> str | None:
    """Return the first output that is not as wanted, or None; a run that broke off is always seen."""
    if isinstance(seen, str):
        return seen
    if isinstance(wanted, str):
        return f"the other run: {wanted}"
    cut_short = {event.request for event in trace.events if isinstance(event, Abort | NanLogits)}
    submitted = Counter(event.request for event in trace.submits())
    by_chance = {event.request for event in trace.submits() if depends_on_drafts(event.params, trace.spec)}
    for name, output in wanted.items():
        if submitted[name] > 1 or name in by_chance:
            continue
        other = seen[name]
        common = min(len(output.tokens), len(other.tokens))
        if output.tokens[:common] != other.tokens[:common]:
            return f"tokens of {name}"
        if name not in cut_short and output[:2] != other[:2]:
            return f"length or finish reason of {name}"
        shortest = min(len(output.logprobs), len(other.logprobs)) if name in cut_short else None
        if not are_close(other.logprobs[:shortest], output.logprobs[:shortest]):
            return f"logprobs of {name}"
    return None
