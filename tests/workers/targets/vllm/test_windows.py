"""Sliding-window layers compared with a reference model that masks by position."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.outputs import FailedRun
from workers.oracle.model_values import ModelValueCache
from workers.run.comparison import outputs_of
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG
from workers.targets.vllm.installation import home_of
from workers.targets.vllm.names import VLLM, VLLM_V1

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = Path(__file__).with_name("plain_windows.py")
PROMPT = tuple((7 * place * place + 3 * place) % 32 for place in range(70))
NUM_TOKENS = 30


@cache
def greedy_tokens(kind: str, window: int) -> list[int]:
    """Return the reference model's output tokens."""
    python = home_of(DEFAULT_CONFIG) / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(python), str(PROGRAM), kind, str(window)]
    told = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    found: list[int] = json.loads(told)
    return found


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(("window", "heads"), [(5, 1), (32, 1), (33, 1), (33, 4)])
def test_sliding_window_attends_to_exactly_its_last_tokens(engine: str, window: int, heads: int) -> None:
    spec = EngineSpec.model_validate(
        {
            **{"layers": "windows", "window": window, "window_heads": heads, "sampling": "standard", "block_size": 32},
            **{"num_speculative_tokens": 3, "max_num_batched_tokens": 24, "max_model_len": 128},
        }
    )
    submit = Submit(tick=0, request="r", prompt=PROMPT, max_tokens=NUM_TOKENS)
    outputs = outputs_of(Trace(spec=spec, events=(submit,)), ModelValueCache(), target_kind(engine))
    assert not isinstance(outputs, FailedRun)
    kind = "windows" if heads == 1 else "wide-windows"
    expected = greedy_tokens(kind, window)
    assert list(outputs["r"].tokens) == expected
    # A window of one token more or less gives other outputs.
    assert expected not in (greedy_tokens(kind, window - 1), greedy_tokens(kind, window + 1))
