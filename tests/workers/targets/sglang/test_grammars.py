"""What grammars are compiled by is ready where it was asked for."""

import pytest

from workers.targets.sglang.inside.grammars import AtOnce


def test_what_is_given_to_the_executor_is_done_when_it_returns() -> None:
    done: list[int] = []
    future = AtOnce().submit(done.append, 3)
    assert (future.done(), done) == (True, [3])


def test_what_fails_in_the_executor_fails_where_its_result_is_asked_for() -> None:
    future = AtOnce().submit(int, "three")
    with pytest.raises(ValueError, match="three"):
        future.result()
