"""Urgencies of host calls under a random schedule: labelled draws, many at once.

A step makes hardly other calls than the steps before it, and NumPy draws hundreds of numbers while Python draws forty.
"""

from collections.abc import Sequence

import numpy as np

from scenarios.draw import draw, label_key, number_of, round_keys

STEPS_AT_ONCE = 8
_SITE = "host"


def draw_all(seed: int, site: str, keys: Sequence[str], indexes: Sequence[int]) -> dict[str, list[int]]:
    """Return `draw` of each index, by key."""
    key_words = np.array([label_key(site, key) for key in keys], dtype=np.uint64).reshape(-1, 2)
    numbers = number_of(seed, np.array(indexes, dtype=np.uint64), round_keys(key_words[:, :1], key_words[:, 1:]))
    return dict(zip(keys, numbers.tolist(), strict=True))


class HostUrgencies:
    """What calls of the host draw: those that are known by then for some steps at once, a new one by itself."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._steps = range(0)
        # By call; a call that was not known when these steps were drawn has none.
        self._drawn: dict[str, list[int]] = {}

    def of(self, label: str, step: int) -> int:
        """Return what a call drew in a step."""
        if step not in self._steps:
            self._steps = range(step, step + STEPS_AT_ONCE)
            self._drawn = draw_all(self._seed, _SITE, list(self._drawn), self._steps)
        numbers = self._drawn.setdefault(label, [])
        return numbers[step - self._steps.start] if numbers else draw(self._seed, _SITE, label, step)
