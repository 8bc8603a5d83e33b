"""Shards of a hunt: generated traces that depend on the shard's key only, on any host."""

from collections.abc import Iterator
from itertools import count
from typing import Literal, TypeAlias, get_args

from scenarios.capabilities import Capabilities
from scenarios.draw import draw
from scenarios.features import refusals
from scenarios.generation.base import labelled_trace
from scenarios.generation.catalogue import generated_for, weights_of
from scenarios.generation.fitting import fitted_to
from scenarios.generation.situation import Generated
from scenarios.generation.weights import DEFAULT, Weights
from scenarios.spec import EngineSpec, Value
from scenarios.trace import Trace, problems
from scenarios.variants import variant

# Three schedules of this number of traces take about a second.
TRACES_PER_SHARD = 12
SEED_MAX = 2**31 - 1
Generator: TypeAlias = Literal["labelled", "hypothesis"]
GENERATORS: tuple[Generator, ...] = get_args(Generator)
Profile: TypeAlias = Literal["mixed", "labelled", "hypothesis"]


class Parent(Value):
    """A corpus trace for a shard: used as it is in turn 0, changed in later turns."""

    trace: Trace
    turn: int


class Shard(Value):
    """Traces `first` to `first + traces - 1` of a hunt's shard `number`, with planted faults.

    Profile `labelled` generates each trace from a labelled seed (`random_trace`), `hypothesis` by strategies
    (`traces`), and `mixed` by both in turn, shard by shard.
    The first traces of a shard are variants of `parents`, traces of the corpus with digest `corpus`.
    Situations and areas in `focus` are generated more often, situations in `without` never.
    """

    profile: Profile
    seed: int
    number: int
    first: int = 0
    traces: int = TRACES_PER_SHARD
    faults: tuple[str, ...] = ()
    corpus: str = ""
    parents: tuple[Parent, ...] = ()
    focus: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def generator(self) -> Generator:
        """The generator of this shard's traces."""
        return GENERATORS[self.number % len(GENERATORS)] if self.profile == "mixed" else self.profile

    def generate(self, capabilities: Capabilities | None = None) -> list[Trace]:
        """Return the traces of this shard, fitted to an engine if given; faults are not on yet."""
        return [each.trace for each in self.generated(capabilities)]

    def generated(self, capabilities: Capabilities | None = None) -> list[Generated]:
        """Return the traces of `generate`, with their situations."""
        weights = DEFAULT if capabilities is None else weights_of(self.focus, self.without, capabilities)
        found = self._fresh(weights)
        if capabilities is not None:
            found = [generated_for(each, capabilities, weights) for each in found]
        found = [self._descendant(index, each) for index, each in enumerate(found, self.first)]
        if capabilities is not None:
            found = [each._replace(trace=fitted_to(each.trace, capabilities)) for each in found]
        return found

    def _descendant(self, index: int, fresh: Generated) -> Generated:
        """Return a corpus trace (as it is, or mixed with `fresh`), or `fresh` without one.

        The situations of a corpus trace are unknown.

        The situations of a parent are unknown.
        """
        if index >= len(self.parents):
            return fresh
        parent = self.parents[index]
        seed = draw(self.seed, "hunt", "variant", self.number * TRACES_PER_SHARD + index)
        return Generated(variant(parent.trace, fresh.trace, seed) if parent.turn else parent.trace)

    def _fresh(self, weights: Weights) -> list[Generated]:
        """Generate the shard's traces, ignoring the corpus."""
        if self.generator == "labelled":
            first = self.number * TRACES_PER_SHARD + self.first
            return [labelled_trace(self.seed << 32 | first + index, weights) for index in range(self.traces)]
        whole = _sampled(draw(self.seed, "hunt", "shard", self.number), TRACES_PER_SHARD, weights)
        return whole[self.first : self.first + self.traces]


def _sampled(seed: int, num_traces: int, weights: Weights) -> list[Generated]:
    """Return traces that Hypothesis generates, equal in all environments.

    Every setting is explicit, because the environment variable `CI` changes defaults.
    Its first example, always a single trivial request, is dropped: it finds nothing, and comes once a shard.
    """
    # Hypothesis takes longer to import than all other modules, and only this generator needs it.
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings  # noqa: PLC0415
    from hypothesis import seed as seeded  # noqa: PLC0415

    from scenarios.generation.strategies import BACKEND, generated_traces  # noqa: PLC0415

    found: list[Generated] = []

    @settings(
        max_examples=1 + num_traces,
        phases=(Phase.generate,),
        database=None,
        derandomize=False,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        backend=BACKEND,
    )
    @seeded(seed)
    @given(generated_traces(weights))
    def collect(each: Generated) -> None:
        found.append(each)

    collect()
    assert len(found) == 1 + num_traces, f"Hypothesis generated {len(found)} traces, expected {1 + num_traces}"
    return found[1:]


def traces_of(seed: int, profile: Profile = "mixed") -> Iterator[Trace]:
    """Yield the traces of a hunt with this seed, without end; faults are not on yet."""
    for number in count():
        yield from Shard(profile=profile, seed=seed, number=number).generate()


def with_faults(trace: Trace, requires: tuple[tuple[str, str | int], ...], faults: tuple[str, ...]) -> Trace:
    """Return a trace with faults on, and the options they require, if that is valid.

    Keys that are refused together with the required ones get their default. If the result is not valid, the trace keeps
    its specification.
    """
    spec = trace.spec.model_copy(update=dict(requires))
    refused = {rule.key for rule in refusals(spec, faults)} - {key for key, _ in requires}
    spec = spec.model_copy(update={key: EngineSpec.model_fields[key].default for key in refused})
    fit = trace.model_copy(update={"spec": spec, "faults": faults})
    return fit if not problems(fit) else trace.model_copy(update={"faults": faults})
