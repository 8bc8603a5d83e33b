"""Refusals: the scheduling rule that a changed decision breaks, with its values."""

from collections.abc import Mapping
from dataclasses import dataclass

from workers.record.evidence import Violation
from workers.record.rules import Rule


@dataclass(frozen=True, slots=True)
class Refusal:
    """The expected violation: one of some rules, with the values of the first."""

    rules: tuple[Rule, ...]
    values: Mapping[str, object]

    def is_of(self, broken: object) -> bool:
        """Return whether a violation matches."""
        if not isinstance(broken, Violation) or broken.rule not in self.rules:
            return False
        is_first = broken.rule is self.rules[0]
        return not is_first or all(broken.values[name] == value for name, value in self.values.items())


def refused(*rules: Rule, **values: object) -> Refusal:
    """Return a `Refusal` by one of some rules; `values` belong to the first rule."""
    return Refusal(rules, values)
