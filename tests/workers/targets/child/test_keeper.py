"""A keeper reuses its process from trace to trace, and starts a new one after it has ended."""

from tests.workers.targets.child.test_adder import Adder, judged
from workers.record.verdict import Agreed


def test_process_is_reused_while_it_runs_and_then_replaced() -> None:
    kind = Adder()
    first = kind.kept.process()
    assert kind.kept.process() is first
    first.kill()
    second = kind.kept.process()
    assert second.pid != first.pid
    assert isinstance(judged(kind), Agreed)
    assert not second.is_alive()
