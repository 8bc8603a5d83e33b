"""Refusals: which rule a decision is to break, and with which values."""

from collections.abc import Mapping
from dataclasses import dataclass

from workers.record.evidence import Violation
from workers.record.rules import Rule


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of some rules that is broken, the first without a prefix cache, and what it says of the decision."""

    rules: tuple[Rule, ...]
    values: Mapping[str, object]

    def is_of(self, broken: object) -> bool:
        """Tell whether a violation is this one."""
        if not isinstance(broken, Violation) or broken.rule not in self.rules:
            return False
        is_first = broken.rule is self.rules[0]
        return not is_first or all(broken.values[name] == value for name, value in self.values.items())


def refused(*rules: Rule, **values: object) -> Refusal:
    """Return the refusal by any of some rules; `values` are those of the first."""
    return Refusal(rules, values)
