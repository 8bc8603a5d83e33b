"""Identities of whole prefixes, by which judges tell what lies in a cache: one each, whichever cache has it."""

from collections.abc import Sequence

from workers.record.evidence import Fact, fact

# The identity of no prefix, and of what nobody wrote.
_NOTHING, UNWRITTEN = 0, -1


class Prefixes:
    """Identities of whole prefixes, one each, whichever cache has an entry of it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.tokens: list[tuple[int, int]] = [(-1, -1)]

    def extended(self, prefixes: list[int], tokens: Sequence[int]) -> list[int]:
        """Return prefixes and those that some tokens behind the last make of it."""
        found = list(prefixes)
        for token in tokens:
            pair = (found[-1] if found else _NOTHING, token)
            if pair not in self._numbers:
                self._numbers[pair] = len(self.tokens)
                self.tokens.append((len(found), token))
            found.append(self._numbers[pair])
        return found

    def told(self, due: int, there: int) -> tuple[Fact, Fact]:
        """Return what is due where a request attends, and what is there."""
        _, token = self.tokens[due]
        actual = fact("entry_unwritten")
        if there != UNWRITTEN:
            other, other_token = self.tokens[there]
            actual = fact("entry_of_token", token=other_token, position=other)
        return fact("entry_of_prefix", token=token), actual
