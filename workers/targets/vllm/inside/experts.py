"""Mixture of experts on the simulated device: the experts of a layer, with the choice of experts, are one device task.

vLLM has no kernel for experts on other devices. This class is registered as such a device would do it.
"""

from typing import Any

import torch
from torch.nn.functional import silu
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from workers.simulated_torch.device import activate


@CustomOp.register_oot(name="UnquantizedFusedMoEMethod")
class ExpertsTask(UnquantizedFusedMoEMethod):  # type: ignore[misc]
    """Experts of a rank: those that are not its own add nothing to a token."""

    @property
    def is_monolithic(self) -> bool:
        """Return that one kernel selects the experts and computes them."""
        return True

    def apply_monolithic(
        self, layer: Any, x: torch.Tensor, router_logits: torch.Tensor, input_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the weighted sum of each token's experts: [tokens, hidden size]."""
        num_chosen, num_own = self.moe.experts_per_token, layer.w13_weight.shape[0]
        own = range(num_own) if layer.expert_map is None else layer.expert_map.tolist()
        output = torch.empty_like(x)

        def compute(
            tokens: torch.Tensor, logits: torch.Tensor, into: torch.Tensor, out_of: torch.Tensor, found: torch.Tensor
        ) -> None:
            weights, chosen = logits.softmax(-1).topk(num_chosen, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            found.zero_()
            for expert, number in enumerate(own):
                if number >= 0:
                    gate, up = (tokens @ into[number].T).chunk(2, -1)
                    share = (weights * (chosen == expert)).sum(-1, keepdim=True)
                    found += (silu(gate) * up) @ out_of[number].T * share

        activate().enqueue("experts", compute, (x, router_logits, layer.w13_weight, layer.w2_weight), (output,))
        return output
