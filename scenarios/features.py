"""Which features do not go together: combinations that are refused, each with its reason, in one table."""

from collections.abc import Callable
from dataclasses import dataclass

from scenarios.spec import EngineSpec

DEPTH_MAX = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """A combination no engine runs: the key to blame, what is allowed there, and why.

    A trace that switches the fault `lifted_by` on is let through: it is there to show what the refusal is for.
    """

    key: str
    applies: Callable[[EngineSpec], bool]
    allowed: str
    reason: str
    lifted_by: str | None = None

    def message(self, spec: EngineSpec) -> str:
        """Say what was seen, what is allowed, and why."""
        return f"{self.key} is {getattr(spec, self.key)}; allowed are {self.allowed}: {self.reason}"


REFUSED: tuple[Refusal, ...] = (
    Refusal(
        key="depth",
        applies=lambda spec: spec.depth > DEPTH_MAX,
        allowed=f"1 and {DEPTH_MAX}",
        reason="counts are corrected by one step, so the step before the last one must have been processed",
        lifted_by="specstorm-depth-3",
    ),
)


def refusals(spec: EngineSpec, faults: tuple[str, ...]) -> list[Refusal]:
    """Return everything about a specification that is refused while these faults are on."""
    return [rule for rule in REFUSED if rule.applies(spec) and rule.lifted_by not in faults]
