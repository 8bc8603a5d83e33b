"""Channels of a scheduler without sockets: what it sends is kept, and who drives it takes it."""

from typing import Any


class Outbox:
    """What a scheduler has sent since it was last asked for."""

    def __init__(self) -> None:
        self._sent: list[Any] = []

    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        self._sent.append(output)

    def taken(self) -> list[Any]:
        """Return what was sent, in order, once."""
        sent, self._sent = self._sent, []
        return sent


def unconnected(before: Any) -> Any:
    """Return what makes the channels of a scheduler, both ends of which are in this process."""

    def create(cls: Any, /, **options: Any) -> Any:
        outbox = Outbox()
        return cls(
            recv_from_tokenizer=None,
            recv_from_rpc=None,
            send_to_tokenizer=outbox,
            send_to_detokenizer=outbox,
            send_metrics_from_scheduler=None,
        )

    return classmethod(create)
