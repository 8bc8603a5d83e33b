"""Corrections of vLLM's CPU build: kernels, and checks that assume a GPU."""

from functools import wraps
from typing import Any

import torch

_COUNTS_A_DRAW = 4


def keep_async_scheduling(before: Any) -> Any:
    """Wrap the CPU platform's `check_and_update_config` to leave `async_scheduling` as set."""

    def check_and_update_config(cls: Any, config: Any) -> None:
        asked = config.scheduler_config.async_scheduling
        before.__func__(cls, config)
        config.scheduler_config.async_scheduling = asked

    return classmethod(check_and_update_config)


def once(before: Any) -> Any:
    """Wrap `register_triton_kernel_overrides` so that CPU kernels are registered only once."""
    done: list[bool] = []

    def register_triton_kernel_overrides(cls: Any) -> None:
        if not done:
            done.append(True)
            before.__func__(cls)

    return classmethod(register_triton_kernel_overrides)


def ignore_pinned_memory(before: Any) -> Any:
    """Wrap `torch.zeros` to ignore its argument `pin_memory`."""

    @wraps(before)
    def zeros(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        tensor: torch.Tensor = before(*size, **options)
        return tensor

    return zeros


def expand_to_tokens(before: Any) -> Any:
    """Replace `expand_batch_to_tokens`: repeat each request's value for all of its tokens."""

    @wraps(before)
    def expand_batch_to_tokens(
        x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> torch.Tensor:
        counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
        replaced = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
        return torch.repeat_interleave(replaced, counts, output_size=num_tokens)

    return expand_batch_to_tokens


def reject_padding(before: Any) -> Any:
    """Wrap the random rejection sampler so that padding draft tokens (ids < 0) are rejected."""

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
        # No probability ratio is at least NaN.
        uniform = torch.where(drafts < 0, float("nan"), uniform)
        drafts = drafts.clamp(min=0)
        before(output, counts, drafts, draft_probs, target_probs, bonus, recovered, uniform, *rest, **options)

    return rejection_random_sample


class RewindableGenerator(torch.Generator):
    """CPU random generator that can undo its last sample, as a GPU generator's offset can."""

    _drawn_from: torch.Tensor

    def remember(self) -> None:
        """Save the state before a sample, to which `set_offset` returns."""
        self._drawn_from = self.get_state()

    def get_offset(self) -> int:
        """Return the number by which one sample advances a GPU generator's offset."""
        return _COUNTS_A_DRAW

    def set_offset(self, offset: int) -> torch.Generator:
        """Restore the state saved by `remember`; `offset` must be 0."""
        assert offset == 0, f"only the latest sample can be undone, got offset {offset}"
        return self.set_state(self._drawn_from)


def save_generator_states(before: Any) -> Any:
    """Wrap `TopKTopPSampler.forward_cpu` to save each generator's state before sampling."""

    @wraps(before)
    def forward_cpu(self: Any, logits: Any, generators: dict[int, RewindableGenerator], *limits: Any) -> Any:
        for generator in generators.values():
            generator.remember()
        return before(self, logits, generators, *limits)

    return forward_cpu


def skip_without_rows(before: Any) -> Any:
    """Wrap `apply_top_k_only` to return the logits unchanged if the batch has no top-k rows."""

    @wraps(before)
    def apply_top_k_only(logits: torch.Tensor, k: torch.Tensor) -> Any:
        return before(logits, k) if len(k) else logits

    return apply_top_k_only


def rotate_flat_heads(before: Any) -> Any:
    """Wrap `RotaryEmbedding.forward_cpu` to flatten the heads of queries and keys."""

    @wraps(before)
    def forward_cpu(
        self: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        flat = [x.view(*positions.shape, -1) if x is not None else None for x in (query, key)]
        # vLLM rotates its arguments in place.
        before(self, positions, *flat)
        return query, key

    return forward_cpu
