"""Tiny models with random weights: a dense target and its drafters, cached on disk.

The weights follow from fixed seeds. Each model has a tokenizer with one character per token. A `good` drafter predicts
the target's next token nearly always, a `mediocre` one often, a `bad` one hardly ever: this sets how many draft tokens
the rejection sampler accepts.
"""

import json
import os
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import save_file

from workers.targets.child.inside.tokenizer import tokenizer_files
from workers.targets.child.weights import weights_seed

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 2, 1, 32, 96
LAYERS = 2
# The inputs of these target layers are the drafter's auxiliary hidden states; the last number stands for the output of
# the last layer.
AUXILIARY = [0, 1, 2]
# Bias of all queries and keys: after the rotary embedding, a query and a key match best at the same position, so each
# token attends to itself.
SELF_BIAS = 6.0
POSITIONS_MAX = 65536
# Size of a layer's contribution to its input: large enough that output tokens depend on all tokens before them.
LAYER_SCALE = 0.45
# Scale of the logits: the gap between the two largest is rarely as small as the rounding differences between batches.
HEAD_SCALE = 0.5
# Relative size of the noise in a mediocre draft model's weights: the target rejects some of its draft tokens.
PERTURBATION = 0.12
# Part of a cached model's key: to be increased whenever the way to create models changes.
RECIPE = 3

Weights = dict[str, torch.Tensor]
# The configuration and the weights of a model.
Model: TypeAlias = tuple[dict[str, Any], Weights]


def dense_model(kind: str, quality: str, vocab_size: int) -> Model:
    """Return configuration and weights of a dense target model, or of a drafter for it.

    For a target, `quality` is `good`, or the name of another version of its weights, such as `v1`. A `draft_model` has
    the target's layers, an `eagle` or `eagle3` drafter has one layer and uses the target's hidden states.

    Raises:
        ValueError: the kind is unknown.
    """
    target = target_weights(vocab_size)
    match kind, quality:
        case "target", "good":
            return dense_config(vocab_size, LAYERS), target
        case "target", version:
            return dense_config(vocab_size, LAYERS), dense_weights(f"target {version}", vocab_size)
        case "draft_model", "good":
            return dense_config(vocab_size, LAYERS), target
        case "draft_model", "mediocre":
            noise = generator_of("noise", vocab_size)
            return dense_config(vocab_size, LAYERS), {name: _near(weight, noise) for name, weight in target.items()}
        case "draft_model", _:
            return dense_config(vocab_size, LAYERS), dense_weights("bad", vocab_size)
        case "eagle", _:
            return dense_config(vocab_size, 1), _eagle(target, quality, vocab_size)
        case "eagle3", _:
            head = {"eagle_aux_hidden_state_layer_ids": AUXILIARY, "attention_bias": True, "norm_output": True}
            return dense_config(vocab_size, 1) | head, _eagle3(target, quality, vocab_size)
        case _:
            raise ValueError(f"a dense model of kind {kind}; expected one of target, draft_model, eagle, eagle3")


def target_weights(vocab_size: int) -> Weights:
    """Return the weights of the dense target model."""
    return dense_weights("target", vocab_size)


def dense_weights(name: str, vocab_size: int) -> Weights:
    """Return random weights of a dense model of the target's size, seeded by a name."""
    return _llama(generator_of(name, vocab_size), vocab_size, LAYERS)


def model_folder(
    cache: Path, kind: str, quality: str, vocab_size: int, made: Callable[[str, str, int], Model] = dense_model
) -> Path:
    """Return a model's folder in the cache; if it is missing, `made` returns what to write."""
    key = f"{RECIPE} {kind} {quality} {vocab_size}"
    folder = cache / f"{kind}-{quality}-{vocab_size}-{blake2b(key.encode(), digest_size=6).hexdigest()}"
    if not folder.is_dir():
        _write(folder, *made(kind, quality, vocab_size))
    return folder


def generator_of(name: str, vocab_size: int) -> torch.Generator:
    """Return the random generator for a model's weights, seeded by its name."""
    return torch.Generator().manual_seed(weights_seed(name, vocab_size))


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Return a tensor of the given shape, sampled from a normal distribution."""
    return torch.randn(*shape, generator=generator) * scale


def _near(weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return weight + PERTURBATION * weight.std() * torch.randn(weight.shape, generator=generator)


def layer_weights(generator: torch.Generator, prefix: str, scale: float) -> Weights:
    """Return random weights of one decoder layer; `scale` multiplies its output weights."""
    width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    inner = HIDDEN**-0.5
    return {
        f"{prefix}.self_attn.q_proj.weight": normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.self_attn.k_proj.weight": normal(generator, kv_width, HIDDEN, scale=3 * inner),
        f"{prefix}.self_attn.v_proj.weight": normal(generator, kv_width, HIDDEN, scale=inner),
        f"{prefix}.self_attn.o_proj.weight": normal(generator, HIDDEN, width, scale=2 * scale * inner),
        f"{prefix}.mlp.gate_proj.weight": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        f"{prefix}.mlp.up_proj.weight": normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        f"{prefix}.mlp.down_proj.weight": normal(generator, HIDDEN, INTERMEDIATE, scale=2 * scale * inner),
        f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def _llama(generator: torch.Generator, vocab_size: int, layers: int) -> Weights:
    weights = {
        "model.embed_tokens.weight": normal(generator, vocab_size, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": normal(generator, vocab_size, HIDDEN, scale=HEAD_SCALE),
    }
    for index in range(layers):
        weights |= layer_weights(generator, f"model.layers.{index}", LAYER_SCALE)
    return weights


def _eagle(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return an EAGLE drafter that passes the token's embedding to the target's LM head.

    The embedding is mixed with the hidden state of the position before: the more of it, the fewer draft tokens are
    accepted.
    """
    generator = generator_of(f"eagle {quality}", vocab_size)
    one = torch.eye(HIDDEN)
    match quality:
        case "good":
            mixed = torch.cat((one, 0.2 * one), dim=1)
        case "mediocre":
            mixed = torch.cat((one, 0.6 * one), dim=1)
        case _:
            mixed = normal(generator, HIDDEN, 2 * HIDDEN, scale=HIDDEN**-0.5)
    layer = layer_weights(generator, "layers.0", 0.02 if quality == "good" else 0.2)
    del layer["layers.0.input_layernorm.weight"]
    return {"fc.weight": mixed, "embed_tokens.weight": target["model.embed_tokens.weight"], **layer}


def _eagle3(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return an EAGLE3 drafter that passes the token's embedding to the target's LM head.

    Only attention transports the embedding. Its values are narrower than an embedding: they keep the directions that
    distinguish most tokens.
    """
    generator = generator_of(f"eagle3 {quality}", vocab_size)
    embeddings = target["model.embed_tokens.weight"]
    width, narrow = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = layer_weights(generator, "layers.0", 0.02 if quality == "good" else 0.2)
    del layer["layers.0.self_attn.q_proj.weight"], layer["layers.0.self_attn.k_proj.weight"]
    attention = "layers.0.self_attn"
    kept = torch.linalg.svd(embeddings, full_matrices=False).Vh[:narrow]
    values = torch.zeros(narrow, 2 * HIDDEN)
    values[: len(kept), :HIDDEN] = kept
    back = torch.zeros(HIDDEN, width)
    # The factor 5 outweighs the previous hidden state, which is normally distributed.
    back[:, : len(kept)] = 5 * kept.T
    mixed = normal(generator, HIDDEN, len(AUXILIARY) * HIDDEN, scale=HIDDEN**-0.5)
    if quality == "bad":
        values, back = torch.randn(values.shape, generator=generator), torch.randn(back.shape, generator=generator)
    return layer | {
        f"{attention}.q_proj.weight": torch.zeros(width, 2 * HIDDEN),
        f"{attention}.k_proj.weight": torch.zeros(narrow, 2 * HIDDEN),
        f"{attention}.v_proj.weight": values,
        f"{attention}.o_proj.weight": back,
        f"{attention}.q_proj.bias": torch.full((width,), SELF_BIAS),
        f"{attention}.k_proj.bias": torch.full((narrow,), SELF_BIAS),
        f"{attention}.v_proj.bias": torch.zeros(narrow),
        f"{attention}.o_proj.bias": torch.zeros(HIDDEN),
        "layers.0.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": mixed * {"good": 0.02, "mediocre": 2.5}.get(quality, 1.0),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": target["lm_head.weight"],
        "embed_tokens.weight": embeddings,
    }


def dense_config(vocab_size: int, layers: int) -> dict[str, Any]:
    """Return the `config.json` of a dense Llama."""
    return sizes(vocab_size, layers) | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


def sizes(vocab_size: int, layers: int) -> dict[str, Any]:
    """Return the size fields of `config.json`: vocabulary, layers, heads, positions."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": POSITIONS_MAX,
        "rope_theta": 10000.0,
        "torch_dtype": "float32",
    }


def _write(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    """Write a model's folder and rename it into place, so no process reads a partial one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    (temporary / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({name: weight.contiguous() for name, weight in weights.items()}, temporary / "model.safetensors")
    for name, text in tokenizer_files(config["vocab_size"]).items():
        (temporary / name).write_text(text, encoding="utf-8")
    try:
        os.replace(temporary, folder)
    except OSError:
        # Another process has created it in the meantime: a folder that is not empty is not replaced.
        if not folder.is_dir():
            raise
