"""The engine's block pool and the oracle's independent reference pool agree on every block."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.engine.prefix_cache import CachingPool
from workers.oracle.prefix_cache import Prefixes, cached_blocks
from workers.record.model import block_hash

SIZE = 7


class Pair:
    """A block pool and its reference; `held` has the blocks of each holder."""

    def __init__(self) -> None:
        self.pool = CachingPool(SIZE)
        self.known = cached_blocks(SIZE)
        self.held: list[tuple[int, ...]] = []

    def take(self, count: int) -> None:
        due = self.known.next_ones(count)
        taken = self.pool.take(count)
        assert (taken is None) == (len(due) < count)
        if taken is not None:
            assert taken == due
            self.known.claim(due)
            self.held.append(taken)

    def give_back(self, which: int) -> None:
        if self.held:
            blocks = self.held.pop(which % len(self.held))
            self.pool.release(blocks)
            self.known.release(blocks)

    def register(self, which: int, content: int) -> None:
        blocks = self.held[which % len(self.held)] if self.held else ()
        for block in blocks:
            if self.pool.hash_of[block] is None:
                self.pool.register(block, content)
                self.known.register(block, content, None)
                return

    def share(self, contents: list[int]) -> None:
        found = self.pool.find(contents)
        assert tuple(found) == self.known.chain(contents)
        if found:
            self.pool.share(found)
            self.known.share(found)
            self.held.append(tuple(found))

    def reset(self) -> None:
        assert self.pool.reset() == self.known.idle
        self.known.reset()

    def agrees(self) -> bool:
        pool, known = self.pool, self.known
        return (
            pool.references == known.num_holders
            and [content or 0 for content in pool.hash_of] == known.prefix_of
            and [*pool.idle] == known.idle
            and pool.num_free == known.num_free
        )


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(1, 5)), max_size=40))
def test_engine_pool_and_reference_pool_agree(moves: list[tuple[int, int, int]]) -> None:
    pair = Pair()
    for kind, which, size in moves:
        match kind:
            case 0 | 1:
                pair.take(size)
            case 2:
                pair.give_back(which)
            case 3:
                pair.register(which, size)
            case 4:
                pair.share([*range(size, 6)][:3])
            case _:
                pair.reset()
        assert pair.agrees()


def test_eviction_takes_least_recently_used_then_last_block() -> None:
    pool = CachingPool(4)
    old, new = pool.take(2), pool.take(2)
    assert old is not None
    assert new is not None
    for content, block in enumerate([*old, *new], start=1):
        pool.register(block, content)
    pool.release(old)
    pool.release(new)
    assert pool.take(3) == (old[1], old[0], new[1])
    assert pool.find([3]) == [new[0]]
    assert pool.find([1]) == []


def test_empty_blocks_are_given_out_first() -> None:
    pool = CachingPool(2)
    (first,), (second,) = pool.take(1) or [], pool.take(1) or []
    pool.register(first, 1)
    pool.release([first])
    pool.release([second])
    assert pool.take(1) == (second,)
    assert pool.find([1]) == [first]


def test_idle_shared_blocks_do_not_count_as_free() -> None:
    pool = CachingPool(3)
    (shared,) = pool.take(1) or []
    pool.register(shared, 1)
    pool.release([shared])
    assert pool.has_room([shared], 2)
    assert not pool.has_room([shared], 3)


@given(st.lists(st.integers(0, 9), max_size=24), st.integers(1, 5))
@settings(max_examples=100)
def test_prefix_hash_and_number_depend_on_every_token(tokens: list[int], size: int) -> None:
    numbers = Prefixes(size)

    def named(tokens: list[int]) -> list[tuple[int, int]]:
        """Return the hash and the number of each prefix."""
        prefixes: list[int] = []
        numbers.extend(prefixes, tokens, len(tokens))
        ends = range(size, len(tokens) + 1, size)
        return [(block_hash(0, tokens[:end]), number) for end, number in zip(ends, prefixes, strict=True)]

    names = named(tokens)
    assert named(tokens) == names
    for changed in range(len(names) * size):
        others = named([*tokens[:changed], tokens[changed] + 1, *tokens[changed + 1 :]])
        same = [(a[0] == b[0], a[1] == b[1]) for a, b in zip(names, others, strict=True)]
        assert same == [(index < changed // size,) * 2 for index in range(len(names))]


def test_block_hash_depends_on_the_previous_block_hash() -> None:
    assert block_hash(block_hash(0, [3, 1]), [4, 1]) == block_hash(0, [3, 1, 4, 1]) != block_hash(0, [4, 1])


def test_prefixes_are_numbered_incrementally() -> None:
    numbers, prefixes = Prefixes(2), [0][:0]
    numbers.extend(prefixes, [7, 7, 7, 7, 7, 7], 5)
    assert prefixes == [1, 2]
    numbers.extend(prefixes, [7, 7, 7, 7, 7, 7], 3)
    assert prefixes == [1, 2]
    numbers.extend(prefixes, [7, 7, 7, 7, 7, 7], 6)
    assert prefixes == [1, 2, 3]
