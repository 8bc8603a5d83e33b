"""The fault that lets more steps be in flight than corrections reach back."""

from dataclasses import replace

from scenarios.spec import EngineSpec
from workers.engine.parts import Parts
from workers.faults.fault import Fault, Reached


def _as_many_as_asked_for(parts: Parts, reached: Reached) -> Parts:
    def steps_in_flight(spec: EngineSpec) -> int:
        if spec.depth > parts.steps_in_flight(spec):
            reached()
        return spec.depth

    return replace(parts, steps_in_flight=steps_in_flight)


FAULTS = (
    Fault(
        id="specstorm-depth-3",
        source="derived from vLLM PR #32951, which corrects counts by one step; its review asks for three in flight",
        symptom="a request goes on from a count that still holds drafts that were rejected",
        trigger="a request is left out of a step while the one before, in which drafts of it are rejected, is in flight",
        plane="counts",
        requires=(("depth", (3, 4)),),
        apply=_as_many_as_asked_for,
    ),
)
