"""vLLM's coordinator of data-parallel ranks as a host thread, and what a front end knows by it.

A data-parallel rank is an engine with its own scheduler. Between two *waves* of requests all ranks are idle. A request
for one idle rank must wake the others, because ranks compute experts together: the front end tells the coordinator,
and the coordinator sends all other ranks the message that starts a wave.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.coordinator import DPCoordinatorProc
from vllm.v1.serial_utils import MsgpackEncoder

from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Rank
from workers.targets.vllm.inside.ranks.queues import hosts
from workers.targets.vllm.inside.ranks.sockets import Socket

# vLLM's coordinator waits for one such message of each rank, a subscription.
_SUBSCRIBED = b"\x01"


class WaveCoordinator:
    """Thread of vLLM's coordinator, and the front end's view of it: the current wave, and whether ranks run."""

    def __init__(self, cores: Sequence[Any]) -> None:
        self._cores, self._encoder = cores, MsgpackEncoder()
        self.wave, self.is_running = 0, False
        self._published: deque[bytes] = deque()
        self._front = Socket(self._published.append)
        self._from_ranks, self._to_ranks = Socket(lambda message: None), Socket(self._send_to_ranks)
        self.rank = Rank(len(cores))
        hosts().start("coordinator", self.rank, self._serve)

    def _serve(self) -> None:
        native().enter_rank(0)
        for _ in self._cores:
            self._to_ranks.put(_SUBSCRIBED)
        # Instead of addresses vLLM gets the sockets themselves.
        DPCoordinatorProc(len(self._cores)).process_input_socket(self._front, self._from_ranks, self._to_ranks)

    @property
    def has_received_all(self) -> bool:
        """Whether no message to the coordinator is under way."""
        return not any(each.inbox for each in (self._front, self._from_ranks, self._to_ranks))

    @property
    def is_idle(self) -> bool:
        """Whether no message from or to the coordinator is under way."""
        return self.has_received_all and not self._published

    def report(self, core: Any, outputs: Any) -> None:
        """Send the coordinator what a rank reports: its load, the start or the end of a wave."""
        outputs.engine_index = core.engine_index
        self._from_ranks.put(b"".join(map(bytes, self._encoder.encode(outputs))))

    def announce(self, rank: int) -> None:
        """Tell the coordinator of a request for a rank, as a front end does that believes all ranks to be idle."""
        if not self.is_running:
            self.is_running = True
            self._front.put(msgspec.msgpack.encode((rank, self.wave)))

    def receive(self) -> None:
        """Let the front end receive what the coordinator has published."""
        while self._published:
            _, self.wave, self.is_running = msgspec.msgpack.decode(self._published.popleft())

    def _send_to_ranks(self, message: Any) -> None:
        if isinstance(message, tuple):
            wave, besides = msgspec.msgpack.decode(message[1])
            for core in self._cores:
                core.input_queue.put_nowait((EngineCoreRequestType.START_DP_WAVE, (wave, besides)))


class Outbox:
    """Output queue of a rank: outputs of requests are for the front end.

    What is for the coordinator is given to `report`, the answer to a control call to `answer`.
    """

    def __init__(self, report: Callable[[Any], None], answer: Callable[[Any], None]) -> None:
        self._outputs: deque[tuple[int, Any]] = deque()
        self._report, self._answer = report, answer

    def put_nowait(self, item: tuple[int, Any]) -> None:
        client, outputs = item
        if client < 0:
            self._report(outputs)
        elif outputs.utility_output is not None:
            self._answer(outputs.utility_output)
        else:
            self._outputs.append(item)

    def get_nowait(self) -> tuple[int, Any]:
        return self._outputs.popleft()

    def qsize(self) -> int:
        return len(self._outputs)
