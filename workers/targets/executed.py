"""Stored record: which functions and blocks of an engine each scenario executes.

`python -m cluster.cli.executed` records one release, as JSON. `sets` are the distinct sets of scenarios, each a
hexadecimal number with bit n set for scenario n. `folders` lists the loaded files and the functions of each; all
scenarios load a file unless its `<module>` entry says otherwise. `3x2 0 7` says that blocks 0 and 1 of a function are
executed by set 3, block 2 by set 0, and block 3 by set 7. No scenario executes the later blocks, or functions that are
not listed.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from scenarios.visible import visible_line
from workers.edits.functions import MODULE, name_of

_NO_SCENARIOS: frozenset[str] = frozenset()


class RecordError(Exception):
    """A file is no valid record of executed functions; the message is one line."""


@dataclass(frozen=True, slots=True)
class Executed:
    """Which scenarios execute each block of each function, for one engine release."""

    release: str
    scenarios: tuple[str, ...]
    functions: Mapping[str, Sequence[frozenset[str]]]

    @classmethod
    def of(cls, release: str, by_scenario: Mapping[str, Iterable[str]]) -> "Executed":
        """Build the record from the blocks that each scenario executes.

        A block is given as `FILE:FUNCTION:NUMBER`, block 0 also as `FILE:FUNCTION`.
        """
        functions: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for scenario, names in by_scenario.items():
            for name in names:
                function, number = _block_of(name)
                functions[function][number].add(scenario)
        frozen = {
            function: [frozenset(blocks.get(number, ())) for number in range(max(blocks) + 1)]
            for function, blocks in sorted(functions.items())
        }
        return cls(release, tuple(sorted(by_scenario)), frozen)

    @classmethod
    def read(cls, file: Path) -> "Executed":
        """Read the record from a JSON file.

        Raises:
            RecordError: the file is missing or is not a valid record.
        """
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            scenarios = tuple(map(str, record["scenarios"]))
            sets = [_scenarios_of(int(text, 16), scenarios) for text in record["sets"]]
            functions: dict[str, Sequence[frozenset[str]]] = {}
            for folder, files in record["folders"].items():
                for name, inner in files.items():
                    functions[name_of(f"{folder}/{name}", MODULE)] = [frozenset(scenarios)]
                    for function, blocks in inner.items():
                        runs = [each for word in blocks.split() for each in _run_of(word, sets)]
                        functions[name_of(f"{folder}/{name}", function)] = runs
            return cls(str(record["release"]), scenarios, functions)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise RecordError(f"{file}: no record of executed functions: {visible_line(str(error))}") from error

    def of_block(self, function: str, number: int = 0) -> frozenset[str]:
        """Return the scenarios that execute a block of a function."""
        blocks = self.functions.get(function, ())
        return blocks[number] if number < len(blocks) else _NO_SCENARIOS

    def of_functions(self, prefix: str) -> frozenset[str]:
        """Return the scenarios that execute any function whose name starts with `prefix`."""
        return _NO_SCENARIOS.union(*(blocks[0] for name, blocks in self.functions.items() if name.startswith(prefix)))

    def of_file(self, file: str) -> frozenset[str]:
        """Return the scenarios that execute any function of a file.

        If no scenario does, return the scenarios that import the file.
        """
        functions = {name: blocks for name, blocks in self.of_files({file}) if name != name_of(file, MODULE)}
        executing = _NO_SCENARIOS.union(*(blocks[0] for blocks in functions.values()))
        return executing or self.of_block(name_of(file, MODULE))

    def of_files(self, files: Collection[str]) -> Iterator[tuple[str, Sequence[frozenset[str]]]]:
        """Yield each function of the files, with the scenarios that execute each block."""
        yield from ((name, blocks) for name, blocks in self.functions.items() if name.partition(":")[0] in files)

    def text(self) -> str:
        """Return the record as JSON text, one line per folder of the engine's package."""
        bit = {name: 1 << number for number, name in enumerate(self.scenarios)}
        numbers: dict[frozenset[str], int] = {}
        folders: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
        for name, blocks in sorted(self.functions.items()):
            path, _, function = name.partition(":")
            folder, _, file = path.rpartition("/")
            inner = folders[folder][file]
            if function == MODULE and blocks[0] == frozenset(self.scenarios):
                continue
            words = []
            for each, run in groupby(blocks):
                count, number = len([*run]), numbers.setdefault(each, len(numbers))
                words.append(f"{number}x{count}" if count > 1 else f"{number}")
            inner[function] = " ".join(words)
        sets = [f"{sum(bit[name] for name in each):x}" for each in numbers]
        lines = ",\n".join(f"{_json(folder)}:{_json(files)}" for folder, files in folders.items())
        head = f'"release":{_json(self.release)},\n"scenarios":{_json(self.scenarios)},\n"sets":{_json(sets)}'
        return f'{{{head},\n"folders":{{\n{lines}\n}}}}\n'


def _block_of(name: str) -> tuple[str, int]:
    """Split a block name `FILE:FUNCTION:NUMBER` into `FILE:FUNCTION` and number (default 0)."""
    function, _, number = name.rpartition(":")
    return (function, int(number)) if number.isdecimal() else (name, 0)


def _scenarios_of(bits: int, scenarios: Sequence[str]) -> frozenset[str]:
    return frozenset(name for number, name in enumerate(scenarios) if bits >> number & 1)


def _run_of(word: str, sets: Sequence[frozenset[str]]) -> Sequence[frozenset[str]]:
    number, _, count = word.partition("x")
    return [sets[int(number)]] * int(count or 1)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
