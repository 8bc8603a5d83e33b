"""Checks of fused layers: bit-identical to their operators; other variants are not fused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import silu

from scenarios.events import Schedule
from workers.simulated_torch.device import Device
from workers.targets.child.inside import layers
from workers.targets.child.inside.layers import rms_norm_as_task, rotary_embedding_as_task, swiglu_as_task

SIM = "sim"
EAGER, LAZY = Schedule(), Schedule(policy="lazy")
ROWS, HEADS, HEAD_SIZE, EPSILON = 5, 2, 12, 1e-5


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def _norm(self: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    if residual is not None:
        x = residual = x + residual
    variance = x.pow(2).mean(dim=-1, keepdim=True)
    normalized = x * torch.rsqrt(variance + self.variance_epsilon) * self.weight
    return normalized if residual is None else (normalized, residual)


def _rotary(self: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None) -> Any:
    cos, sin = (each.unsqueeze(1) for each in self.cos_sin_cache.index_select(0, positions).chunk(2, dim=-1))

    def turned(x: torch.Tensor) -> torch.Tensor:
        heads = x.view(len(positions), -1, self.head_size)
        both, rest = heads[..., : self.rotary_dim], heads[..., self.rotary_dim :]
        if not self.is_neox_style:
            low, high = both[..., ::2], both[..., 1::2]
            pairs = torch.stack((low * cos - high * sin, high * cos + low * sin), dim=-1).flatten(-2)
            return torch.cat((pairs, rest), dim=-1).reshape(x.shape)
        low, high = both.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), dim=-1).reshape(x.shape)

    return turned(query), None if key is None else turned(key)


def _activation(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return silu(x[..., :half]) * x[..., half:]


def _norm_of(weight: torch.Tensor, size: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(weight=weight, variance_epsilon=EPSILON, variance_size_override=size)


def _embedding_of(cache: torch.Tensor, rotary: int, neox: bool = True) -> SimpleNamespace:
    return SimpleNamespace(cos_sin_cache=cache, head_size=HEAD_SIZE, rotary_dim=rotary, is_neox_style=neox)


def _ran(schedule: Schedule, call: Any, given: tuple[Any, ...], on: Device) -> tuple[int, list[torch.Tensor]]:
    """Return how many device tasks a call launches, and its results on the host."""
    on.begin(schedule)
    returned = call(*given)
    num_tasks = on.end().counts["run"]
    results = returned if isinstance(returned, tuple) else (returned,)
    return num_tasks, [each.cpu() for each in results if each is not None]


def fused_layer_is_one_task_and_bit_identical(device: Device) -> None:
    for schedule in (EAGER, LAZY):
        x, residual, weight = (each.to(SIM) for each in (_random(ROWS, 64), _random(ROWS, 65)[:, 1:], _random(64)))
        # Strided views of one projection, as queries and keys are in an engine.
        projected = _random(ROWS, 4 * HEADS * HEAD_SIZE).to(SIM)
        query, key = projected[:, : HEADS * HEAD_SIZE], projected[:, HEADS * HEAD_SIZE :][:, :HEAD_SIZE]
        positions = torch.tensor([3, 0, 7, 7, 1]).to(SIM)
        for rotary in (HEAD_SIZE, 8):
            embedding = _embedding_of(_random(9, rotary).to(SIM), rotary)
            calls = [
                (rms_norm_as_task(_norm), _norm, (_norm_of(weight), x)),
                (rms_norm_as_task(_norm), _norm, (_norm_of(weight), x, residual)),
                (rotary_embedding_as_task(_rotary), _rotary, (embedding, positions, query, key)),
                (swiglu_as_task(_activation), _activation, (x,)),
            ]
            for fused, plain, given in calls:
                num_tasks, results = _ran(schedule, fused, given, device)
                assert num_tasks == 1, plain
                num_operators, expected = _ran(schedule, plain, given, device)
                assert num_operators > 1, plain
                assert all(map(torch.equal, results, expected)), plain


def layer_of_another_variant_is_not_fused(device: Device) -> None:
    half, weight = _random(ROWS, 64).to(SIM).half(), _random(64).to(SIM).half()
    x, query = half.float(), _random(ROWS, HEAD_SIZE).to(SIM)
    positions, cache = torch.arange(ROWS).to(SIM), _random(9, 8).to(SIM)
    calls = [
        (rms_norm_as_task(_norm), _norm, (_norm_of(weight), half)),
        (rms_norm_as_task(_norm), _norm, (_norm_of(weight.float(), 8), x)),
        (rotary_embedding_as_task(_rotary), _rotary, (_embedding_of(cache, 8, neox=False), positions, query, query)),
        (rotary_embedding_as_task(_rotary), _rotary, (_embedding_of(cache, 8), positions, query)),
        (swiglu_as_task(_activation), _activation, (half,)),
    ]
    for fused, plain, given in calls:
        num_tasks, results = _ran(EAGER, fused, given, device)
        num_operators, expected = _ran(EAGER, plain, given, device)
        assert num_tasks == num_operators > 1, plain
        assert all(map(torch.equal, results, expected)), plain


def error_in_a_fused_layer_names_the_line_that_launched_it(device: Device) -> None:
    query, cache, positions = _random(ROWS, HEAD_SIZE).to(SIM), _random(9, 8).to(SIM), torch.tensor([0, 1, 9, 2, 3])
    given = (_embedding_of(cache, 8), positions.to(SIM), query, query)
    device.pass_over([Path(layers.__file__)])
    place = "in the task rotary_embedding of stream 0, launched at .*layer_checks.py"
    with pytest.raises(IndexError, match=f"(?s){place}"):
        _ran(LAZY, rotary_embedding_as_task(_rotary), given, device)
