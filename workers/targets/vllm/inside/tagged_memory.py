"""Memory of one worker by the tags under which vLLM allocates it, as its allocator for GPUs has it in pools."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from workers.simulated_torch.device import activate


class TaggedMemory:
    """What is allocated of the simulated device in the pools of one worker."""

    def __init__(self) -> None:
        self._tags: dict[str, int] = {}

    @contextmanager
    def pool(self, tag: str) -> Iterator[None]:
        """Let what is allocated meanwhile bear a tag; of pools inside each other it is the inner one's."""
        device = activate()
        if tag not in self._tags:
            self._tags[tag] = device.new_tag()
        with device.tagging(self._tags[tag]):
            yield

    def parts(self) -> Mapping[str, Sequence[torch.Tensor]]:
        """Return the bytes that are in use, by tag."""
        return {tag: activate().tagged(number) for tag, number in self._tags.items()}
