"""Breach of a contract."""

from typing import NamedTuple

from workers.record.evidence import Difference, Fact

# The plane of findings; the variable of one is the contract that is broken.
PLANE = "contracts"


class Breach(NamedTuple):
    """A broken contract: the request, the position in its output, what was demanded and what was delivered."""

    contract: str
    request: str
    position: int | None
    expected: Fact
    actual: Fact

    def difference(self, step: int) -> Difference:
        """Return it as a difference seen in a step."""
        return Difference(
            plane=PLANE,
            variable=self.contract,
            request=self.request,
            step=step,
            position=self.position,
            expected=self.expected,
            actual=self.actual,
        )
