"""Record which functions and branches of an engine each scenario executes.

Run it once per release: `python -m cluster.cli.executed --engine NAME` writes the file that `specstorm gate` uses to
select scenarios for a change of that engine. Each scenario runs once, under the eager schedule, on new engines; code
that runs at process start counts for all of them.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cluster.cli.inputs import SCENARIOS, read_scenarios
from scenarios.events import Schedule
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, known_causes
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.references import References
from workers.targets.child.answers import Ran
from workers.targets.child.process import Keeper, Launch
from workers.targets.child.target import ChildKind
from workers.targets.executed import Executed
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import RunConfig

_PROGRAM = "workers.targets.child.inside.record_functions"


def recording_keeper(kind: ChildKind, config: RunConfig) -> Keeper:
    """Return the starter of an engine process that records all executed functions."""

    def launch() -> Launch:
        plain = kind.keeper(config).launch()
        python, flag, module, *arguments = plain.command
        assert flag == "-m", "an engine's process is a module"
        return replace(plain, command=(python, flag, _PROGRAM, kind.package, module, *arguments))

    return Keeper(kind.name, launch)


def executed_by_scenarios(kind: ChildKind, config: RunConfig) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each scenario with the names of the blocks that it executes."""
    keeper = recording_keeper(kind, config)
    watched = type("Watched", (type(kind),), {"keeper": lambda self, config: keeper})()
    folders = [SCENARIOS / name for name in dict.fromkeys((kind.package, kind.name)) if (SCENARIOS / name).is_dir()]
    scenarios, _ = read_scenarios(folders, None, (), config)
    value_cache = ModelValueCache()
    try:
        at_start = keeper.process().ask({"do": "ran"}, Ran).functions
        for scenario in scenarios:
            watched.renew(config)
            keeper.process().ask({"do": "ran"}, Ran)
            trace = scenario.job.trace.model_copy(update={"schedule": Schedule()}).explicit()
            options = Options(races=False, compared=References("none"), confirm="never")
            verdict = check(trace, value_cache, options, watched, config)
            if not isinstance(verdict, Agreed):
                print(f"{scenario.name}: {verdict.kind} {known_causes(verdict)}", file=sys.stderr)
            yield Path(scenario.name).stem, [*at_start, *keeper.process().ask({"do": "ran"}, Ran).functions]
    finally:
        keeper.stop()


def main() -> int:
    """Write the record of an engine; return the exit code."""
    recorded = [name for name in known_engines() if target_kind(name).executed is not None]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=recorded, required=True)
    parser.add_argument("--out", type=Path, help="the file to write (default: the one that the engine's kind names)")
    options = parser.parse_args()
    config = RunConfig(engine=options.engine)
    kind = target_kind(options.engine)
    assert isinstance(kind, ChildKind), "an engine with sources of its own"
    by_scenario: dict[str, list[str]] = {}
    for name, blocks in executed_by_scenarios(kind, config):
        by_scenario[name] = blocks
        print(f"{name}: {len(blocks)} blocks", file=sys.stderr, flush=True)
    record = Executed.of(kind.version(config), by_scenario)
    file = options.out or kind.executed
    assert file is not None, "the engine has a record"
    file.write_text(record.text(), encoding="utf-8")
    print(f"{file}: {len(by_scenario)} scenarios, {len(record.functions)} functions, {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
