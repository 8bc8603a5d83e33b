"""pytest plugin: collect scenario files as tests with `--specstorm` or `specstorm = true`.

Otherwise it does nothing and imports nothing of Specstorm. Load it with `-p cluster.cli.pytest_plugin`: pytest rewrites
all assertions of a distribution that registers a plugin, and an engine must run unmodified.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SUFFIX = ".yaml"
# The start of a line that distinguishes a scenario from other YAML files.
MARK = "events:"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--specstorm` and the setting `specstorm`."""
    group = parser.getgroup("specstorm")
    group.addoption("--specstorm", action="store_true", help="collect Specstorm's scenario files (*.yaml) as tests")
    parser.addini("specstorm", "collect Specstorm's scenario files (*.yaml) as tests", type="bool", default=False)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect a YAML file that has a key `events` as a scenario file."""
    config = parent.config
    if file_path.suffix != SUFFIX or not (config.getoption("--specstorm") or config.getini("specstorm")):
        return None
    from scenarios.codec import BYTES_MAX  # noqa: PLC0415
    from scenarios.input_file import read_file  # noqa: PLC0415

    if file_path.stat().st_size > BYTES_MAX:
        return None
    text = read_file(file_path, BYTES_MAX).decode("utf-8", "replace")
    is_scenario = any(line.startswith(MARK) for line in text.splitlines())
    return ScenarioFile.from_parent(parent, path=file_path) if is_scenario else None


class ScenarioFailed(Exception):
    """A scenario did not agree; the message is that of the command line."""


class ScenarioFile(pytest.File):
    """A scenario file, collected as a file with one test."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Yield the only test of the file."""
        yield ScenarioItem.from_parent(self, name="agrees")


class ScenarioItem(pytest.Item):
    """The test of a scenario file: judge the scenario under many schedules.

    Passes if all agree, skipped if it switches known bugs on.
    """

    def runtest(self) -> None:
        """Judge the scenario; raise `ScenarioFailed` unless the runs agree."""
        # Imported when a scenario runs, so that other tests do not wait for it.
        from cluster.cli.inputs import read_trace  # noqa: PLC0415
        from cluster.cli.interface import check  # noqa: PLC0415
        from cluster.reports.report import Line, block  # noqa: PLC0415
        from workers.record.verdict import Agreed  # noqa: PLC0415

        trace = read_trace(self.path)
        if trace.faults:
            pytest.skip(f"switches on a known bug: {', '.join(trace.faults)}")
        judgement = check(trace, sweep=True)
        if not isinstance(judgement.verdict, Agreed):
            raise ScenarioFailed("\n".join(block(Line(str(self.path), judgement))))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report, or the one line that says what is wrong with the file."""
        if isinstance(excinfo.value, ScenarioFailed | ValueError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the file and the name of the test."""
        return self.path, None, self.name
