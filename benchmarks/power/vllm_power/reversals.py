"""Table of reversals: each a small edit of vLLM, the reverse of one merged fix; files by class in `reversals/`."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError, model_validator

from benchmarks.power.vllm_power.edits import Edit
from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError, read
from workers.targets.target import VLLM, VLLM_V1

FOLDER = Path(__file__).resolve().parent / "reversals"
Runner: TypeAlias = Literal["v1", "v2"]
ENGINES: dict[Runner, str] = {"v1": VLLM_V1, "v2": VLLM}
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
    "set_k",
]
# What the number of a reversal is: a merged fix; a report of what another number has mended; a merged change of which
# one part is taken back.
Origin: TypeAlias = Literal["fix", "report", "change"]
NEEDS: tuple[Need, ...] = get_args(Need)
# Needs that no drawn trace meets together, and why.
UNMET: dict[frozenset[Need], str] = {
    frozenset({"connector", "hybrid"}): "no transfers run beside a hybrid model",
    frozenset({"handoff", "hybrid"}): "no transfers run beside a hybrid model",
}
# Those that no drawn trace of the first runner meets.
UNMET_BY_FIRST: dict[frozenset[Need], str] = {
    frozenset({"hybrid", "drafter"}): "no drafter runs beside a hybrid model in the first runner",
}


class TableError(Exception):
    """The table of reversals is not what it must be; the message says where."""


class Place(Value):
    """An edit as it stands in the table: `at` is module:function."""

    at: Annotated[str, Field(pattern=r"^vllm(\.\w+)+:\w+(\.\w+)*$")]
    find: str = ""
    put: str = ""
    without: str = ""
    within: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> "Place":
        if bool(self.find) == bool(self.without) or bool(self.find) != bool(self.put):
            raise ValueError("an edit has find and put, or without")
        return self

    @property
    def edit(self) -> Edit:
        """Return the edit."""
        module, _, function = self.at.partition(":")
        return Edit(module, function, self.find, self.put, self.without, self.within)


class Reversal(Value):
    """One reversal: what it takes back, by number and in a few words, and how.

    `plane` is where it is expected to show, `needs` what a trace must have; `note` says what the edit cannot say,
    `missed` why drawn traces are not expected to find it.
    """

    id: Annotated[str, Field(pattern=r"^vllm-[0-9]+-[a-z0-9-]+$")]
    source: Origin = "fix"
    title: str
    runners: Annotated[tuple[Runner, ...], Field(min_length=1)]
    plane: str
    needs: tuple[Need, ...] = ()
    note: str = ""
    missed: str = ""
    edits: Annotated[tuple[Place, ...], Field(min_length=1)]
    kind: str = ""

    @property
    def number(self) -> int:
        """Return its number in vLLM's project."""
        return int(self.id.split("-")[1])

    @property
    def expected_missed(self) -> str:
        """Return why drawn traces are not expected to find it; empty if they are."""
        there_are = UNMET | UNMET_BY_FIRST if self.runners == ("v1",) else UNMET
        unmet = (why for needs, why in there_are.items() if needs.issubset(self.needs))
        return self.missed or next(unmet, "")

    @property
    def places(self) -> tuple[str, ...]:
        """Return the functions that are edited, each with its module."""
        return tuple(dict.fromkeys(place.at for place in self.edits))


@cache
def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the reversals of all classes, class by class.

    Raises:
        TableError: a file is no table, or an id is there twice.
    """
    found = tuple(each for file in sorted(folder.glob("*.yaml")) for each in _of_file(file))
    twice = sorted({each.id for each in found if sum(other.id == each.id for other in found) > 1})
    if twice:
        raise TableError(f"{folder}: {', '.join(twice)}: there twice")
    return found


def _of_file(file: Path) -> Iterator[Reversal]:
    try:
        rows, _ = read(file.read_text(encoding="utf-8"), file.name)
    except ScenarioError as error:
        raise TableError(str(error)) from error
    if not isinstance(rows, list):
        raise TableError(f"{file.name}: a list of reversals is wanted")
    for row in rows:
        try:
            yield Reversal.model_validate(row).model_copy(update={"kind": file.stem.replace("_", " ")})
        except ValidationError as error:
            first = error.errors()[0]
            name = row.get("id", row) if isinstance(row, dict) else row
            raise TableError(f"{file.name}: {name}: {first['loc']}: {first['msg']}") from error


def edits_of(reversal: Reversal) -> Sequence[Edit]:
    """Return the edits of a reversal."""
    return [place.edit for place in reversal.edits]
