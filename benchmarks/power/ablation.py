"""Measure which bugs generated traces find less often without one situation, and more often with a focus.

`python -m benchmarks.power.ablation --all --workers 16` runs traces with each fault of our own engine until it is found
`--hits` times, then leaves out each situation. `--engine NAME` undoes the fixes of an engine instead; `--probes` looks
for the probes of the engine (states that a trace must reach) in place of bugs, and `--values` for specification values,
events and request fields, which needs no run; `--focus` also runs traces with the focus that `gate` chooses for the
edited files. With `--results` outcomes are stored, and the same command continues
from there.

Without a situation, only traces that it changed run again: all others are the same. They run until half as many traces
as before find the bug, those first that found it before. The table lists a bug under a situation if no trace finds it
without the situation ("lost"), or fewer than half as many ("rarer").
Does not measure: traces of the `hypothesis` generator, which change as a whole without a situation; bugs that several
situations find independently.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

from benchmarks.power.reversals.table import Reversal
from benchmarks.power.reversals.trial import edited_engine
from benchmarks.power.sglang_power import reversals as sglang
from benchmarks.power.vllm_power import reversals as vllm
from cluster.campaigns.hunt.selection import focus_of
from scenarios.events import Submit
from scenarios.generation.catalogue import situations_of
from scenarios.generation.shards import TRACES_PER_SHARD, Shard, with_faults
from scenarios.generation.weights import Area
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.faults.registry import FAMILIES, FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Lost
from workers.run.check import check
from workers.run.process import prepare_process
from workers.run.trials import run_with_fault
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import SPECSTORM, DeviceError, RunConfig

PROBE, VALUE = "probe ", "value "
# The areas of situations for the faults of our own engine, by family; it has no situations of recurrent states.
FAULT_AREAS: Mapping[Area, Sequence[str]] = {
    "scheduling": ("scheduling", "lifetime", "limits", "isolation", "placeholders", "waits"),
    "speculation": ("verification", "drafters", "counts"),
    "sampling": ("sampling", "processing", "logprobs", "grammar"),
    "kv_cache": ("slots", "mapping"),
    "prefix_cache": ("prefixes",),
}
Finds: TypeAlias = Callable[[Trace], bool]
# Returns trace number `index` of a seed without one situation, or, with "", with all of them.
TraceOf: TypeAlias = Callable[[int, str], Trace]


class Study(NamedTuple):
    """One bug to measure on an engine; `focus` are the areas of a focus to compare with."""

    engine: str
    bug: str
    seed: int
    traces: int
    hits: int
    situations: tuple[str, ...]
    focus: tuple[str, ...]


class Search(Value):
    """Number of traces that ran, indices of the traces that found the bug, and CPU seconds."""

    traces: int
    hits: tuple[int, ...]
    seconds: float


class Outcome(Value):
    """Outcome of one study: how many traces find the bug, without and with a focus.

    `fewer` has the situations without which under half as many traces found the bug, and their number. `refused` says
    why the edited engine did not start.
    """

    study: Study
    search: Search | None = None
    focused: Search | None = None
    fewer: Mapping[str, int] = {}
    refused: str = ""


def outcome_of(study: Study) -> Outcome:
    """Run a study in this process and return its outcome."""
    try:
        with _search_of(study) as (finds, seconds):
            # The first trace starts the engine, and is not measured.
            finds(trace_of(study.engine, study.seed + 1, 0))
            return measured(study, finds, seconds)
    except DeviceError as error:
        return Outcome(study=study, refused=str(error))


def _search_of(study: Study) -> AbstractContextManager[tuple[Finds, Callable[[], float]]]:
    if study.bug.startswith(VALUE):
        return _value(study)
    if study.bug.startswith(PROBE):
        return _probe(study)
    return _fault(study) if study.engine == SPECSTORM else _reversal(study)


@contextmanager
def _value(study: Study) -> Iterator[tuple[Finds, Callable[[], float]]]:
    yield lambda trace: study.bug in values_of(trace), time.process_time


def values_of(trace: Trace) -> frozenset[str]:
    """Return a trace's specification values, kinds of events and request fields, as names of bugs."""
    found = {f"{key} {value}" for key, value in trace.spec if isinstance(value, str | bool)}
    for event in trace.events:
        found.add(f"event {event.do}")
        if isinstance(event, Submit):
            fields: list[tuple[Value, str]] = [(event, name) for name in type(event).model_fields]
            fields += [(event.params, name) for name in type(event.params).model_fields]
            found |= {f"request {name}" for owner, name in fields if _is_set(owner, name)}
    return frozenset(f"{VALUE}{name}" for name in found)


def _is_set(owner: Value, name: str) -> bool:
    return bool(getattr(owner, name) != type(owner).model_fields[name].default)


@contextmanager
def _probe(study: Study) -> Iterator[tuple[Finds, Callable[[], float]]]:
    name = study.bug.removeprefix(PROBE)
    yield lambda trace: name in probes_of(trace.model_dump_json(), study.engine), time.process_time


@cache
def probes_of(text: str, engine: str) -> frozenset[str]:
    """Return the probes that a trace, given as JSON, hits on an engine."""
    verdict = check(Trace.model_validate_json(text).explicit(), ModelValueCache(), config=RunConfig(engine=engine))
    return frozenset() if isinstance(verdict, Lost) else frozenset(+Counter(verdict.stats.probes))


@contextmanager
def _fault(study: Study) -> Iterator[tuple[Finds, Callable[[], float]]]:
    value_cache, requires = ModelValueCache(), FAULTS[study.bug].requires

    def finds(trace: Trace) -> bool:
        return run_with_fault(study.bug, with_faults(trace, requires, (study.bug,)).explicit(), value_cache).plane != ""

    yield finds, time.process_time


@contextmanager
def _reversal(study: Study) -> Iterator[tuple[Finds, Callable[[], float]]]:
    (reversal,) = (each for each in reversals_of(study.engine) if each.id == study.bug)
    with edited_engine(reversal.edits, study.engine) as engine:
        yield lambda trace: engine.finds(trace.explicit()), engine.seconds


def reversals_of(engine: str) -> list[Reversal]:
    """Return the reversals whose edited code the engine has."""
    tables = ((vllm.ENGINES, vllm.all_reversals()), (sglang.ENGINES, sglang.all_reversals()))
    return [each for engines, every in tables for each in every if engine in (engines[name] for name in each.runners)]


@lru_cache(maxsize=4096)
def trace_of(engine: str, seed: int, index: int, without: str = "", focus: tuple[str, ...] = ()) -> Trace:
    """Return a labelled trace of a hunt's seed by its index, fitted to an engine."""
    number, first = divmod(index, TRACES_PER_SHARD)
    shard = Shard(profile="labelled", seed=seed, number=number, first=first, traces=1, focus=focus)
    shard = shard.model_copy(update={"without": (without,) if without else ()})
    (trace,) = shard.generate(target_kind(engine).capabilities_under(RunConfig(engine=engine)))
    return trace


def measured(study: Study, finds: Finds, seconds: Callable[[], float]) -> Outcome:
    """Search for a study's bug, with its focus as well, and without each situation in turn."""

    def trace(index: int, without: str) -> Trace:
        return trace_of(study.engine, study.seed, index, without)

    def search_in(traces: Iterable[Trace]) -> Search:
        return searched(traces, study.hits, finds, seconds)

    plain = search_in(trace(index, "") for index in range(study.traces))
    focused = None
    if study.focus:
        raised = (trace_of(study.engine, study.seed, index, "", study.focus) for index in range(study.traces))
        focused = search_in(raised)
    found = {name: hits_without(name, plain, trace, finds) for name in study.situations}
    fewer = {name: count for name, count in found.items() if 2 * count < len(plain.hits)}
    return Outcome(study=study, search=plain, focused=focused, fewer=fewer)


def searched(traces: Iterable[Trace], num_hits: int, finds: Finds, seconds: Callable[[], float]) -> Search:
    """Run traces until `num_hits` of them have found the bug."""
    begin, count, hits = seconds(), 0, list[int]()
    for index, trace in enumerate(traces):
        count += 1
        if finds(trace):
            hits.append(index)
            if len(hits) == num_hits:
                break
    return Search(traces=count, hits=tuple(hits), seconds=round(seconds() - begin, 2))


def hits_without(name: str, search: Search, trace: TraceOf, finds: Finds) -> int:
    """Return how many traces of a search find its bug without a situation; ends at half of them."""
    changed = [index for index in search.hits if trace(index, name) != trace(index, "")]
    found = len(search.hits) - len(changed)
    others = (index for index in range(search.traces) if index not in search.hits)
    for index in (*changed, *others):
        if 2 * found >= len(search.hits):
            break
        is_changed = index in changed or trace(index, name) != trace(index, "")
        found += is_changed and finds(trace(index, name))
    return found


def run(studies: Sequence[Study], workers: int, file: Path | None) -> Iterator[Outcome]:
    """Yield the outcome of each study as it ends, after the outcomes stored in `file`.

    A study whose engine did not start is tried again.
    """
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
    kept = {each.study: each for each in map(Outcome.model_validate_json, lines) if not each.refused}
    yield from (kept[study] for study in studies if study in kept)
    with ProcessPoolExecutor(workers, get_context("spawn"), prepare_process) as pool:
        for future in as_completed([pool.submit(outcome_of, study) for study in studies if study not in kept]):
            outcome = future.result()
            if file is not None:
                with file.open("a", encoding="utf-8") as stream:
                    stream.write(outcome.model_dump_json() + "\n")
            yield outcome


def ablation_table(situations: Sequence[str], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line per situation: the bugs that fewer traces find without it, rarest last."""
    width = max(map(len, situations))
    for name in situations:
        worse = [(each.fewer[name], each) for each in outcomes if name in each.fewer]
        lost = [f"{each.study.bug} ({_hits(each)} to 0)" for count, each in worse if not count]
        rarer = [f"{each.study.bug} ({_hits(each)} to {count})" for count, each in worse if count]
        parts = [f"{what}: {', '.join(sorted(bugs))}" for what, bugs in (("lost", lost), ("rarer", rarer)) if bugs]
        yield f"{name:<{width}}  {'; '.join(parts) or 'nothing'}"


def _hits(outcome: Outcome) -> int:
    return len(outcome.search.hits) if outcome.search is not None else 0


def focus_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line per bug with a focus: traces and seconds per hit without and with it; medians last."""
    pairs = [
        (each, each.search, each.focused) for each in outcomes if each.search is not None and each.focused is not None
    ]
    for each, plain, focused in pairs:
        yield f"{each.study.bug} ({', '.join(each.study.focus)}): {_effort(plain)}; with focus {_effort(focused)}"
    both = [(plain, focused) for _, plain, focused in pairs if plain.hits and focused.hits]
    if both:
        before, after = zip(*both, strict=True)
        numbers = [median(each.traces / len(each.hits) for each in part) for part in (before, after)]
        times = [median(each.seconds / len(each.hits) for each in part) for part in (before, after)]
        yield f"median of {len(both)} found both ways: {numbers[0]:.1f} traces, {times[0]:.0f} s"
        yield f"the same with focus: {numbers[1]:.1f} traces, {times[1]:.0f} s"


def _effort(search: Search) -> str:
    """Return the hits of a search, and the traces and seconds for each."""
    hits = len(search.hits)
    each = f", {search.traces / hits:.1f} traces and {search.seconds / hits:.0f} s each" if hits else ""
    return f"{hits} in {search.traces} traces and {search.seconds:.0f} s{each}"


def studies_of(asked: argparse.Namespace) -> list[Study]:
    """Return the requested studies; ValueError names an unknown situation or bug."""
    kind = target_kind(asked.engine)
    known = tuple(situations_of(kind.capabilities))
    edits = {each.id: each.edits for each in reversals_of(asked.engine)}
    bugs = sorted(FAULTS) if asked.engine == SPECSTORM else [*edits]
    bugs = [f"{PROBE}{name}" for name in sorted(kind.capabilities.probes)] if asked.probes else bugs
    if asked.values:
        traces = (trace_of(asked.engine, asked.seed, index) for index in range(asked.traces))
        bugs = sorted(frozenset().union(*map(values_of, traces)))
    wrong = [name for name in asked.situation or () if name not in known]
    wrong += [name for name in asked.bug or () if name not in bugs]
    if wrong:
        raise ValueError(f"{wrong[0]} is neither a situation nor a bug of engine {asked.engine}")
    situations = tuple(asked.situation or (known if asked.all else ()))

    def focus(bug: str) -> tuple[str, ...]:
        if not asked.focus or bug.startswith((PROBE, VALUE)):
            return ()
        if asked.engine == SPECSTORM:
            return focus_of([family_of(bug)], FAULT_AREAS)
        return focus_of([edit.file for edit in edits[bug]], kind.areas)

    return [
        Study(asked.engine, bug, asked.seed, asked.traces, asked.hits, situations, focus(bug))
        for bug in asked.bug or bugs
    ]


def family_of(fault: str) -> str:
    """Return the name of the module that declares a fault."""
    (family,) = (each for each in FAMILIES if FAULTS[fault] in vars(each).values())
    return family.__name__.rpartition(".")[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the studies, and print which bugs need which situation, and what a focus saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=known_engines(), default=SPECSTORM, help=f"(default: {SPECSTORM})")
    parser.add_argument("--all", action="store_true", help="leave out each situation of the engine in turn")
    parser.add_argument("--situation", action="append", metavar="NAME", help="leave out only this situation")
    parser.add_argument("--focus", action="store_true", help="also run traces with the focus that `gate` chooses")
    parser.add_argument("--probes", action="store_true", help="look for the engine's probes in place of bugs")
    parser.add_argument("--values", action="store_true", help="look for values of traces in place of bugs")
    parser.add_argument("--bug", action="append", metavar="ID", help="try only this fault or reversal")
    parser.add_argument(
        "--traces", type=int, default=960, metavar="N", help="traces of a search at most (default: 960)"
    )
    parser.add_argument("--hits", type=int, default=8, metavar="N", help="findings of a search at most (default: 8)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the traces (default: 0)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one for each CPU"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="store outcomes here, and continue from them")
    asked = parser.parse_args(arguments)
    try:
        studies = studies_of(asked)
    except ValueError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return 2
    outcomes = list[Outcome]()
    for outcome in run(studies, asked.workers, asked.results):
        outcomes.append(outcome)
        found = _effort(outcome.search) if outcome.search is not None else f"refused: {outcome.refused}"
        print(f"{outcome.study.bug}: {found}", file=sys.stderr, flush=True)
    situations = studies[0].situations
    lines = [*(ablation_table(situations, outcomes) if situations else ()), *focus_table(outcomes)]
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
