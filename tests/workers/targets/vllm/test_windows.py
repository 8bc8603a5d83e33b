"""Layers with sliding windows: what they compute is what a plain model does that masks by position."""

from collections.abc import Sequence

import pytest
import torch

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.oracle.tape import Tapes
from workers.run.comparison import BrokenOff, outputs_of
from workers.targets.registry import kind_of
from workers.targets.target import VLLM, VLLM_V1
from workers.targets.vllm.inside.windows import LAYERS, model

PROMPT = [(7 * place * place + 3 * place) % 32 for place in range(70)]
NUM_TOKENS = 30
BASE = 10000.0


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Return heads of queries or keys, rotated by their positions."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(len(x)), BASE ** (-torch.arange(half) / half)).unsqueeze(1)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), -1)


def plain(kind: str, tokens: Sequence[int], window: int) -> int:
    """Return the likeliest next token of a model whose attention is a matrix with a mask."""
    config, weights = model(kind, "good", 32)
    x = weights["model.embed_tokens.weight"][torch.tensor(tokens)]
    places = torch.arange(len(tokens))
    behind = places.unsqueeze(1) - places
    for index, layer in enumerate(LAYERS):
        of = {name: weights[f"model.layers.{index}.{name}.weight"] for name in NAMES}
        h = normed(x, of["input_layernorm"])
        q, k, v = (
            (h @ of[f"self_attn.{name}_proj"].T).unflatten(-1, (-1, config["head_dim"])) for name in ("q", "k", "v")
        )
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", rotated(q), rotated(k)) / config["head_dim"] ** 0.5
        is_seen = (behind >= 0) & (behind < (window if layer == "sliding_attention" else len(tokens)))
        given = torch.einsum("hqk,khd->qhd", scores.masked_fill(~is_seen, -torch.inf).softmax(-1), v)
        x = x + given.flatten(1) @ of["self_attn.o_proj"].T
        h = normed(x, of["post_attention_layernorm"])
        gate = torch.nn.functional.silu(h @ of["mlp.gate_proj"].T)
        x = x + (gate * (h @ of["mlp.up_proj"].T)) @ of["mlp.down_proj"].T
    return int((normed(x[-1], weights["model.norm.weight"]) @ weights["lm_head.weight"].T).argmax())


NAMES = (
    *("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
)


def continued(kind: str, window: int) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(NUM_TOKENS):
        tokens.append(plain(kind, tokens, window))
    return tokens[len(PROMPT) :]


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(("window", "heads"), [(5, 1), (32, 1), (33, 1), (33, 4)])
def test_a_window_sees_its_last_tokens_and_no_others(engine: str, window: int, heads: int) -> None:
    spec = EngineSpec.model_validate(
        {
            **{"layers": "windows", "window": window, "window_heads": heads, "sampling": "standard", "block_size": 32},
            **{"num_speculative_tokens": 3, "max_num_batched_tokens": 24, "max_model_len": 128},
        }
    )
    submit = Submit(tick=0, request="r", prompt=tuple(PROMPT), max_tokens=NUM_TOKENS, params=SamplingParams())
    outputs = outputs_of(Trace(spec=spec, events=(submit,)), Tapes(), kind_of(engine))
    assert not isinstance(outputs, BrokenOff)
    kind = "windows" if heads == 1 else "wide-windows"
    expected = continued(kind, window)
    assert list(outputs["r"].tokens) == expected
    # One token more or less is seen.
    assert expected not in (continued(kind, window - 1), continued(kind, window + 1))
