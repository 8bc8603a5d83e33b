"""Tiny models for SGLang: the shared ones, with SGLang's class names of drafters."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from workers.targets.child.inside.models import HIDDEN, model_folder

_WEIGHTS = "model.safetensors"
# No end-of-sequence token: only stop tokens end an output early.
_TARGET: Mapping[str, object] = {"eos_token_id": None}
_ARCHITECTURES = {"eagle": "LlamaForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3"}


def folder_of(cache: Path, kind: str, quality: str, vocab_size: int) -> Path:
    """Return the cached folder of a model; create the model if it is missing."""
    made = model_folder(cache, kind, quality, vocab_size)
    named = cache / "sglang" / made.name
    if not named.is_dir():
        drafter = {}
        if kind in _ARCHITECTURES:
            drafter = {"architectures": [_ARCHITECTURES[kind]], "draft_vocab_size": vocab_size}
        # The layer that combines the two inputs of an EAGLE drafter has a bias in SGLang.
        biases = {"fc.bias": torch.zeros(HIDDEN)} if kind == "eagle" else {}
        _write(named, made, {**_TARGET, **drafter}, biases)
    return named


def _write(named: Path, made: Path, config: Mapping[str, object], weights: Mapping[str, torch.Tensor]) -> None:
    """Write a changed copy of a model's folder atomically."""
    named.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=named.parent))
    text = (made / "config.json").read_text(encoding="utf-8")
    (temporary / "config.json").write_text(json.dumps(json.loads(text) | config), encoding="utf-8")
    save_file({**load_file(made / _WEIGHTS), **weights}, temporary / _WEIGHTS)
    try:
        os.replace(temporary, named)
    except OSError:
        # Another process has created it in the meantime: a folder that is not empty is not replaced.
        if not named.is_dir():
            raise
