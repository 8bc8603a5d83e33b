"""Reference model for sliding windows: attention masked by position, in NumPy and float64.

A program for vLLM's Python. It gets the kind of model and the window, and prints the output tokens.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from workers.targets.vllm.engine_sizes import WINDOW_LAYERS
from workers.targets.vllm.inside.windows import model

PROMPT = [(7 * place * place + 3 * place) % 32 for place in range(70)]
NUM_TOKENS = 30
BASE = 10000.0


def normed(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def rotated(x: Any) -> Any:
    """Return the heads of queries or keys after the rotary embedding."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(len(x)), BASE ** (-np.arange(half) / half))[:, None]
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)


def attended(queries: Any, keys: Any, values: Any, window: int) -> Any:
    """Return the output of attention limited to a window of tokens."""
    places = np.arange(len(queries))
    behind = places[:, None] - places
    scores = np.einsum("qhd,khd->hqk", rotated(queries), rotated(keys)) / queries.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * ((behind >= 0) & (behind < window))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), values)


def likeliest_next(config: Any, weights: Any, tokens: Sequence[int], window: int) -> int:
    """Return the likeliest next token."""
    x = weights["model.embed_tokens.weight"][list(tokens)]
    for index, layer in enumerate(WINDOW_LAYERS):
        of = {
            name.removeprefix(f"model.layers.{index}.").removesuffix(".weight"): each for name, each in weights.items()
        }
        h = normed(x, of["input_layernorm"])
        heads = [(h @ of[f"self_attn.{name}_proj"].T).reshape(len(x), -1, config["head_dim"]) for name in "qkv"]
        repeated = heads[0].shape[1] // heads[1].shape[1]
        keys, values = (each.repeat(repeated, 1) for each in heads[1:])
        seen = window if layer == "sliding_attention" else len(tokens)
        x = x + attended(heads[0], keys, values, seen).reshape(len(x), -1) @ of["self_attn.o_proj"].T
        h = normed(x, of["post_attention_layernorm"])
        gate = h @ of["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ of["mlp.up_proj"].T)) @ of["mlp.down_proj"].T
    return int((normed(x[-1], weights["model.norm.weight"]) @ weights["lm_head.weight"].T).argmax())


def greedy_tokens(kind: str, window: int) -> list[int]:
    config, given = model(kind, "good", 32)
    weights = {name: np.asarray(each, dtype=np.float64) for name, each in given.items()}
    tokens = list(PROMPT)
    for _ in range(NUM_TOKENS):
        tokens.append(likeliest_next(config, weights, tokens, window))
    return tokens[len(PROMPT) :]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(greedy_tokens(sys.argv[1], int(sys.argv[2]))))
