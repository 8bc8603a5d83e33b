"""Breach: a broken output rule (contract), as a value that becomes a reported difference."""

from typing import NamedTuple

from workers.record.evidence import Difference, Fact

# The plane of these findings; the variable is the name of the broken contract.
PLANE = "contracts"


class Breach(NamedTuple):
    """A broken output rule (contract): name, request, output position, expected and actual."""

    contract: str
    request: str
    position: int | None
    expected: Fact
    actual: Fact

    def difference(self, step: int) -> Difference:
        """Convert the breach to the `Difference` that a verdict reports, at a step."""
        return Difference(
            plane=PLANE,
            variable=self.contract,
            request=self.request,
            step=step,
            position=self.position,
            expected=self.expected,
            actual=self.actual,
        )
