"""Hypothesis strategies for traces, for fuzzing campaigns and for users' own `@given` tests.

What Hypothesis draws follows from its seed alone, too: `BACKEND`.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from scenarios.capabilities import Capabilities
from scenarios.generation.base import generate_trace, random_trace
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to
from scenarios.generation.situation import Generated
from scenarios.generation.weights import DEFAULT, Weights
from scenarios.trace import Trace

__all__ = ["BACKEND", "Provider", "random_trace", "traces"]

BACKEND = "specstorm"


class Provider(HypothesisProvider):
    """Hypothesis's provider of random values, without constants found in source code.

    A worker, the coordinator and a replay load different modules; the traces of a shard are the same in all of them.
    """

    def _maybe_draw_constant(self, *of: object, **options: object) -> None:
        """Return None: constants would depend on which modules are loaded."""
        return


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Provider"


class _HypothesisNumbers:
    """Random numbers from Hypothesis, which shrinks them to 0, the first item, and False."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        return self._draw(st.integers(0, bound - 1)) if bound > 1 else 0

    def of(self, numbers: Sequence[int]) -> int:
        return numbers[self.below(len(numbers))]

    def chance(self, weight: Fraction) -> bool:
        return self.below(weight.denominator) >= weight.denominator - weight.numerator

    def one_in(self, count: int) -> bool:
        return self.below(count) == count - 1


def traces(capabilities: Capabilities | None = None) -> st.SearchStrategy[Trace]:
    """Return a Hypothesis strategy for valid traces, fitted to an engine if given.

    Their prompts and scripts are still generators, which `Trace.explicit` expands.
    """

    def adapted(each: Generated) -> Trace:
        return each.trace if capabilities is None else fitted_to(for_engine(each.trace, capabilities), capabilities)

    return generated_traces().map(adapted)


def generated_traces(weights: Weights = DEFAULT) -> st.SearchStrategy[Generated]:
    """Return a strategy for random traces, each with the names of its situations."""

    @st.composite
    def sampled(draw: Any) -> Generated:
        seed = draw(st.integers(0, 2**32 - 1))
        return generate_trace(lambda site, index: _HypothesisNumbers(draw), seed, weights)

    return sampled()
