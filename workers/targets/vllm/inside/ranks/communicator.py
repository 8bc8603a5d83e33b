"""Communicator of a group on the simulated device: collectives on the current stream, as vLLM calls NCCL."""

from collections.abc import Sequence
from typing import Any

import torch
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase

Tensors = list[torch.Tensor]


class Communicator(DeviceCommunicatorBase):  # type: ignore[misc]
    """vLLM's communicator of a group; `device_group` is a `RankGroup`."""

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        output = torch.empty_like(input_)

        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            outputs[0].copy_(torch.stack([each[0] for each in every]).sum(0))

        self.device_group.collective("all_reduce", [input_], [output], combine, has_own_stream=False)
        return output

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        dim = dim % input_.dim()
        sizes = list(input_.shape)
        sizes[dim] *= self.world_size
        output = torch.empty(sizes, dtype=input_.dtype, device=input_.device)

        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            outputs[0].copy_(torch.cat([each[0] for each in every], dim))

        self.device_group.collective("all_gather", [input_], [output], combine, has_own_stream=False)
        return output

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        dim, rank = dim % input_.dim(), self.rank_in_group
        sizes = list(input_.shape)
        sizes[dim] //= self.world_size
        output = torch.empty(sizes, dtype=input_.dtype, device=input_.device)

        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            total = torch.stack([each[0] for each in every]).sum(0)
            outputs[0].copy_(total.chunk(len(every), dim)[rank])

        self.device_group.collective("reduce_scatter", [input_], [output], combine, has_own_stream=False)
        return output

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        def combine(outputs: Tensors, every: Sequence[Tensors]) -> None:
            for output in outputs:
                output.copy_(every[src][0])

        outputs: Any = [] if self.rank_in_group == src else [tensor]
        self.device_group.collective("broadcast", [tensor], outputs, combine, (f"root {src}",), has_own_stream=False)
        return tensor
