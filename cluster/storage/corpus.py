"""Corpus: known traces from which a hunt starts, copied into the campaign."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from cluster.dispatch.inside import inside, write_inside
from scenarios import codec
from scenarios.events import Schedule
from scenarios.generation.shards import Parent
from scenarios.trace import Trace, problems

PARENTS_PER_SHARD = 3
SNAPSHOT = "snapshot"


@dataclass(frozen=True)
class Corpus:
    """Known traces with prompts as token ids, without faults, schedules and `expect`.

    `num_left_out` counts input traces that no engine runs without their faults.
    """

    traces: tuple[Trace, ...] = ()
    num_left_out: int = 0

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "Corpus":
        """Return the corpus of files and folders; names, comments and order do not matter.

        Raises:
            ScenarioError: a file is no scenario, or no trace is left.
        """
        found: dict[str, Trace] = {}
        num_left_out = 0
        for path in codec.find_scenarios(paths):
            bare = {"faults": (), "expect": {}, "schedule": Schedule()}
            trace = codec.load(path).explicit().model_copy(update=bare)
            if problems(trace):
                num_left_out += 1
            else:
                found[codec.dumps(trace)] = trace
        if not found:
            names = ", ".join(map(str, paths))
            raise codec.ScenarioError(f"{names}: no engine runs these traces without their faults; name others")
        return cls(tuple(found[text] for text in sorted(found)), num_left_out)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the traces, which is part of job keys.

        An empty string for an empty corpus.
        """
        texts = "\x00".join(map(codec.dumps, self.traces))
        return blake2b(texts.encode(), digest_size=8).hexdigest() if self.traces else ""

    def parents(self, shard: int) -> tuple[Parent, ...]:
        """Return the corpus traces from which a shard derives variants, in rotation."""
        count = len(self.traces)
        turns = range(shard * PARENTS_PER_SHARD, (shard + 1) * PARENTS_PER_SHARD) if count else ()
        return tuple(Parent(trace=self.traces[turn % count], turn=turn // count) for turn in turns)

    def keep(self, campaign: Path) -> None:
        """Write the corpus into a campaign as read-only files, in a folder named by its digest.

        An existing one stays.
        """
        folder = campaign / SNAPSHOT / self.digest
        if not self.traces or folder.is_dir():
            return
        begun = inside(campaign, f"{SNAPSHOT}/.{self.digest}.tmp")
        shutil.rmtree(begun, ignore_errors=True)
        for index, trace in enumerate(self.traces):
            path = write_inside(campaign, f"{SNAPSHOT}/{begun.name}/{index:04d}.yaml", codec.dumps(trace))
            path.chmod(0o444)
        assert len(list(begun.iterdir())) == len(self.traces), f"{begun} is not the whole corpus"
        begun.rename(folder)


NO_CORPUS = Corpus()


def kept_corpus(campaign: Path) -> Corpus:
    """Return the corpus that a campaign stores; empty if it stores none.

    Raises:
        ScenarioError: the snapshot was edited.
    """
    for folder in sorted((campaign / SNAPSHOT).glob("[!.]*")):
        corpus = Corpus.read([folder])
        if corpus.digest != folder.name:
            what = f"these traces come to digest {corpus.digest}, so they were edited"
            raise codec.ScenarioError(f"{folder}: {what}; begin another campaign with --out")
        return corpus
    return NO_CORPUS
