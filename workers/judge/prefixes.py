"""Give each token prefix an id, to say from which tokens a KV cache entry was computed."""

from collections.abc import Sequence

from workers.record.evidence import Fact, fact

# The number of the empty prefix, and of an unwritten entry.
_NOTHING, UNWRITTEN = 0, -1


class Prefixes:
    """Ids of token prefixes; equal prefixes have equal ids in all caches."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.tokens: list[tuple[int, int]] = [(-1, -1)]

    def extended(self, prefixes: list[int], tokens: Sequence[int]) -> list[int]:
        """Return the ids of all prefixes of a sequence that continues by `tokens`."""
        found = list(prefixes)
        for token in tokens:
            pair = (found[-1] if found else _NOTHING, token)
            if pair not in self._numbers:
                self._numbers[pair] = len(self.tokens)
                self.tokens.append((len(found), token))
            found.append(self._numbers[pair])
        return found

    def facts_of(self, due: int, there: int) -> tuple[Fact, Fact]:
        """Return messages that describe an expected and an actual token prefix, given their ids."""
        _, token = self.tokens[due]
        actual = fact("entry_unwritten")
        if there != UNWRITTEN:
            other, other_token = self.tokens[there]
            actual = fact("entry_of_token", token=other_token, position=other)
        return fact("entry_of_prefix", token=token), actual
