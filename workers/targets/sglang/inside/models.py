"""Models as SGLang takes them: the tiny ones of other engines, drafters under the names that it knows them by."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from workers.targets.vllm.inside.models import model_folder

# What configurations say besides: no token ends an output by itself.
_CONFIG: dict[str, object] = {"eos_token_id": None}
# A drafter that is one layer or a few of a model has an architecture of its own.
_ARCHITECTURES = {"eagle": "LlamaForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3"}


def folder_of(cache: Path, kind: str, quality: str, vocab_size: int) -> Path:
    """Return the folder of a model, which is made if it is not there."""
    made = model_folder(cache, kind, quality, vocab_size)
    named = cache / "sglang" / made.name
    if not named.is_dir():
        drafter = (
            {"architectures": [_ARCHITECTURES[kind]], "draft_vocab_size": vocab_size} if kind in _ARCHITECTURES else {}
        )
        _write(named, made, _CONFIG | drafter)
    return named


def _write(named: Path, made: Path, config: Mapping[str, object]) -> None:
    """Write a model with the weights of another and some keys of its configuration changed, all of it or nothing."""
    named.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=named.parent))
    for file in made.iterdir():
        (temporary / file.name).symlink_to(file.resolve())
    text = (made / "config.json").read_text(encoding="utf-8")
    (temporary / "config.json").unlink()
    (temporary / "config.json").write_text(json.dumps(json.loads(text) | config), encoding="utf-8")
    try:
        os.replace(temporary, named)
    except OSError:
        # Somebody else made it meanwhile: a folder that is not empty is not replaced.
        if not named.is_dir():
            raise
