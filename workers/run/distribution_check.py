"""Check that speculative decoding does not change the distribution of output tokens.

Each request with a temperature is copied many times, with a different seed each. The copies run with speculative
decoding and async scheduling, and without both.

Verifies: the first three output tokens, one by one, and the second and third as a pair, by two-sample G-tests.

Does not verify:
- a distribution that is wrong in both runs (`benchmarks.conformance.distribution` knows our engine's distribution);
- any single token.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import Submit
from scenarios.spec import INTEGER_MAX
from scenarios.trace import Trace
from workers.judge.distribution import Outcome, chance_of, two_sample_g_test
from workers.judge.outputs import FailedRun, Outputs
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference, Fact, fact
from workers.record.verdict import NO_STATS, Agreed, Diverged, Verdict
from workers.run.comparison import outputs_of
from workers.run.engine_run import UNJUDGED
from workers.targets.target import DEFAULT_CONFIG, RunConfig, TargetKind

# The probability that a correct engine fails any of the tests of one check.
FAMILY_ERROR = 1e-6
COPIES_PER_TRACE = 240
COPIES_PER_TICK = 2
# The output tokens of each test, as (first, stop).
WINDOWS = ((0, 1), (1, 2), (2, 3), (1, 3))
_STEPS_MAX = 20_000


def without_drafts(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return the trace without async scheduling and draft tokens, as far as the engine allows.

    Raises:
        ValueError: the trace already has both, or the engine supports neither.
    """
    update = {
        key: value for key, value in (("depth", 1), ("num_speculative_tokens", 0)) if capabilities.allows(key, value)
    }
    found = trace.model_copy(update={"spec": trace.spec.model_copy(update=update)})
    if found == trace:
        raise ValueError("spec: nothing to compare with: the engine has depth 1 and no draft tokens already")
    return found


def check_distribution(
    trace: Trace, value_cache: ModelValueCache, kind: TargetKind, num_copies: int, config: RunConfig = DEFAULT_CONFIG
) -> Verdict:
    """Compare output tokens of many copies of each request with plain decoding.

    The copies replace all events of the explicit trace.

    Raises:
        ValueError: no request has a temperature, draft tokens are kept at synthetic rates, or `without_drafts` fails.
    """
    if trace.spec.sampling == "synthetic":
        raise ValueError("spec.sampling: synthetic accepts draft tokens at given rates: no distribution to check")
    submits = [submit for submit in trace.submits() if submit.params.temperature > 0]
    if not submits:
        raise ValueError("events: no request has a temperature")
    without = without_drafts(trace, kind.capabilities)
    runs = (_traces_with_copies(each, submits, role, num_copies) for role, each in enumerate((trace, without)))
    counts: list[dict[tuple[str, tuple[int, int]], Counter[Outcome]]] = []
    for traces in runs:
        tally: dict[tuple[str, tuple[int, int]], Counter[Outcome]] = {}
        for each in traces:
            outputs = outputs_of(each, value_cache, kind, config, replace(UNJUDGED, steps_max=_STEPS_MAX))
            if isinstance(outputs, FailedRun):
                return _differs("liveness", "end", "", fact("outputs"), fact("failed", error=outputs.error))
            _count(outputs, tally)
        counts.append(tally)
    for (request, (first, last)), seen in counts[0].items():
        statistic, degrees = two_sample_g_test(seen, counts[1][request, (first, last)])
        # The probability of such a statistic, or a larger one, if both samples have the same distribution.
        p_value = chance_of(statistic, degrees)
        if p_value < FAMILY_ERROR / len(counts[0]):
            due = fact("same_law", last=last, copies=num_copies)
            if last > first + 1:
                due = fact("same_law_of_several", first=1 + first, last=last, copies=num_copies)
            found = fact("another_law", g=statistic, degrees=degrees, p=p_value)
            return _differs("tokens", "distribution", request, due, found)
    return Agreed(stats=NO_STATS.model_copy(update={"requests": 2 * num_copies * len(submits), "planes": ("tokens",)}))


def _traces_with_copies(trace: Trace, submits: Sequence[Submit], role: int, num_copies: int) -> Iterator[Trace]:
    """Yield traces with many copies of each request, each copy with another sampling seed.

    The seeds also differ between both runs (`role`).
    """
    # One more run of drafts than the counted tokens, so that the length limit cuts off no counted draft token.
    most = 1 + max(last for _, last in WINDOWS) + trace.spec.num_speculative_tokens
    copies = [
        submit.model_copy(
            update={
                "request": f"{submit.request}.{copy}",
                "max_tokens": min(submit.max_tokens, most),
                "params": submit.params.model_copy(
                    update={"seed": below(INTEGER_MAX, trace.seed, f"copy {role}", submit.request, copy)}
                ),
            }
        )
        for copy in range(num_copies)
        for submit in submits
    ]
    for first in range(0, len(copies), COPIES_PER_TRACE):
        events = tuple(
            copy.model_copy(update={"tick": index // COPIES_PER_TICK})
            for index, copy in enumerate(copies[first : first + COPIES_PER_TRACE])
        )
        yield trace.model_copy(update={"events": events, "expect": {}})


def _count(outputs: Outputs, tally: dict[tuple[str, tuple[int, int]], Counter[Outcome]]) -> None:
    for name, output in outputs.items():
        for window in WINDOWS:
            request = name.rpartition(".")[0]
            tally.setdefault((request, window), Counter())[output.tokens[slice(*window)]] += 1


def _differs(plane: str, variable: str, request: str, expected: Fact, actual: Fact) -> Diverged:
    difference = Difference(plane=plane, variable=variable, request=request, step=0, expected=expected, actual=actual)
    return Diverged(stats=NO_STATS, difference=difference)
