"""Replacements, hooks and overlays of an engine's modules; missing attributes are named."""

import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from workers.targets.child.inside.overlay import DistributionAlias, Overlay, relative_to_packages, version_of
from workers.targets.child.inside.replacements import Hooks, Replacement, Unknown, Version

ENGINE = """
from dataclasses import dataclass
from functools import wraps

def wrapped(function):
    @wraps(function)
    def call(*arguments):
        return function(*arguments)
    return call

@dataclass
class Plan:
    rows: int

class Base:
    def __init__(self):
        self.waiting = []

class Scheduler(Base):
    @wrapped
    def begin(self):
        self.running = []
        local = self.waiting

    def schedule(self):
        return "theirs"
"""
VERSION = Version("engine", "1.4.0", ("1.4.0", "1.5.0"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an installed package, which is unloaded afterwards."""
    package = tmp_path / "installed" / "tiny_engine"
    (package / "core").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "core" / "__init__.py").write_text("WHERE = 'installed'\n")
    (package / "core" / "scheduler.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny_engine"]:
        del sys.modules[name]


def ours(before: Any) -> Any:
    return lambda self: f"ours, then {before(self)}"


def replacement(name: str, since: str = "", until: str = "") -> Replacement:
    return Replacement("tiny_engine.core.scheduler", name, "for this test", ours, since, until)


def test_attribute_is_replaced_by_the_made_value(installed: Path) -> None:
    replacement("Scheduler.schedule").apply(VERSION)
    from tiny_engine.core.scheduler import Scheduler  # type: ignore[import-not-found]  # noqa: PLC0415

    assert Scheduler().schedule() == "ours, then theirs"


@pytest.mark.parametrize("name", ["Scheduler.plan", "Planner.schedule", "plan"])
def test_missing_attribute_is_refused_except_before_since(name: str, installed: Path) -> None:
    missing = rf"engine 1\.4\.0 has no tiny_engine\.core\.scheduler\.{name}; supported versions: 1\.4\.0, 1\.5\.0"
    with pytest.raises(Unknown, match=missing):
        replacement(name, since="1.4").apply(VERSION)
    replacement(name, since="1.4.1").apply(VERSION)


@pytest.mark.parametrize(("until", "made"), [("1.4", "theirs"), ("1.5", "ours, then theirs")])
def test_attribute_is_replaced_only_before_until(until: str, made: str, installed: Path) -> None:
    replacement("Scheduler.schedule", until=until).apply(VERSION)
    from tiny_engine.core.scheduler import Scheduler  # noqa: PLC0415

    assert Scheduler().schedule() == made


def hooks(holder: str, *names: str, module: str = "scheduler", since: str = "") -> Hooks:
    return Hooks(f"tiny_engine.core.{module}", holder, " ".join(names), since)


def test_hook_is_a_method_a_field_or_an_attribute_set_in_a_method(installed: Path) -> None:
    hooks("Scheduler", "schedule", "begin", "running", "waiting").check(VERSION)
    hooks("Plan", "rows").check(VERSION)
    hooks("", "Plan", "wrapped").check(VERSION)


@pytest.mark.parametrize(
    ("missing", "lacking"),
    [
        ("scheduler.Scheduler.local", hooks("Scheduler", "schedule", "local")),
        ("scheduler.Base.running", hooks("Base", "running")),
        ("scheduler.Plan.columns", hooks("Plan", "columns")),
        ("scheduler.Planner", hooks("Planner", "schedule")),
        ("scheduler.plan", hooks("", "plan")),
        ("planner", hooks("Scheduler", "schedule", module="planner")),
    ],
)
def test_missing_hook_is_refused_by_its_name(missing: str, lacking: Hooks, installed: Path) -> None:
    with pytest.raises(
        Unknown, match=rf"^engine 1\.4\.0 has no tiny_engine\.core\.{missing}; supported versions: 1\.4\.0, "
    ):
        lacking.check(VERSION)


def test_hook_of_later_versions_is_not_checked(installed: Path) -> None:
    hooks("Planner", "schedule", since="1.10.0").check(VERSION)


def test_overlay_replaces_its_modules_and_keeps_the_others(installed: Path) -> None:
    over = installed / "over" / "tiny_engine" / "core"
    over.mkdir(parents=True)
    (over / "__init__.py").write_text("WHERE = 'laid over'\n")
    (over / "more.py").write_text("WHERE = 'laid over'\n")
    sys.meta_path.insert(0, Overlay("tiny_engine", installed / "over"))
    from tiny_engine.core import WHERE, more, scheduler  # type: ignore[import-not-found]  # noqa: PLC0415

    assert (WHERE, more.WHERE) == ("laid over", "laid over")
    assert scheduler.Scheduler().schedule() == "theirs"


@pytest.mark.parametrize("is_complete", [True, False])
def test_complete_overlay_takes_only_compiled_modules_from_elsewhere(is_complete: bool, installed: Path) -> None:
    over, package = installed / "over" / "tiny_engine", installed / "installed" / "tiny_engine"
    (over / "core").mkdir(parents=True)
    for file in (over / "__init__.py", over / "core" / "__init__.py"):
        file.touch()
    for file in (package, over):
        (file / f"_compiled{EXTENSION_SUFFIXES[0]}").touch()
    (over / f"_of_another_build{EXTENSION_SUFFIXES[0]}").touch()
    sys.meta_path.insert(0, Overlay("tiny_engine", installed / "over", is_complete))
    assert (find_spec("tiny_engine.core.scheduler") is None) == is_complete
    compiled = find_spec("tiny_engine._compiled")
    assert compiled is not None
    assert compiled.origin == str(package / f"_compiled{EXTENSION_SUFFIXES[0]}")
    with pytest.raises(
        ModuleNotFoundError, match=r"tiny_engine\._of_another_build is a compiled module that is not installed"
    ):
        import_module("tiny_engine._of_another_build")


def test_distribution_is_found_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = version_of("pytest")
    monkeypatch.setattr(sys, "meta_path", [DistributionAlias("tiny-engine", f"{installed}+cpu"), *sys.meta_path])
    assert metadata.version("tiny-engine") == f"{pytest.__version__}+cpu"
    assert (installed, version_of("no-such-engine")) == (pytest.__version__, "")


def test_overlay_reports_both_versions_and_a_checkout_is_the_newest() -> None:
    laid_over = Version("engine", "1.5.0", ("1.4.0",), over="1.4.0")
    assert (VERSION.text, laid_over.text) == ("1.4.0", "1.5.0 over 1.4.0")
    assert str(laid_over.lacks("a.b")) == "engine 1.5.0 over 1.4.0 has no a.b; supported versions: 1.4.0"
    assert laid_over.is_at_least("1.5.0")
    assert not VERSION.is_at_least("1.5.0")
    assert Version("engine", "dev", (), over="1.4.0").is_at_least("1.5.0")


def test_file_names_in_messages_start_at_their_package(installed: Path) -> None:
    text = f"at {installed}/over/tiny_engine/core/scheduler.py:3, called from /usr/lib/site-packages/torch/nn.py:1"
    shorter = "called from torch/nn.py:1"
    assert relative_to_packages(text) == f"at {installed}/over/tiny_engine/core/scheduler.py:3, {shorter}"
    sys.meta_path.insert(0, Overlay("tiny_engine", installed / "over"))
    assert relative_to_packages(text) == f"at tiny_engine/core/scheduler.py:3, {shorter}"
