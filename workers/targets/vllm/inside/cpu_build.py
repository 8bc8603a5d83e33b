"""Kernels and checks of vLLM's build for CPUs that are put right, or do without what only a GPU has."""

from functools import wraps
from typing import Any

import torch

_COUNTS_A_DRAW = 4


def keeping_asynchrony(before: Any) -> Any:
    """Return what checks a configuration, and leaves asynchronous scheduling as it was asked for."""

    def check_and_update_config(cls: Any, config: Any) -> None:
        asked = config.scheduler_config.async_scheduling
        before.__func__(cls, config)
        config.scheduler_config.async_scheduling = asked

    return classmethod(check_and_update_config)


def once(before: Any) -> Any:
    """Return what registers kernels for a CPU the first time that it is called."""
    done: list[bool] = []

    def register_triton_kernel_overrides(cls: Any) -> None:
        if not done:
            done.append(True)
            before.__func__(cls)

    return classmethod(register_triton_kernel_overrides)


def unpinned(before: Any) -> Any:
    """Return what makes tensors of zeros, of which none is pinned."""

    @wraps(before)
    def zeros(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        tensor: torch.Tensor = before(*size, **options)
        return tensor

    return zeros


def expanded(before: Any) -> Any:
    """Return what repeats values of requests for each of their tokens."""

    @wraps(before)
    def expand_batch_to_tokens(
        x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> torch.Tensor:
        counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
        replaced = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
        return torch.repeat_interleave(replaced, counts, output_size=num_tokens)

    return expand_batch_to_tokens


def rejecting_padding(before: Any) -> Any:
    """Return the rejection sampler, by which a draft that only fills up a row is rejected."""

    @wraps(before)
    def rejection_random_sample(
        output: torch.Tensor,
        counts: torch.Tensor,
        drafts: torch.Tensor,
        draft_probs: torch.Tensor | None,
        target_probs: torch.Tensor,
        bonus: torch.Tensor,
        recovered: torch.Tensor,
        uniform: torch.Tensor,
        *rest: Any,
        **options: Any,
    ) -> None:
        # No ratio is at least as large as what is no number.
        uniform = torch.where(drafts < 0, float("nan"), uniform)
        drafts = drafts.clamp(min=0)
        before(output, counts, drafts, draft_probs, target_probs, bonus, recovered, uniform, *rest, **options)

    return rejection_random_sample


class RewindableGenerator(torch.Generator):
    """Random numbers of a CPU that can be taken back by one draw, as those of a GPU are by four counts."""

    _drawn_from: torch.Tensor

    def remember(self) -> None:
        """Keep the state that the next draw begins from."""
        self._drawn_from = self.get_state()

    def get_offset(self) -> int:
        """Return what a GPU would have counted for one draw."""
        return _COUNTS_A_DRAW

    def set_offset(self, offset: int) -> torch.Generator:
        """Take the last draw back."""
        assert offset == 0, f"one draw is taken back, not {offset} counts"
        return self.set_state(self._drawn_from)


def remembering(before: Any) -> Any:
    """Return the sampler, which has generators remember what they draw from."""

    @wraps(before)
    def forward_cpu(self: Any, logits: Any, generators: dict[int, RewindableGenerator], *limits: Any) -> Any:
        for generator in generators.values():
            generator.remember()
        return before(self, logits, generators, *limits)

    return forward_cpu


def of_some(before: Any) -> Any:
    """Return what keeps the likeliest tokens of some rows, or of none."""

    @wraps(before)
    def apply_top_k_only(logits: torch.Tensor, k: torch.Tensor) -> Any:
        return before(logits, k) if len(k) else logits

    return apply_top_k_only


def rotating_all_heads(before: Any) -> Any:
    """Return the rotary embedding, of queries and keys whose heads have a dimension of their own or none."""

    @wraps(before)
    def forward_cpu(
        self: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        flat = [x.view(*positions.shape, -1) if x is not None else None for x in (query, key)]
        # What it is given is changed in place.
        before(self, positions, *flat)
        return query, key

    return forward_cpu
