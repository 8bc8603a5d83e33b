"""Tiny Llamas with random weights: the target model, and an EAGLE drafter for it.

The weights are equal to the ones of `workers/targets/child/inside/models.py`.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN = 64
INTERMEDIATE = 96


def decoder_layer(
    prefix: str, generator: torch.Generator, scale: float
) -> dict[str, torch.Tensor]:
    """Return random decoder-layer weights; `scale` multiplies its output weights."""
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN, 3),
        "self_attn.k_proj": (HIDDEN // 2, HIDDEN, 3),
        "self_attn.v_proj": (HIDDEN // 2, HIDDEN, 1),
        "self_attn.o_proj": (HIDDEN, HIDDEN, 2 * scale),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN, 1),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE, 2 * scale),
    }
    weights = {
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    for name, (rows, columns, factor) in shapes.items():
        weights[name] = torch.randn(rows, columns, generator=generator) * (
            factor * HIDDEN**-0.5
        )
    return {f"{prefix}.{name}.weight": weight for name, weight in weights.items()}


def llama(vocab_size: int, seed: int) -> dict[str, torch.Tensor]:
    """Return random weights of a Llama with two layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "model.embed_tokens.weight": torch.randn(
            vocab_size, HIDDEN, generator=generator
        ),
        "lm_head.weight": torch.randn(vocab_size, HIDDEN, generator=generator) * 0.5,
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for index in range(2):
        weights |= decoder_layer(f"model.layers.{index}", generator, 0.45)
    return weights


def with_window_layers(
    target: dict[str, torch.Tensor], seed: int
) -> dict[str, torch.Tensor]:
    """Return a model's weights with four random decoder layers instead of its own."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: weight
        for name, weight in target.items()
        if not name.startswith("model.layers.")
    }
    for index in range(4):
        weights |= decoder_layer(f"model.layers.{index}", generator, 0.45)
    return weights


def add_windows(model: str, window: int) -> None:
    """Make all layers but the second use sliding-window attention (`config.json`)."""
    path = Path(model, "config.json")
    config = json.loads(path.read_text())
    layers = ["sliding_attention"] * config["num_hidden_layers"]
    layers[1] = "full_attention"
    config |= {"layer_types": layers, "sliding_window": window}
    path.write_text(json.dumps(config))


def eagle_head(
    target: dict[str, torch.Tensor], seed: int, of_states: float, scale: float
) -> dict[str, torch.Tensor]:
    """Return random weights of an EAGLE drafter that fits a target model.

    Its input is the token's embedding plus `of_states` times the hidden state.
    """
    one = torch.eye(HIDDEN)
    layer = decoder_layer("layers.0", torch.Generator().manual_seed(seed), scale)
    del layer["layers.0.input_layernorm.weight"]
    embeddings = target["model.embed_tokens.weight"]
    return layer | {
        "fc.weight": torch.cat((one, of_states * one), dim=1),
        "embed_tokens.weight": embeddings,
    }


def save_config(folder: Path, vocab_size: int, num_layers: int = 2) -> str:
    """Write a model's `config.json` into a new folder; return the folder."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def save_model(
    folder: Path, weights: dict[str, torch.Tensor], vocab_size: int, num_layers: int = 2
) -> str:
    """Write a model's configuration and weights to a new folder; return its path."""
    path = save_config(folder, vocab_size, num_layers)
    save_file(weights, folder / "model.safetensors")
    return path


def save_tokenizer(folder: str, characters: str) -> None:
    """Write a tokenizer with one character per token."""
    vocabulary = {character: token for token, character in enumerate(characters)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    Path(folder, "tokenizer_config.json").write_text(json.dumps(config))
