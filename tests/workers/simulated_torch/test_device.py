"""Properties of the device, its command, and the message if it cannot be built."""

import json
from pathlib import Path

import pytest

from tests.workers.simulated_torch.check_runs import CHECKS
from tests.workers.simulated_torch.processes import needs_device, printed, run_module
from workers.simulated_torch.__main__ import main
from workers.simulated_torch.build import BuildError, library

COMMAND = "workers.simulated_torch"
PROGRAM = """
import sys
import torch
output = torch.zeros(8, pin_memory=True)
numbers = torch.nn.Linear(2, 8, bias=False, device="cuda" if torch.cuda.is_available() else "cpu").weight.data[:, 0]
numbers = numbers.cuda().fill_(1).to(torch.device("cuda", 0))
output.copy_(numbers, non_blocking=True)
if "wait" in sys.argv:
    torch.cuda.current_stream().synchronize()
if "fail" in sys.argv:
    raise RuntimeError("by itself")
print(float(output.sum()))
"""


@needs_device
@pytest.mark.parametrize("check", CHECKS)
def test_device_check(check: str) -> None:
    wrong = json.loads(printed("check_runs", "0"))[check]
    assert wrong is None, wrong


@needs_device
@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        ((), 1, ("RACE  a buffer of 32 bytes allocated at program.py:4, at byte 0, once", "1 race: ")),
        (("--schedule", "lazy", "wait"), 0, ("8.0", "no race: ")),
        (("wait", "fail"), 3, ("no race",)),
    ],
)
def test_command_runs_a_program_and_reports_its_races(
    tmp_path: Path, arguments: tuple[str, ...], code: int, shown: tuple[str, ...]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run_module(COMMAND, str(program), *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert [text for text in shown if text not in done.stdout] == []
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "error: nowhere.py: no such file\n"),
        ([__file__, "--hold", "copy_d2h@0"], "error: --hold copy_d2h@0: expected OP@STEP:UNTIL@STEP, as in "),
    ],
)
def test_bad_usage_is_reported_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(("variable", "message"), [("CXX", "C++ compiler 'none-such'"), ("PATH", "C++ compiler 'c++'")])
def test_missing_build_requirement_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(variable, "none-such")
    with pytest.raises(BuildError, match="compiled once") as refused:
        library(tmp_path / "cache")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
