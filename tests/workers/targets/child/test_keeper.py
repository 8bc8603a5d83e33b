"""A process is kept from trace to trace, and another one started once it has ended."""

from tests.workers.targets.child.test_adder import Adder, judged
from workers.record.verdict import Agreed


def test_a_process_is_kept_while_it_lives_and_another_one_takes_its_place() -> None:
    kind = Adder()
    first = kind.kept.process()
    assert kind.kept.process() is first
    first.kill()
    second = kind.kept.process()
    assert second.pid != first.pid
    assert isinstance(judged(kind), Agreed)
    assert not second.is_alive()
