"""Tiny models with random weights: a dense target and its drafters, and a hybrid one, from fixed seeds, kept by digest.

Each comes with a tokenizer, of which every token is one character. Of the hybrid one's layers two are short
convolutions, with a state each, around one of attention.

Of the drafters `good` predicts what the target does next nearly always, `mediocre` often and
`bad` hardly ever.
"""

import json
import os
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workers.targets.vllm.inside.grammars import tokenizer_files

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 2, 1, 32, 96
LAYERS = 2
HYBRID_LAYERS = ("conv", "full_attention", "conv")
# Tokens that a convolution sees: all but the newest are its state.
CONV_WIDTH = 3
# The layers of the target before which its hidden states are taken, the last of them behind all.
AUXILIARY = [0, 1, 2]
# Queries and keys of so much, the same everywhere, are alike nowhere but at one position: a token attends to itself.
SELF_BIAS = 6.0
POSITIONS_MAX = 65536
# How much a layer adds to what it is given: enough that tokens depend on all that came before.
LAYER_SCALE = 0.45
# A logit's scale: the largest of many is rarely as near to the next as the arithmetic of two batches differs.
HEAD_SCALE = 0.5
# Of the hybrid model's embeddings, which are its head too.
EMBEDDING_SCALE = 0.1
# How far a mediocre draft model's weights are from the target's.
PERTURBATION = 0.12
# Part of the key under which a model is kept: changed together with how one is made.
RECIPE = 3

Weights = dict[str, torch.Tensor]


def model_folder(cache: Path, kind: str, quality: str, vocab_size: int) -> Path:
    """Return the folder of a model, which is made if it is not there.

    Its kind is target, hybrid, draft_model, eagle, eagle3 or dflash, or mtp, a target with a head of that quality; a
    target or hybrid has versions v1, v2 and so on besides `good`.
    """
    key = f"{RECIPE} {kind} {quality} {vocab_size}"
    folder = cache / f"{kind}-{quality}-{vocab_size}-{blake2b(key.encode(), digest_size=6).hexdigest()}"
    if not folder.is_dir():
        _write(folder, *_model(kind, quality, vocab_size))
    return folder


def _model(kind: str, quality: str, vocab_size: int) -> tuple[dict[str, Any], Weights]:
    """Return the configuration and the weights of a model."""
    target = _llama(_generator("target", vocab_size), vocab_size, LAYERS)
    match kind, quality:
        case "target", "good":
            return _config(vocab_size, LAYERS), target
        case "target", version:
            return _config(vocab_size, LAYERS), _llama(_generator(f"target {version}", vocab_size), vocab_size, LAYERS)
        case "hybrid", version:
            name = "hybrid" if version == "good" else f"hybrid {version}"
            return _hybrid_config(vocab_size), _hybrid(_generator(name, vocab_size), vocab_size)
        case "draft_model", "good":
            return _config(vocab_size, LAYERS), target
        case "draft_model", "mediocre":
            noise = _generator("noise", vocab_size)
            return _config(vocab_size, LAYERS), {name: _near(weight, noise) for name, weight in target.items()}
        case "draft_model", _:
            return _config(vocab_size, LAYERS), _llama(_generator("bad", vocab_size), vocab_size, LAYERS)
        case "eagle", _:
            return _config(vocab_size, 1), _eagle(target, quality, vocab_size)
        case "eagle3", _:
            head = {"eagle_aux_hidden_state_layer_ids": AUXILIARY, "attention_bias": True, "norm_output": True}
            return _config(vocab_size, 1) | head, _eagle3(target, quality, vocab_size)
        case "dflash", _:
            return _dflash_config(vocab_size), _dflash(target, quality, vocab_size)
        case "mtp", _:
            head = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
            return _config(vocab_size, LAYERS) | head, _unbiased(target) | _mtp(quality, vocab_size)
        case _:
            raise ValueError(
                f"a model of kind {kind}; known are target, hybrid, draft_model, eagle, eagle3, mtp and dflash"
            )


def _generator(name: str, vocab_size: int) -> torch.Generator:
    seed = int.from_bytes(blake2b(f"{name} {vocab_size}".encode(), digest_size=6).digest())
    return torch.Generator().manual_seed(seed)


def _normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator) * scale


def _near(weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return weight + PERTURBATION * weight.std() * torch.randn(weight.shape, generator=generator)


def _layer(generator: torch.Generator, prefix: str, scale: float) -> Weights:
    width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    inner = HIDDEN**-0.5
    return {
        f"{prefix}.self_attn.q_proj.weight": _normal(generator, width, HIDDEN, scale=3 * inner),
        f"{prefix}.self_attn.k_proj.weight": _normal(generator, kv_width, HIDDEN, scale=3 * inner),
        f"{prefix}.self_attn.v_proj.weight": _normal(generator, kv_width, HIDDEN, scale=inner),
        f"{prefix}.self_attn.o_proj.weight": _normal(generator, HIDDEN, width, scale=2 * scale * inner),
        f"{prefix}.mlp.gate_proj.weight": _normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        f"{prefix}.mlp.up_proj.weight": _normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        f"{prefix}.mlp.down_proj.weight": _normal(generator, HIDDEN, INTERMEDIATE, scale=2 * scale * inner),
        f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def _llama(generator: torch.Generator, vocab_size: int, layers: int) -> Weights:
    weights = {
        "model.embed_tokens.weight": _normal(generator, vocab_size, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _normal(generator, vocab_size, HIDDEN, scale=HEAD_SCALE),
    }
    for index in range(layers):
        weights |= _layer(generator, f"model.layers.{index}", LAYER_SCALE)
    return weights


def _hybrid(generator: torch.Generator, vocab_size: int) -> Weights:
    """Return weights whose head is the embedding: that is small beside what layers add, or tokens would repeat."""
    weights = {
        "model.embed_tokens.weight": _normal(generator, vocab_size, HIDDEN, scale=EMBEDDING_SCALE),
        "model.embedding_norm.weight": torch.full((HIDDEN,), HEAD_SCALE / EMBEDDING_SCALE),
    }
    for index, kind in enumerate(HYBRID_LAYERS):
        weights |= _hybrid_layer(generator, f"model.layers.{index}", kind)
    return weights


def _hybrid_layer(generator: torch.Generator, prefix: str, kind: str) -> Weights:
    width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    inner = HIDDEN**-0.5
    mixer = {
        "conv.in_proj": _normal(generator, 3 * HIDDEN, HIDDEN, scale=inner),
        "conv.conv": _normal(generator, HIDDEN, 1, CONV_WIDTH, scale=CONV_WIDTH**-0.5),
        "conv.out_proj": _normal(generator, HIDDEN, HIDDEN, scale=inner),
    }
    if kind == "full_attention":
        mixer = {
            "self_attn.q_proj": _normal(generator, width, HIDDEN, scale=inner),
            "self_attn.k_proj": _normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.v_proj": _normal(generator, kv_width, HIDDEN, scale=inner),
            "self_attn.out_proj": _normal(generator, HIDDEN, width, scale=2 * inner),
            "self_attn.q_layernorm": torch.full((HEAD_DIM,), 2.0),
            "self_attn.k_layernorm": torch.ones(HEAD_DIM),
        }
    both = {
        "feed_forward.w1": _normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "feed_forward.w3": _normal(generator, INTERMEDIATE, HIDDEN, scale=inner),
        "feed_forward.w2": _normal(generator, HIDDEN, INTERMEDIATE, scale=inner),
        "operator_norm": torch.ones(HIDDEN),
        "ffn_norm": torch.ones(HIDDEN),
    }
    return {f"{prefix}.{name}.weight": weight for name, weight in (mixer | both).items()}


def _eagle(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return a head that takes the token's embedding, or the hidden state before it, on to the target's own head."""
    generator = _generator(f"eagle {quality}", vocab_size)
    one = torch.eye(HIDDEN)
    match quality:
        case "good":
            mixed = torch.cat((one, 0.2 * one), dim=1)
        case "mediocre":
            mixed = torch.cat((one, 0.6 * one), dim=1)
        case _:
            mixed = _normal(generator, HIDDEN, 2 * HIDDEN, scale=HIDDEN**-0.5)
    layer = _layer(generator, "layers.0", 0.02 if quality == "good" else 0.2)
    del layer["layers.0.input_layernorm.weight"]
    return {"fc.weight": mixed, "embed_tokens.weight": target["model.embed_tokens.weight"], **layer}


def _unbiased(weights: Weights) -> Weights:
    """Return weights with biases of queries, keys and values that add nothing."""
    projections = [name for name in weights if name.rpartition("_proj")[0][-1:] in ("q", "k", "v")]
    biases = {name.replace("weight", "bias"): torch.zeros(len(weights[name])) for name in projections}
    return weights | biases


def _mtp(quality: str, vocab_size: int) -> Weights:
    """Return a head that takes the token's embedding, or the hidden state before it, on to the target's own head."""
    generator, prefix = _generator(f"mtp {quality}", vocab_size), "model.mtp_layers.0"
    one = torch.eye(HIDDEN)
    match quality:
        case "good":
            mixed = torch.cat((0.2 * one, one), dim=1)
        case "mediocre":
            mixed = torch.cat((0.6 * one, one), dim=1)
        case _:
            mixed = _normal(generator, HIDDEN, 2 * HIDDEN, scale=HIDDEN**-0.5)
    norms = {f"{prefix}.{name}.weight": torch.ones(HIDDEN) for name in ("token_layernorm", "hidden_layernorm")}
    layer = _unbiased(_layer(generator, prefix, 0.02 if quality == "good" else 0.2))
    last = {f"{prefix}.input_proj.weight": mixed, f"{prefix}.final_layernorm.weight": torch.ones(HIDDEN)}
    return layer | norms | last


def _eagle3(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return a head that takes the token's embedding, which attention alone brings it, on to the target's own head.

    Its values are narrower than an embedding: of many tokens they keep what tells most of them apart.
    """
    generator = _generator(f"eagle3 {quality}", vocab_size)
    embeddings = target["model.embed_tokens.weight"]
    width, narrow = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = _layer(generator, "layers.0", 0.02 if quality == "good" else 0.2)
    del layer["layers.0.self_attn.q_proj.weight"], layer["layers.0.self_attn.k_proj.weight"]
    attention = "layers.0.self_attn"
    kept = torch.linalg.svd(embeddings, full_matrices=False).Vh[:narrow]
    values = torch.zeros(narrow, 2 * HIDDEN)
    values[: len(kept), :HIDDEN] = kept
    back = torch.zeros(HIDDEN, width)
    # What it had before, which is normal, counts little beside it.
    back[:, : len(kept)] = 5 * kept.T
    mixed = _normal(generator, HIDDEN, len(AUXILIARY) * HIDDEN, scale=HIDDEN**-0.5)
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


def _dflash(target: Weights, quality: str, vocab_size: int) -> Weights:
    """Return a drafter of all tokens at once: none of its qualities predicts more than chance."""
    generator = _generator(f"dflash {quality}", vocab_size)
    layer = _layer(generator, "layers.0", 0.2)
    attention = "layers.0.self_attn"
    return layer | {
        f"{attention}.q_norm.weight": torch.ones(HEAD_DIM),
        f"{attention}.k_norm.weight": torch.ones(HEAD_DIM),
        "fc.weight": _normal(generator, HIDDEN, LAYERS * HIDDEN, scale=HIDDEN**-0.5),
        "hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "embed_tokens.weight": target["model.embed_tokens.weight"],
        "lm_head.weight": target["lm_head.weight"],
    }


def _dflash_config(vocab_size: int) -> dict[str, Any]:
    return _config(vocab_size, 1) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": list(range(LAYERS))},
    }


def _config(vocab_size: int, layers: int) -> dict[str, Any]:
    return _sizes(vocab_size, layers) | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }


def _hybrid_config(vocab_size: int) -> dict[str, Any]:
    return _sizes(vocab_size, len(HYBRID_LAYERS)) | {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "block_dim": HIDDEN,
        "conv_dim": HIDDEN,
        "conv_L_cache": CONV_WIDTH,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "layer_types": list(HYBRID_LAYERS),
        "norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }


def _sizes(vocab_size: int, layers: int) -> dict[str, Any]:
    """Return what the configurations of all models have."""
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
    """Write a model so that others see all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    (temporary / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({name: weight.contiguous() for name, weight in weights.items()}, temporary / "model.safetensors")
    for name, text in tokenizer_files(config["vocab_size"]).items():
        (temporary / name).write_text(text, encoding="utf-8")
    try:
        os.replace(temporary, folder)
    except OSError:
        # Somebody else made it meanwhile: a folder that is not empty is not replaced.
        if not folder.is_dir():
            raise
