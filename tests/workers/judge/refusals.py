"""Refusals: the rule that a changed decision must break, with its values."""

from collections.abc import Mapping
from dataclasses import dataclass

from workers.record.evidence import Violation
from workers.record.rules import Rule


@dataclass(frozen=True, slots=True)
class Refusal:
    """A violation of one of some rules, the first without a prefix cache, with its values."""

    rules: tuple[Rule, ...]
    values: Mapping[str, object]

    def is_of(self, broken: object) -> bool:
        """Return whether a violation matches."""
        if not isinstance(broken, Violation) or broken.rule not in self.rules:
            return False
        is_first = broken.rule is self.rules[0]
        return not is_first or all(broken.values[name] == value for name, value in self.values.items())


def refused(*rules: Rule, **values: object) -> Refusal:
    """Return the refusal by any of some rules; `values` belong to the first."""
    return Refusal(rules, values)
