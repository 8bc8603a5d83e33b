"""Modules imported with edits run the edited code, and keep their line numbers."""

import inspect
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
MODULE = """def double(x):
    y = x
    return 2 * y


def last():
    raise ValueError("line 7")
"""
FIX = """summary: Doubles once more.
edits:
  - at: edited_example.module:double
    before: return 2 * y
    code: |
      if x > 0:
          y = 2 * x
  - at: edited_example.module:last
    find: ValueError('line 7')
    put: KeyError('line 7')
"""
PROGRAM = """
import inspect, sys, traceback
from pathlib import Path
from workers.edits import fix
from workers.targets.child.inside import edited_modules

fix.fixes_of.__wrapped__.__defaults__ = (Path(sys.argv[1]),)
found = edited_modules.install("edited_example", sys.argv[2], [])
from edited_example import module
print(sorted(found.names), module.double(3), module.double(-3))
print(inspect.getsource(module.last).splitlines()[1].strip())
try:
    module.last()
except Exception as error:
    print(type(error).__name__, traceback.extract_tb(error.__traceback__)[-1].lineno)
"""


def run(tmp_path: Path, names: str) -> list[str]:
    (tmp_path / "edited_example").mkdir()
    (tmp_path / "edited_example" / "__init__.py").write_text("")
    (tmp_path / "edited_example" / "module.py").write_text(MODULE)
    (tmp_path / "findings" / "edited_example_doubles").mkdir(parents=True)
    (tmp_path / "findings" / "edited_example_doubles" / "fix.yaml").write_text(FIX)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "findings"), names]
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_edited_module_runs_the_edits_and_keeps_line_numbers(tmp_path: Path) -> None:
    text = "raise (KeyError('line 7'))"
    assert run(tmp_path, "all") == ["['edited_example_doubles'] 12 -6", text, "KeyError 7"]


def test_module_without_fixes_is_imported_unchanged(tmp_path: Path) -> None:
    assert run(tmp_path, "") == ["[] 6 -6", 'raise ValueError("line 7")', "ValueError 7"]


def test_source_in_this_file_has_its_line_7_at_line_7() -> None:
    assert inspect.cleandoc(MODULE).splitlines()[6] == '    raise ValueError("line 7")'
