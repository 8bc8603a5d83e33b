"""Reversals of vLLM; files by class in `reversals/`."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from benchmarks.power.reversals import table
from workers.targets.vllm.names import VLLM, VLLM_V1

FOLDER = Path(__file__).resolve().parent / "reversals"
Runner: TypeAlias = Literal["v1", "v2"]
ENGINES: dict[str, str] = {"v1": VLLM_V1, "v2": VLLM}
# What a trace must have for the edited code to run and matter.
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
    "set_k",
]
# Needs that no drawn trace meets together, and why.
UNMET: dict[frozenset[Need], str] = {
    frozenset({"offloading", "hybrid"}): "nothing of a hybrid model is offloaded",
    frozenset({"connector", "gated"}): "no transfers run beside gated delta nets",
    frozenset({"handoff", "gated"}): "no transfers run beside gated delta nets",
}


class Reversal(table.Reversal):
    """One reversal of vLLM, in one of its model runners or both."""

    id: Annotated[str, Field(pattern=r"^vllm-[0-9]+-[a-z0-9-]+$")]
    runners: Annotated[tuple[Runner, ...], Field(min_length=1)]
    needs: tuple[Need, ...] = ()

    @property
    def expected_missed(self) -> str:
        """Return why drawn traces are not expected to find it; empty if they are."""
        unmet = (why for needs, why in UNMET.items() if needs.issubset(self.needs))
        return self.missed or next(unmet, "")


def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the reversals of all classes, class by class.

    Raises:
        TableError: a file is no table, or an id is there twice.
    """
    return table.reversals_in(folder, Reversal)
