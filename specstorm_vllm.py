"""Pytest plugin that watches vLLM's own tests: races on a simulated device, and step inputs.

Load it by name, before any module of vLLM: `python -m pytest -p specstorm_vllm TESTS...` in vLLM's environment.
"""

import os
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from scenarios.events import Schedule
from workers.judge.history import History
from workers.judge.judge import End
from workers.judge.model_inputs import ModelInputs
from workers.judge.races import Races
from workers.judge.scheduler_decisions import SchedulerDecisions
from workers.record.engine_records import EngineRecord, Scheduled
from workers.record.evidence import Difference
from workers.record.words import difference_lines
from workers.targets.child.answers import Race
from workers.targets.vllm.installation import CPU_ENVIRONMENT, ENVIRONMENT, FIRST_RUNNER, SECOND_RUNNER

POLICIES = ("eager", "lazy", "random")
RUNNERS = {runner.name: runner for runner in (FIRST_RUNNER, SECOND_RUNNER)}
# Maximum per test: one missing order is often the cause of many races.
RACES_MAX = 3
SHOWN: TypeAdapter[EngineRecord] = TypeAdapter(EngineRecord)
# Not set, because tests of vLLM expect its default.
NOT_SET = ("VLLM_LOGGING_LEVEL",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("specstorm", "Specstorm watches vLLM's tests")
    group.addoption("--specstorm-schedule", choices=POLICIES, default="eager", help="scheduling policy of the device")
    group.addoption("--specstorm-seed", type=int, default=0, help="seed of the random schedule")
    group.addoption("--specstorm-runner", choices=sorted(RUNNERS), default="v1", help="the model runner of engines")
    group.addoption("--specstorm-engine-path", default="", help="source tree that overlays the installed vLLM")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the simulated device in vLLM, before a conftest loads any module of vLLM.

    Raises:
        UsageError: vLLM is not installed or already loaded, or lacks a name that is replaced or observed.
    """
    options = early_config.known_args_namespace
    if "vllm" in sys.modules:
        raise pytest.UsageError("specstorm_vllm: vLLM is already loaded; name this plugin before others")
    tree = options.specstorm_engine_path
    if tree and not Path(tree, "vllm", "__init__.py").is_file():
        raise pytest.UsageError(f"--specstorm-engine-path {tree}: there is no vllm/__init__.py in it")
    runner = RUNNERS[options.specstorm_runner]
    environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **runner.environment}
    os.environ.update({name: value for name, value in environment.items() if name not in NOT_SET})
    sys.path += [str(Path(sys.prefix, folder)) for folder in runner.packages]
    schedule = Schedule(policy=options.specstorm_schedule, seed=options.specstorm_seed)
    try:
        from workers.targets.vllm.inside.main import watched_tests  # noqa: PLC0415  it loads PyTorch and vLLM

        tests = watched_tests(runner.name, str(Path(sys.prefix, "models")), schedule, *([tree] if tree else []))
    except Exception as error:
        raise pytest.UsageError(f"specstorm_vllm: {error}") from error
    early_config.pluginmanager.register(Watch(tests), "specstorm_vllm_watch")


class Watch:
    """Judges each watched test by its observations, and counts them."""

    def __init__(self, watched: Any) -> None:
        self._watched = watched
        self._counts: Counter[str] = Counter()
        self._left: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        """Begin a test's trace before its fixtures."""
        self._watched.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """End the trace after the test; a passed test fails if a bug was found.

        A failed test gets a report section.
        """
        try:
            result = yield
        except BaseException:
            try:
                text = self._found()
            except Exception as error:
                text = f"judging the rest of the run failed: {type(error).__name__}: {error}"
            if text:
                item.add_report_section("call", "specstorm", text)
            raise
        text = self._found()
        if text:
            pytest.fail(text, pytrace=False)
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts of watched and of partly judged parts."""
        counts = self._counts
        terminalreporter.section("specstorm")
        terminalreporter.write_line(
            f"{counts['tests']} tests watched: {counts['races']} races; "
            f"{counts['identities']} broken identities in {counts['steps']} steps of {counts['engines']} engines "
            f"and {counts['plans']} plans of {counts['schedulers']} schedulers"
        )
        for why, count in sorted(self._left.items()):
            terminalreporter.write_line(f"{count} schedulers judged only until: {why}")

    def _found(self) -> str:
        """Return the findings of the test that has run, as text."""
        races, shown = self._watched.end()
        self._counts["tests"] += 1
        texts: list[str] = []
        for race in (Race.model_validate(race).order for race in races):
            self._counts["races"] += 1
            difference = Races(lambda race=race: race).at_end(End(0, {}))  # type: ignore[misc]
            if difference is not None:
                texts.append(_text(difference))
        if len(texts) > RACES_MAX:
            texts[RACES_MAX:] = [f"{len(texts) - RACES_MAX} more races"]
        for each in shown:
            kind = ("engines", "steps") if each.has_runner else ("schedulers", "plans")
            log = [SHOWN.validate_python(seen) for seen in each.seen]
            self._counts[kind[0]] += 1
            self._counts[kind[1]] += sum(isinstance(seen, Scheduled) for seen in log)
            self._left.update([each.left] if each.left else [])
            difference = _broken(log, each.has_runner, each.is_drained)
            if difference is not None:
                self._counts["identities"] += 1
                numbered = ", ".join(f"submit {number} is {name!r}" for number, name in enumerate(each.names))
                texts.append(_text(difference, f"requests: {numbered}"))
        return "\n\n".join(texts)


def _broken(log: Sequence[EngineRecord], has_runner: bool, is_drained: bool) -> Difference | None:
    """Return the first broken identity in the observations of an engine or of a scheduler alone, None without any."""
    history = History.of(log)
    if not history.engines:
        return None
    if has_runner and not is_drained:
        return ModelInputs().before_crash(history)
    judge = ModelInputs() if has_runner else SchedulerDecisions()
    return judge.at_end(End(0, {}, history=history))


def _text(difference: Difference, *more: str) -> str:
    return "\n".join((*difference_lines(difference), *more))
