"""Reversals of SGLang; `reversals/` has a file for each class."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from benchmarks.power.reversals import table
from workers.targets.sglang.installation import SGLANG

FOLDER = Path(__file__).resolve().parent / "reversals"
Runner: TypeAlias = Literal["v2"]
ENGINES: dict[str, str] = {"v2": SGLANG}
# Trace properties without which the edited code does not run or has no effect.
Need: TypeAlias = Literal[
    "async",
    "drafter",
    "chunks",
    "preemption",
    "abort",
    "prefix_cache",
    "pages",
    "logprobs",
    "stops",
    "plan_stream",
    "relay_lengths",
    "mixed_chunks",
    "grammars",
    "pause",
    "biases",
    "seed",
    "min_tokens",
    "penalties",
    "tensor_ranks",
]


class Reversal(table.Reversal):
    """One reversal of SGLang with its second-generation speculative workers."""

    id: Annotated[str, Field(pattern=r"^sglang-[0-9]+-[a-z0-9-]+$")]
    runners: tuple[Runner, ...] = ("v2",)
    needs: tuple[Need, ...] = ()


def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the reversals of all classes, in the order of the classes.

    Raises:
        TableError: a file is not a valid table, or an id occurs twice.
    """
    return table.reversals_in(folder, Reversal)
