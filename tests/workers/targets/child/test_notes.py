"""Executed functions of an engine are recorded, and otherwise run unchanged."""

import inspect
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from workers.edits.edit import Edit
from workers.edits.fix import SelectedEdits
from workers.edits.functions import MODULE
from workers.targets.child.inside import edited_modules
from workers.targets.child.inside.notes import Notes, all_functions_of, note_edits, notes_of_process
from workers.targets.child.inside.overlay import Overlay

INSTALLED = '''"""The scheduler."""
from __future__ import annotations

def jit(function):
    return function

class Scheduler:
    def schedule(self, requests):
        """Return the requests that run."""
        if requests:
            chosen = requests[:1]
        else:
            raise ValueError("nothing to run")
        return chosen

    def finish(self):
        return "installed"

@jit
def compiled():
    return 1

def __mangled():
    return 2
'''
FILE = "noted_engine/scheduler.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an installed package, which is unloaded afterwards."""
    package = tmp_path / "installed" / "noted_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "scheduler.py").write_text(INSTALLED)
    (package / "other.py").write_text("def run():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "noted_engine"]:
        del sys.modules[name]


def loaded(notes: Notes) -> ModuleType:
    notes.install()
    assert notes_of_process() is notes
    return import_module("noted_engine.scheduler")


def test_blocks_are_recorded_again_after_each_report(folder: Path) -> None:
    notes = Notes("noted_engine", all_functions_of)
    module = loaded(notes)
    assert notes.ran() == [f"noted_engine/__init__.py:{MODULE}", f"{FILE}:{MODULE}", f"{FILE}:jit"]
    for _ in range(2):
        assert module.Scheduler().schedule([1, 2]) == [1]
        assert notes.ran() == [f"{FILE}:Scheduler.schedule", f"{FILE}:Scheduler.schedule:1"]
    assert (module.compiled(), getattr(module, "__mangled")()) == (1, 2)
    assert notes.ran() == [f"{FILE}:__mangled"]


def test_kernel_is_recorded_by_its_launches(folder: Path) -> None:
    notes = Notes("noted_engine", all_functions_of)
    loaded(notes)
    notes.ran()
    notes.launched(["noted_engine.scheduler.compiled", "noted_engine.scheduler.LIMIT", "torch.nn.relu"])
    assert notes.ran() == [f"{FILE}:compiled"]


def test_recorded_functions_keep_lines_docstrings_and_globals(folder: Path) -> None:
    notes = Notes("noted_engine", all_functions_of)
    schedule = loaded(notes).Scheduler.schedule
    with pytest.raises(ValueError, match="nothing to run") as raised:
        schedule(None, [])
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.lineno, frame.line) == (13, 'raise ValueError("nothing to run")')
    assert schedule.__doc__ == "Return the requests that run."
    assert inspect.getsource(schedule).splitlines()[0] == "    def schedule(self, requests):"
    elsewhere = FunctionType(schedule.__code__, {"__builtins__": __builtins__})
    assert elsewhere(None, [3]) == [3]


def test_edited_functions_of_an_overlay_are_recorded_once(folder: Path) -> None:
    over = folder / "over" / "noted_engine"
    over.mkdir(parents=True)
    (over / "__init__.py").touch()
    edited = INSTALLED.replace('return "installed"', 'return "laid over"').replace("requests[:1]", "requests[:2]")
    (over / "scheduler.py").write_text(edited)
    sys.meta_path.insert(0, Overlay("noted_engine", folder / "over"))
    note_edits("noted_engine", SelectedEdits())
    notes = notes_of_process()
    assert notes is not None
    module, other = import_module("noted_engine.scheduler"), import_module("noted_engine.other")
    assert (module.Scheduler().finish(), module.compiled(), other.run()) == ("laid over", 1, 1)
    assert notes.ran() == [f"{FILE}:Scheduler.finish"]
    module.Scheduler().finish()
    assert notes.ran() == []
    module.Scheduler().schedule([1])
    assert notes.ran() == [f"{FILE}:Scheduler.schedule"]


def test_fixed_functions_are_recorded_or_else_the_module(folder: Path) -> None:
    edits = [
        Edit(at="noted_engine.scheduler:Scheduler.finish", find="'installed'", put="'fixed'"),
        Edit(at="noted_engine.other", find="1", put="2"),
    ]
    by_module = {edit.module: (edit,) for edit in edits}
    sys.meta_path.insert(0, edited_modules.EditedModules(by_module))
    note_edits("noted_engine", SelectedEdits(by_module))
    notes = notes_of_process()
    assert notes is not None
    module = import_module("noted_engine.scheduler")
    assert notes.ran() == []
    assert module.Scheduler().finish() == "fixed"
    assert notes.ran() == [f"{FILE}:Scheduler.finish"]
    assert import_module("noted_engine.other").run() == 2
    assert notes.ran() == [f"noted_engine/other.py:{MODULE}"]


def test_recording_is_refused_after_the_import_of_the_package(folder: Path) -> None:
    import_module("noted_engine")
    with pytest.raises(AssertionError, match="noted_engine was loaded before"):
        Notes("noted_engine", all_functions_of).install()
