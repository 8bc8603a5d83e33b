"""Communicator of a group on the simulated device: collectives on the current stream, as vLLM calls NCCL."""

from typing import Any

import torch
from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class Communicator(DeviceCommunicatorBase):  # type: ignore[misc]
    """vLLM's communicator of a group; `device_group` is a `RankGroup`.

    Ranks compute experts together by vLLM's way that needs no further kernels: they gather the tokens of all ranks, and
    scatter the sums of their experts' outputs.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.use_all2all:
            self.all2all_manager = AgRsAll2AllManager(self.cpu_group)

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

    def all_gatherv(
        self, input_: torch.Tensor | list[torch.Tensor], dim: int = 0, sizes: list[int] | None = None
    ) -> torch.Tensor | list[torch.Tensor]:
        inputs = input_ if isinstance(input_, list) else [input_]
        with self.device_group.on_current_stream():
            gathered: list[torch.Tensor] = self.device_group.all_gather_rows(
                inputs, sizes or [len(inputs[0])] * self.world_size
            )
        return gathered if isinstance(input_, list) else gathered[0]

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
        with self.device_group.on_current_stream():
            scattered: torch.Tensor = self.device_group.reduce_scatter_rows(
                input_, sizes or [len(input_) // self.world_size] * self.world_size
            )
        return scattered

    def dispatch_router_logits(self, *arguments: Any, **options: Any) -> Any:
        return self.all2all_manager.dispatch_router_logits(*arguments, **options)

    def dispatch(self, *arguments: Any, **options: Any) -> Any:
        return self.all2all_manager.dispatch(*arguments, **options)

    def combine(self, *arguments: Any, **options: Any) -> Any:
        return self.all2all_manager.combine(*arguments, **options)

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        with self.device_group.on_current_stream():
            sent: torch.Tensor = super().broadcast(tensor, src)
            return sent
