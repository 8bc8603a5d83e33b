"""The grammar backend's executor runs each call synchronously."""

import pytest

from workers.targets.sglang.inside.grammars import ImmediateExecutor


def test_executor_has_run_the_call_when_submit_returns() -> None:
    done: list[int] = []
    future = ImmediateExecutor().submit(done.append, 3)
    assert (future.done(), done) == (True, [3])


def test_executor_raises_the_exception_at_result() -> None:
    future = ImmediateExecutor().submit(int, "three")
    with pytest.raises(ValueError, match="three"):
        future.result()
