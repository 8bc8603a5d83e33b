"""Prefix caching in the scheduler: find hits, register full blocks."""

from collections.abc import Sequence
from itertools import takewhile

from scenarios.spec import EngineSpec
from workers.engine.functions import EngineFunctions
from workers.engine.observer import EngineObserver
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import PlanRow, Request


class Prefixes:
    """The scheduler's prefix cache, on top of a block pool."""

    def __init__(self, spec: EngineSpec, functions: EngineFunctions, observer: EngineObserver) -> None:
        self.pool = CachingPool(spec.num_blocks)
        self._size = spec.block_size
        self._is_aligned = spec.is_aligned
        self._drops_last_match = spec.last_match == "dropped"
        self._registered_now: set[int] = set()
        self._functions = functions
        self._observer = observer

    def hits(self, request: Request) -> list[int]:
        """Return the blocks of a request's prefix-cache hit; one token remains to compute."""
        count = (len(request.tokens) - 1) // self._size
        self._extend_hashes(request.block_hashes, request.tokens, count)
        found = self.pool.find(request.block_hashes[:count])
        if self._drops_last_match:
            found = self._functions.usable_hits(found)
        if self._is_aligned:
            # A recurrent state is read at the start of a step and stored at its end, so states of this step are not
            # available yet.
            found = list(takewhile(lambda block: block not in self._registered_now, found))
        return found

    def _extend_hashes(self, hashes: list[int], tokens: Sequence[int], count: int) -> None:
        """Append hashes of a request's full blocks, up to `count`."""
        assert count * self._size <= len(tokens), f"{len(tokens)} tokens do not fill {count} blocks of {self._size}"
        while len(hashes) < count:
            start = len(hashes) * self._size
            block = map(tokens.__getitem__, range(start, start + self._size))
            hashes.append(self._functions.block_hash(hashes[-1] if hashes else 0, block))

    def begin_step(self) -> None:
        """Begin a step: blocks registered in earlier steps may be hit from now on."""
        num_free, size = self.pool.num_free, self.pool.size
        assert num_free <= size, f"{num_free} of {size} blocks are free: one was released twice"
        self._registered_now.clear()

    def take(self, shared: Sequence[int], count: int) -> tuple[int, ...] | None:
        """Add references to a hit's `shared` blocks and allocate `count` more; None if too few."""
        self._observer.blocks_wanted(self.pool, count)
        return self._functions.take_blocks(self.pool, shared, count)

    def register(self, request: Request, tokens: list[int], num_computed: int) -> None:
        """Register a request's full blocks whose tokens are final after the launched steps.

        Stream order makes later readers see them.
        """
        cached, held = request.num_cached, len(request.blocks)
        assert cached <= held, f"request {request.name}: {cached} blocks are registered, but it has only {held}"
        count = min(self._functions.num_cacheable(len(tokens), num_computed) // self._size, len(request.blocks))
        if count > request.num_cached:
            self._extend_hashes(request.block_hashes, tokens, count)
            for index in range(request.num_cached, count):
                self.pool.register(request.blocks[index], request.block_hashes[index])
                self._registered_now.add(request.blocks[index])
            request.num_cached = count

    def reset(self, preempts: bool) -> list[int]:
        """Reset the cache; return the idle blocks that were registered."""
        self._observer.cache_reset(self.pool, preempts)
        return self.pool.reset()

    def joined(self, request: Request, shared: list[int], rows: Sequence[PlanRow]) -> None:
        """Record a newly admitted request's prefix-cache hit; register the blocks that it fills.

        Its row is the last of `rows`.
        """
        row = rows[-1]
        assert row.request is request, f"request {request.name} does not have the last row, {row.request.name} has"
        assert request.blocks[: len(shared)] == shared, f"{request.blocks} do not begin with {shared}"
        self._observer.joined(self.pool, shared, rows)
        request.num_cached = len(shared)
        self.register(request, request.tokens, row.num_computed + row.scheduled.n)
