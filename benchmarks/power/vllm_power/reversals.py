"""Reversals of vLLM; `reversals/` has a file for each class."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from benchmarks.power.reversals import table
from workers.targets.vllm.names import VLLM, VLLM_V1

FOLDER = Path(__file__).resolve().parent / "reversals"
Runner: TypeAlias = Literal["v1", "v2"]
ENGINES: dict[str, str] = {"v1": VLLM_V1, "v2": VLLM}
# Trace properties without which the edited code does not run or has no effect.
Need: TypeAlias = Literal[
    "async",
    "drafter",
    "eagle",
    "ngram_gpu",
    "chunks",
    "preemption",
    "reset",
    "abort",
    "stall",
    "reused_name",
    "second_turn",
    "prefix_cache",
    "priority",
    "tight_pool",
    "model_len",
    "hybrid",
    "gated",
    "windows",
    "parts_of_blocks",
    "reorder",
    "condense",
    "grammar",
    "reasoning",
    "penalties",
    "bad_words",
    "min_tokens",
    "biases",
    "min_p",
    "allowed_tokens",
    "temperature",
    "seed",
    "logprobs",
    "prompt_logprobs",
    "logprob_token_ids",
    "stops",
    "stop_words",
    "logits_processor",
    "probabilistic_drafts",
    "dflash",
    "connector",
    "handoff",
    "offloading",
    "pause",
    "sleep",
    "weights",
    "streaming",
    "dummy_steps",
    "graphs",
    "tensor_ranks",
    "pipeline_ranks",
    "data_ranks",
    "set_k",
]
# Properties that no random trace has together, and why.
UNMET: dict[frozenset[Need], str] = {
    frozenset({"offloading", "hybrid"}): "KV blocks of a hybrid model are not offloaded",
    frozenset({"connector", "gated"}): "models with gated delta nets run without KV transfers",
    frozenset({"handoff", "gated"}): "models with gated delta nets run without KV transfers",
}


class Reversal(table.Reversal):
    """One reversal of vLLM, in one of its model runners or both."""

    id: Annotated[str, Field(pattern=r"^vllm-[0-9]+-[a-z0-9-]+$")]
    runners: Annotated[tuple[Runner, ...], Field(min_length=1)]
    needs: tuple[Need, ...] = ()

    @property
    def expected_missed(self) -> str:
        """Return why random traces need not find the reversal; "" if they must."""
        unmet = (why for needs, why in UNMET.items() if needs.issubset(self.needs))
        return self.missed or next(unmet, "")


def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the reversals of all classes, in the order of the classes.

    Raises:
        TableError: a file is not a valid table, or an id occurs twice.
    """
    return table.reversals_in(folder, Reversal)
