"""Compare NumPy twins of ops with their definitions; a twin must be 1.5 times faster.

Run with `python -m benchmarks.speed.twins`, optionally followed by names of ops. The requests are those of
`benchmarks.speed.checked_steps`, which keep four rows full, here with every request feature; the specification is the
default one, varied only where a value launches additional ops, such as the drafter. Every eighth call of an op in a
step of four rows is taken. It is timed on the memory that the engine used, restored before each call; an op's time is
the mean of its calls' medians. Ops without a NumPy twin are not listed. Exit code 1 if a twin is too slow.
"""

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.speed.checked_steps import workload
from benchmarks.speed.turns import call_times_us
from scenarios.drafters import DRAFTERS, TRAITS
from scenarios.events import AnyEvent, NanLogits, SpoilDraft, SpoilLogit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.faults.fault import op_like
from workers.kernels.argument import Arguments
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.process import prepare_process
from workers.targets.devices import CLEAN, ops_of
from workers.targets.specstorm import Specstorm

RATIO_MIN = 1.5
NUM_ROWS = 4
EVERY = 8
CALLS_MAX = 24
TURNS = 3
# Common prefix of all prompts, and the sampling parameters that requests use in turn.
COMMON = (1, 0, 1, 1, 0, 1, 0, 0)
PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=1.0, top_k=8, num_logprobs=2),
    SamplingParams(temperature=1.0, presence_penalty=0.5, repetition_penalty=2.0, bad_words=((1,), (2, 3))),
    SamplingParams(grammar=(((0, 1), (1, 0), (2, 1)), ((3, 0), (4, 1)))),
)
SPECS: tuple[Mapping[str, Any], ...] = (
    *(
        {
            "drafter": drafter,
            "depth": 1 if TRAITS[drafter].goes_through_host else 2,
            "num_speculative_tokens": 1 if TRAITS[drafter].proposes_one else 3,
        }
        for drafter in DRAFTERS
    ),
    {"drafter": "draft_model", "layers": "attention", "draft_sampling": "probabilistic", "sampling": "block"},
    {"prefix_cache": True, "recurrent_cache": "align", "drafter_max_len": 48, "accepted_counts": "host"},
    {"prefix_cache": True, "recurrent_cache": "align", "cascade": True, "depth": 1},
)

Op = Callable[[Any], None]


def definition_of(op: Op) -> Op:
    """Return the definition of an op; the op itself if it has no NumPy twin."""
    definition: Op = getattr(import_module(f"{op.__module__.rpartition('.')[0]}.definition"), op.__name__)
    return definition


def copied(arguments: Arguments) -> Arguments:
    """Return an op's arguments with copies of their arrays."""
    return arguments.on({name: getattr(arguments, name).copy() for name, *_ in arguments.buffers})


def traces() -> Iterator[Trace]:
    """Yield a trace of each specification, some requests with a spoiled logit or draft token."""
    submits = workload(0).submits()
    for keys in SPECS:
        events: list[AnyEvent] = []
        for index, submit in enumerate(submits):
            assert isinstance(submit.prompt, tuple), "the trace is explicit"
            name, tick, prompt = submit.request, submit.tick, (*COMMON, *submit.prompt[len(COMMON) :])
            events.append(submit.model_copy(update={"prompt": prompt, "params": PARAMS[index % len(PARAMS)]}))
            spoils = (
                SpoilLogit(tick=tick + 4, request=name), SpoilDraft(tick=tick + 4, request=name),
                NanLogits(tick=tick + 4, request=name),
            )  # fmt: skip
            events += [spoils[index // 4 % len(spoils)]] if index % 4 == 1 else []
        yield Trace(spec=EngineSpec(**keys), events=tuple(events)).explicit()


class Recorder:
    """Records the calls of ops in steps of four rows, with copies of their arguments."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Arguments]] = defaultdict(list)
        self._seen: dict[str, int] = defaultdict(int)
        self._num_rows = 0

    def functions(self) -> EngineFunctions:
        """Return the engine's ops for a new trace, each wrapped to record its calls."""
        self._seen.clear()
        ops: dict[str, Any] = {name: op_like(op, self._recorded(name, op)) for name, op in ops_of(CLEAN).items()}
        return replace(CLEAN, **ops)

    def _recorded(self, name: str, op: Op) -> Op:
        def body(given: Arguments) -> None:
            of_rows = [each for each, _, declared in given.buffers if declared.shape == "B"]
            if of_rows:
                self._num_rows = len(getattr(given, of_rows[0]))
            # An op without a row dimension belongs to the step of the last op with one.
            if self._num_rows == NUM_ROWS:
                if self._seen[name] % EVERY == 0 and len(self.calls[name]) < CALLS_MAX:
                    self.calls[name].append(copied(given))
                self._seen[name] += 1
            op(given)

        return body


def recorded() -> dict[str, list[Arguments]]:
    """Return recorded calls of every op that an engine launches in a step of four rows."""
    recorder = Recorder()
    for trace in traces():
        verdict = check(trace, ModelValueCache(), Options(races=False), Specstorm(recorder.functions()))
        assert isinstance(verdict, Agreed), verdict
    return recorder.calls


def times_us(op: Op, calls: Sequence[Arguments]) -> tuple[float, float]:
    """Return the mean microseconds of a twin and of its definition over these calls."""
    definition, medians = definition_of(op), []
    for call in calls:
        given, before = copied(call), [(name, getattr(call, name)) for name, *_ in call.buffers]

        def put_back(given: Arguments = given, before: Sequence[tuple[str, Any]] = before) -> None:
            for name, memory in before:
                getattr(given, name)[:] = memory

        forms = {"twin": lambda given=given: op(given), "definition": lambda given=given: definition(given)}
        times = call_times_us(forms, TURNS, put_back)
        medians.append((statistics.median(times["twin"]), statistics.median(times["definition"])))
    return statistics.mean(twin for twin, _ in medians), statistics.mean(other for _, other in medians)


def main(names: Sequence[str]) -> int:
    """Print times of twins and definitions, the smallest gain first; return the exit code."""
    prepare_process()
    twins = {name: op for name, op in ops_of(CLEAN).items() if definition_of(op) is not op}
    unknown = set(names) - set(twins)
    if unknown:
        print(f"no NumPy twins: {', '.join(sorted(unknown))}; expected some of {', '.join(twins)}", file=sys.stderr)
        return 2
    wanted, calls, rows = list(names or twins), recorded(), []
    for name in wanted:
        assert calls[name], f"{name} is not called in a step of {NUM_ROWS} rows"
        twin, definition = times_us(twins[name], calls[name])
        rows.append((definition / twin, name, twin, definition, len(calls[name])))
    print(f"{'op':24} {'calls':>5} {'twin us':>9} {'definition us':>14} {'ratio':>6}")
    for ratio, name, twin, definition, num_calls in sorted(rows):
        verdict = "" if ratio >= RATIO_MIN else f"  below {RATIO_MIN}"
        print(f"{name:24} {num_calls:5} {twin:9.1f} {definition:14.1f} {ratio:6.2f}{verdict}")
    return 1 if min(rows)[0] < RATIO_MIN else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
