"""Communicator of a group on the simulated device: collectives on the current stream, as vLLM calls NCCL."""

import torch
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class Communicator(DeviceCommunicatorBase):  # type: ignore[misc]
    """vLLM's communicator of a group; `device_group` is a `RankGroup`."""

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """Return the sum in a tensor of its own, as NCCL's communicator does."""
        with self.device_group.on_current_stream():
            reduced: torch.Tensor = super().all_reduce(input_.clone())
            return reduced

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        with self.device_group.on_current_stream():
            gathered: torch.Tensor = super().all_gather(input_, dim)
            return gathered

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        with self.device_group.on_current_stream():
            scattered: torch.Tensor = super().reduce_scatter(input_, dim)
            return scattered

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        with self.device_group.on_current_stream():
            sent: torch.Tensor = super().broadcast(tensor, src)
            return sent
