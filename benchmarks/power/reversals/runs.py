"""Run trials in separate processes, and store their results in a file of JSON lines."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path

from pydantic import ValidationError

from benchmarks.power.reversals.trial import Result, Task, tried
from workers.run.process import prepare_process


class UsageError(Exception):
    """The options are invalid; the message says why."""


class Results:
    """Results of trials, stored as JSON lines if a file is given."""

    def __init__(self, file: Path | None) -> None:
        self.by_key: dict[str, Result] = {}
        self._file = file
        for number, line in enumerate(_lines(file), 1):
            try:
                result = Result.model_validate_json(line)
            except ValidationError as error:
                raise UsageError(f"{file}: line {number}: not a result of this benchmark") from error
            self.by_key[result.key] = result

    def add(self, result: Result) -> None:
        """Add a trial's result, and append it to the file if there is one."""
        self.by_key[result.key] = result
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(result.model_dump_json() + "\n")


def _lines(file: Path | None) -> list[str]:
    """Return the complete lines of a file, and remove a truncated last line."""
    if file is None or not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    return whole.splitlines()


def _prepare() -> None:
    # The main process ends its workers, which leave no files.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    prepare_process()


def run(tasks: Sequence[Task], workers: int, traces_max: int | None, results: Results) -> Iterator[Result]:
    """Yield the results of tasks as they end; stored results are not computed again.

    A trial that raises is reported as refused, and tried again when the command resumes.
    """
    new = []
    for task in tasks:
        known = results.by_key.get(task.key)
        if known is None:
            new.append(task)
        else:
            yield known
    with ProcessPoolExecutor(workers, get_context("spawn"), _prepare, max_tasks_per_child=1) as pool:
        futures = {pool.submit(tried, task, traces_max): task for task in new}
        try:
            for future in as_completed(futures):
                error = future.exception()
                if error is not None:
                    yield _refused(futures[future], error)
                else:
                    results.add(future.result())
                    yield future.result()
        except BaseException:
            for process in active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _refused(task: Task, error: BaseException) -> Result:
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return Result(key=task.key, id=task.id, engine=task.engine, source=task.source, traces=0, seconds=0, refused=why)
