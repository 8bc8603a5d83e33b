"""Test that tokens sampled in asynchronous runs follow the target distribution.

`python -m benchmarks.conformance.distribution` runs many requests with few different prompts, each request with its own
seed, at depth 2: in one batch with each other and with greedy requests, preempted, reordered, with accepted and with
rejected draft tokens. It counts the first committed token of each prompt, the first two together, and the second and
third together; two verification steps decide the last pair. G-tests compare the counts with the exact target
distribution; a sound engine fails any of them with a chance below FAMILY_ERROR. With `--fault ID` the engine has a
fault. Exit code 0 if all tests pass, 1 if one fails, 3 if a required situation never occurred.

With a TRACE, copies of its requests are run instead, on any engine: once as the trace specifies, and once on the same
engine without async scheduling and without drafts. The two samples must have the same distribution.

Draft tokens come from a draft model, greedy or sampled, or from a script; none depends on the noise that decides their
acceptance, because verification would then be biased.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios.codec import load
from scenarios.drafters import Drafter
from scenarios.events import AnyEvent, Preempt, PreemptMode, Reorder, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec, SamplingMethod
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge.distribution import Outcome, chance_of, g_test
from workers.oracle.logits_processing import Rules, processed_logits
from workers.oracle.model_values import ModelValueCache, ModelValues
from workers.oracle.random_sampling import target_of
from workers.record import model
from workers.record.verdict import is_finding
from workers.record.words import finding_lines
from workers.run.distribution_check import check_distribution
from workers.run.engine_run import Options, Run
from workers.targets.registry import known_engines, target_kind
from workers.targets.specstorm import specstorm_target
from workers.targets.target import SPECSTORM, RunConfig

FAMILY_ERROR = 1e-6
REQUESTS_PER_TRACE = 240
NUM_TOKENS = 3
# Windows of output tokens that are counted together: first index, end.
WINDOWS = ((0, 1), (0, 2), (1, 3))
MUST_HAPPEN = ("random_accept", "random_reject", "mixed_batch", "preemption", "dropped_output", "reorder_in_flight")


@dataclass(frozen=True, slots=True)
class Case:
    """A draft verification method and a drafter to test, with vocabulary size and first seed.

    `is_drawing` says whether a draft model samples its draft tokens.
    """

    method: SamplingMethod
    drafter: Drafter
    vocab_size: int
    seed: int
    is_drawing: bool = False

    @property
    def name(self) -> str:
        """Return the verification method and the drafter as text."""
        return f"{self.method} {'drawn drafts' if self.is_drawing else self.drafter}"


CASES = (
    Case("strict", "draft_model", 8, 0),
    Case("standard", "draft_model", 12, 1_000_000),
    Case("block", "draft_model", 16, 2_000_000),
    Case("standard", "eagle", 10, 3_000_000),
    Case("block", "eagle", 14, 4_000_000),
    Case("standard", "draft_model", 9, 5_000_000, is_drawing=True),
    Case("block", "draft_model", 11, 6_000_000, is_drawing=True),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A prompt and sampling parameters; requests of a kind differ in seed and drafts only."""

    prompt: tuple[int, ...]
    params: SamplingParams


GREEDY = Kind((2, 4), SamplingParams())
KINDS = (
    Kind((3, 1), SamplingParams(temperature=2.0)),
    Kind((5, 2, 6), SamplingParams(temperature=4.0, top_k=6, presence_penalty=1.0)),
    Kind((7,), SamplingParams(temperature=3.0, top_p=0.95)),
)
NUM_TESTS = len(CASES) * len(KINDS) * len(WINDOWS)


@dataclass(frozen=True, slots=True)
class Result:
    """One G-test: the tokens that all requests of one kind sampled at some positions."""

    case: Case
    kind: Kind
    window: tuple[int, int]
    num_requests: int
    statistic: float
    degrees: int

    @property
    def p_value(self) -> float:
        """Return the chance of so large a G statistic if the tokens follow the target."""
        return chance_of(self.statistic, self.degrees)

    @property
    def is_failed(self) -> bool:
        """Return whether the p-value is too small, corrected for the number of tests."""
        return self.p_value < FAMILY_ERROR / NUM_TESTS

    def line(self) -> str:
        """Return the test's case, counts, statistic and p-value as a row of the printed table."""
        prompt, positions = " ".join(map(str, self.kind.prompt)), f"{1 + self.window[0]}-{self.window[1]}"
        return (
            f"{self.case.name:<20} {self.case.vocab_size:>4} {prompt:<8} {self.kind.params.temperature:>5g} "
            f"{positions:>6} {self.num_requests:>8} {self.statistic:>9.1f} {self.degrees:>4} {self.p_value:>9.2g}"
        )


HEAD = (
    f"{'method, drafter':<20} {'V':>4} {'prompt':<8} {'T':>5} {'tokens':>6} {'requests':>8} {'G':>9} {'df':>4} {'p':>9}"
)


def trace_of(case: Case, kinds: Sequence[Kind], first: int, count: int, faults: tuple[str, ...]) -> Trace:
    """Return a trace of `count` requests, two per tick; every fourth one is greedy.

    Every fifth request is preempted.
    """
    spec = EngineSpec(
        sampling=case.method,
        vocab_size=case.vocab_size,
        layers="attention",
        drafter=case.drafter,
        draft_sampling="probabilistic" if case.is_drawing else "greedy",
        num_speculative_tokens=2,
        max_num_seqs=8,
        max_model_len=16,
    )
    events: list[AnyEvent] = []
    for index in range(count):
        name, tick = f"r{index}", index // 2
        kind = GREEDY if index % 4 == 3 else kinds[index % len(kinds)]
        params = kind.params.model_copy(update={"seed": case.seed + first + index})
        accept = ("1", "10", "0")[index // 3 % 3]
        events.append(
            Submit(tick=tick, request=name, prompt=kind.prompt, max_tokens=NUM_TOKENS + 1, accept=accept, params=params)
        )
        if index % 5 == 0:
            mode: PreemptMode = "drop" if index % 2 else "deliver"
            events.append(Preempt(tick=tick + 1 + index % 3, at="after_launch", request=name, mode=mode))
        if index % 7 == 0:
            events.append(Reorder(tick=tick, how="rotate"))
    return Trace(spec=spec, events=tuple(events), faults=faults).explicit()


def outputs(trace: Trace, happened: Counter[str]) -> Iterator[tuple[Outcome, Outcome]]:
    """Run a trace without comparing it; yield each request's prompt and first tokens.

    Adds the run's probes to `happened`.
    """
    run = Run(trace, ModelValueCache(), Options(races=False))
    engine = specstorm_target(run.target).engine
    while not run.feed.drained():
        run.feed.step()
        engine.log.clear()
        specstorm_target(run.target).recorder.take()
    happened.update(run.probes)
    for request in engine.requests.values():
        start = request.num_prompt
        yield tuple(request.tokens[:start]), tuple(request.tokens[start : start + NUM_TOKENS])


def law_of(kind: Kind, window: tuple[int, int], spec: EngineSpec) -> Mapping[Outcome, float]:
    """Return the exact target probability of each token sequence in a window of positions."""
    law: dict[Outcome, float] = {(): 1.0}
    for _ in range(window[1]):
        longer: dict[Outcome, float] = {}
        for outcome, probability in law.items():
            known = (*kind.prompt, *outcome)
            model_values = ModelValues(known, spec)
            model_values.extend(len(known))
            logits = [model.logit(model_values.hidden[-1], token) for token in range(spec.vocab_size)]
            target = target_of(
                processed_logits(logits, Rules(kind.params, frozenset()), known, len(kind.prompt)), kind.params
            )
            assert target is not None, "some logit is not -inf"
            for token, share in enumerate(target.probabilities()):
                if share > 0:
                    longer[(*outcome, token)] = probability * share
        law = longer
    marginal: dict[Outcome, float] = {}
    for outcome, probability in law.items():
        marginal[outcome[window[0] :]] = marginal.get(outcome[window[0] :], 0.0) + probability
    return marginal


def results(
    case: Case,
    num_requests: int,
    faults: tuple[str, ...],
    happened: Counter[str],
    kinds: Sequence[Kind] = KINDS,
) -> list[Result]:
    """Run requests of each kind, and test their tokens in each window of output positions."""
    counts: dict[tuple[Outcome, tuple[int, int]], Counter[Outcome]] = {}
    for first in range(0, num_requests, REQUESTS_PER_TRACE):
        trace = trace_of(case, kinds, first, min(REQUESTS_PER_TRACE, num_requests - first), faults)
        for prompt, tokens in outputs(trace, happened):
            for window in WINDOWS:
                counts.setdefault((prompt, window), Counter())[tokens[slice(*window)]] += 1
    found = []
    for kind in kinds:
        for window in WINDOWS:
            seen = counts[kind.prompt, window]
            test = g_test(seen, law_of(kind, window, trace.spec))
            found.append(Result(case, kind, window, seen.total(), *test))
    return found


def against_itself(path: Path, engine: str, num_copies: int, fault: str | None) -> int:
    """Compare a trace's sampled tokens with tokens sampled without speculation.

    Returns the exit code.
    """
    trace = load(path).explicit()
    trace = trace.model_copy(update={"faults": (fault,)}) if fault is not None else trace
    try:
        verdict = check_distribution(
            trace, ModelValueCache(), target_kind(engine), num_copies, RunConfig(engine=engine)
        )
    except ValueError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    print(f"{verdict.kind}: {path}, {num_copies} copies of each sampled request")
    for line in finding_lines(verdict):
        print(line)
    print(f"a sound engine diverges here with a chance of {FAMILY_ERROR:g}")
    return 1 if is_finding(verdict) else 0


def main() -> int:
    """Test the distribution in all cases and print a row per test; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--requests", type=int, default=6000, metavar="N", help="requests of a case or copies of a request"
    )
    parser.add_argument("--fault", choices=sorted(FAULTS), metavar="ID", help="fault to switch on")
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE", help="copy the requests of this trace instead")
    parser.add_argument("--engine", default=SPECSTORM, choices=known_engines(), help="engine that runs TRACE")
    arguments = parser.parse_args()
    if arguments.trace is not None:
        return against_itself(arguments.trace, arguments.engine, arguments.requests, arguments.fault)
    faults = (arguments.fault,) if arguments.fault else ()
    failed, missing = 0, []
    print(HEAD)
    for case in CASES:
        happened: Counter[str] = Counter()
        for result in results(case, arguments.requests, faults, happened):
            failed += result.is_failed
            print(f"{result.line()}{'  FAILED' if result.is_failed else ''}", flush=True)
        missing += [f"{case.name}: no {probe}" for probe in MUST_HAPPEN if not happened[probe]]
    print(f"\n{NUM_TESTS} tests, {failed} failed; a sound engine fails one of them with a chance of {FAMILY_ERROR:g}")
    for text in missing:
        print(text, file=sys.stderr)
    return 1 if failed else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
