"""Reversals of SGLang; files by class in `reversals/`."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from benchmarks.power.reversals import table
from workers.targets.sglang.installation import SGLANG

FOLDER = Path(__file__).resolve().parent / "reversals"
Runner: TypeAlias = Literal["v2"]
ENGINES: dict[str, str] = {"v2": SGLANG}
# What a trace must have for the edited code to run and matter.
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
]


class Reversal(table.Reversal):
    """One reversal of SGLang, whose speculative workers are those of its second design, with overlap and without."""

    id: Annotated[str, Field(pattern=r"^sglang-[0-9]+-[a-z0-9-]+$")]
    runners: tuple[Runner, ...] = ("v2",)
    needs: tuple[Need, ...] = ()


def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the reversals of all classes, class by class.

    Raises:
        TableError: a file is no table, or an id is there twice.
    """
    return table.reversals_in(folder, Reversal)
