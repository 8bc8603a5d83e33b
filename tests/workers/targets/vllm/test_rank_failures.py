"""Failures that worker processes of ranks record for the engine's process; without vLLM."""

import json
import logging
import tempfile
from multiprocessing import get_context
from pathlib import Path

import pytest

from workers.targets.vllm.inside.rank_processes.failures import record_failures, recorded_failure
from workers.targets.vllm.inside.rank_processes.setup import RankProcesses


def fails(text: str) -> None:
    """Log an exception as vLLM's worker process does, and another one that results from it."""
    record_failures()
    logger = logging.getLogger("vllm.v1.executor.multiproc_executor")
    for each in (text, "a later one"):
        try:
            raise ValueError(each)
        except ValueError:
            logger.exception("WorkerProc hit an exception.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_first_exception_of_the_lowest_failed_rank_is_the_answer(folder: Path) -> None:
    assert recorded_failure() is None
    for rank in (2, 1):
        process = get_context("spawn").Process(target=fails, args=(f"planted {rank}",), name=f"VllmWorker-{rank}")
        process.start()
        process.join()
    assert sorted(file.name for file in folder.glob("specstorm-*")) == [
        "specstorm-rank-1.json",
        "specstorm-rank-2.json",
    ]
    failed = recorded_failure()
    assert failed is not None
    assert failed["error"] == "rank 1: ValueError: planted 1"
    assert failed["where"]["function"] == "fails"


def test_answer_is_the_last_one_once_there_were_worker_processes(folder: Path) -> None:
    ranks = RankProcesses(None)
    with pytest.raises(ValueError, match="ours") as raised:
        raise ValueError("ours")
    error = raised.value
    assert ranks.failure(error)["is_last"] is False
    ranks.arguments()
    assert ranks.failure(error) | {"where": None} == {
        "error": "ValueError: ours",
        "where": None,
        "callers": [],
        "is_last": True,
    }
    (folder / "specstorm-rank-1.json").write_text(json.dumps({"error": "rank 1: out of memory"}))
    assert ranks.failure(error) == {"error": "rank 1: out of memory", "is_last": True}
