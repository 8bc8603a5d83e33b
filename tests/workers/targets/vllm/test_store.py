"""The store beside vLLM's cache: what it holds of a prompt, and what makes room for what."""

from workers.targets.vllm.inside.transfer.store import Store

TOKENS = [1, 2, 3, 4, 5, 6]
KEYS = [tuple(TOKENS[:stop]) for stop in (2, 4, 6)]


def test_the_first_blocks_of_a_prompt_are_found_up_to_one_that_is_not_held() -> None:
    store = Store(3)
    slots = [store.write(key) for key in KEYS]
    assert None not in slots
    store.written(KEYS[0], 0, True)
    store.written(KEYS[2], 2, True)
    assert store.prefix(TOKENS, 2, range(3)) == [0]
    store.written(KEYS[1], 1, True)
    assert store.prefix(TOKENS, 2, range(3)) == [0, 1, 2]
    assert store.prefix(TOKENS, 2, range(1, 3)) == [1, 2]


def test_the_block_used_least_recently_makes_room_unless_it_is_read() -> None:
    store = Store(2)
    for key in KEYS[:2]:
        slot = store.write(key)
        assert slot is not None
        store.written(key, slot, True)
    store.pin([0])
    assert store.write(KEYS[2]) == 1
    assert store.write((9, 9)) is None
    store.unpin([0])
    assert store.write((9, 9)) == 0
    assert store.num_evicted == 2


def test_what_is_not_kept_leaves_its_slot() -> None:
    store = Store(1)
    assert store.write(KEYS[0]) == 0
    store.written(KEYS[0], 0, False)
    assert not store.knows(KEYS[0])
    assert store.write(KEYS[1]) == 0
