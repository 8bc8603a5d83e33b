"""Observations of a step are delivered in the order of a GPU, including host values."""

from collections.abc import Callable, Mapping

from workers.targets.child.inside.observations import Observations
from workers.targets.child.inside.readback import CopyReadback, Parts, Receive
from workers.targets.child.messages import Message


class Late(CopyReadback):
    """Copies that complete only when they are waited for, without a GPU."""

    def read(self, tensors: Mapping[str, Parts], receive: Receive) -> None:
        self._coming.append((self, lambda: receive(tensors)))

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass


def observations(number_of: Callable[[str], int] = int) -> Observations:
    seen: list[Message] = []
    return Observations(Late(), number_of, lambda point, name: (name,), seen, "engine")


def test_host_values_wait_for_copies_launched_before_them() -> None:
    of_step = observations()
    of_step.note("scheduled", ["1"], begun=[])
    of_step.read("inputs", ["1"], {}, lambda views: {"input_ids": [4, 5]})
    of_step.note("processed", ["1"], sampled=[[6]])
    assert [seen["point"] for seen in of_step.take()] == ["scheduled"]
    of_step.finish()
    inputs, processed = of_step.take()
    assert (inputs["point"], inputs["values"]) == ("inputs", {"input_ids": [4, 5]})
    assert processed["point"] == "processed"
