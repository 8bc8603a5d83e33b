"""A plain model with sliding windows, of whose attention a matrix is made with a mask: a program for vLLM's Python.

It is given the kind of model and a window, and prints what comes behind the prompt.
"""

import json
import sys
from collections.abc import Sequence

import torch

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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(continued(sys.argv[1], int(sys.argv[2]))))
