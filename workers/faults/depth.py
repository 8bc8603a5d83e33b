"""Fault in the depth: more steps are in flight than corrections reach back."""

from workers.engine.parts import Parts
from workers.faults.fault import Fault, Reached, in_place_of


@in_place_of("must_process")
def _depth_as_specified(parts: Parts, reached: Reached, num_in_flight: int, depth: int) -> bool:
    if num_in_flight < depth and parts.must_process(num_in_flight, depth):
        reached()
    return num_in_flight >= depth


FAULTS = (
    Fault(
        id="specstorm-depth-3",
        source="derived from vLLM PR #32951, which corrects counts by one step; its review asks for three in flight",
        symptom="a request goes on from a count that still holds drafts that were rejected",
        trigger="a request is left out of a step while drafts of it are in flight that will be rejected",
        plane="counts",
        requires=(("depth", 3),),
        apply=_depth_as_specified,
    ),
)
