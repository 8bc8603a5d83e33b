"""Prefix cache as the scheduler uses it: blocks that a request may share, and those that it registers for others."""

from collections.abc import Sequence
from itertools import takewhile

from scenarios.spec import EngineSpec
from workers.engine.observer import EngineObserver
from workers.engine.parts import Parts
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import PlanRow, Request


class Prefixes:
    """The prefix cache of one engine over its pool of blocks."""

    def __init__(self, spec: EngineSpec, parts: Parts, observer: EngineObserver) -> None:
        self.pool = CachingPool(spec.num_blocks)
        self._size = spec.block_size
        self._is_aligned = spec.is_aligned
        self._drops_last_match = spec.last_match == "dropped"
        self._registered_now: set[int] = set()
        self._parts = parts
        self._observer = observer

    def hits(self, request: Request) -> list[int]:
        """Return the cached blocks of a request's longest prefix that leaves at least one token to compute."""
        count = (len(request.tokens) - 1) // self._size
        self._extend_hashes(request.block_hashes, request.tokens, count)
        found = self.pool.find(request.block_hashes[:count])
        if self._drops_last_match:
            found = self._parts.usable_hits(found)
        if self._is_aligned:
            # A recurrent state is read when a step begins and kept when it ends: that of this step is not there yet.
            found = list(takewhile(lambda block: block not in self._registered_now, found))
        return found

    def _extend_hashes(self, hashes: list[int], tokens: Sequence[int], count: int) -> None:
        """Append the hashes of full blocks of tokens until there are `count`."""
        assert count * self._size <= len(tokens), f"{count} blocks of {self._size} are full of {len(tokens)} tokens"
        while len(hashes) < count:
            start = len(hashes) * self._size
            block = map(tokens.__getitem__, range(start, start + self._size))
            hashes.append(self._parts.block_hash(hashes[-1] if hashes else 0, block))

    def begin_step(self) -> None:
        """Make the states of blocks registered so far available: their step has been launched."""
        num_free, size = self.pool.num_free, self.pool.size
        assert num_free <= size, f"{num_free} of {size} blocks are free: one is there twice"
        self._registered_now.clear()

    def take(self, shared: Sequence[int], count: int) -> tuple[int, ...] | None:
        """Hold `shared` blocks and take `count` others, or None."""
        self._observer.blocks_wanted(self.pool, count)
        return self._parts.take_blocks(self.pool, shared, count)

    def register(self, request: Request, tokens: list[int], num_computed: int) -> None:
        """Register full blocks whose tokens are final once what is launched has run: stream order does the rest."""
        cached, held = request.num_cached, len(request.blocks)
        assert cached <= held, f"request {request.name}: {cached} blocks are registered, of {held} that it has"
        count = min(self._parts.num_cacheable(len(tokens), num_computed) // self._size, len(request.blocks))
        if count > request.num_cached:
            self._extend_hashes(request.block_hashes, tokens, count)
            for index in range(request.num_cached, count):
                self.pool.register(request.blocks[index], request.block_hashes[index])
                self._registered_now.add(request.blocks[index])
            request.num_cached = count

    def reset(self, preempts: bool) -> list[int]:
        """Reset the cache; return the idle blocks whose contents are lost."""
        self._observer.cache_reset(self.pool, preempts)
        return self.pool.reset()

    def joined(self, request: Request, shared: list[int], rows: Sequence[PlanRow]) -> None:
        """Note the `shared` blocks of a request that joins with the last of `rows`, and register those it fills."""
        row = rows[-1]
        assert row.request is request, f"request {request.name} joins with the row of {row.request.name}"
        assert request.blocks[: len(shared)] == shared, f"{request.blocks} do not begin with {shared}"
        self._observer.joined(self.pool, shared, rows)
        request.num_cached = len(shared)
        self.register(request, request.tokens, row.num_computed + row.scheduled.n)
