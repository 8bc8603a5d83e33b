"""A process is kept from trace to trace, and another one started once it has ended."""

from tests.workers.targets.child.test_adder import Adder, judged
from workers.record.verdict import Agreed


def test_a_process_is_kept_while_it_lives_and_another_one_takes_its_place() -> None:
    kind = Adder()
    first = kind.keeper.process()
    assert kind.keeper.process() is first
    first.kill()
    second = kind.keeper.process()
    assert second.pid != first.pid
    assert isinstance(judged(kind), Agreed)
    assert not second.is_alive()
