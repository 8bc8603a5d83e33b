"""Replacement of the scheduler's sockets: its messages are collected in this process."""

from typing import Any


class Outbox:
    """Messages that the scheduler has sent and nothing has read yet."""

    def __init__(self) -> None:
        self._sent: list[Any] = []

    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        self._sent.append(output)

    def taken(self) -> list[Any]:
        """Remove all messages; return them in order."""
        sent, self._sent = self._sent, []
        return sent


def in_process_channels(before: Any) -> Any:
    """Wrap the constructor of channels to use an `Outbox` instead of sockets."""

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
