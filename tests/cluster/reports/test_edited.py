"""Lines of a report that name the edited functions that never ran."""

import pytest

from cluster.reports.edited import edited_lines, never_run
from workers.targets import registry
from workers.targets.specstorm import Specstorm
from workers.targets.target import EditedFunctions, RunConfig

CONFIG = RunConfig(engine="edited", engine_path="/src")


class EditedEngine(Specstorm):
    """Specstorm's engine, with an overlay that edits some functions."""

    name = "edited"
    package = "ours"
    functions = EditedFunctions()

    def edited(self, config: RunConfig) -> EditedFunctions:
        return self.functions


@pytest.mark.parametrize(
    ("watched", "compiled", "ran", "lines"),
    [
        ("", "", "", ["edited: no function of /src differs from the installed ours"]),
        ("a", "", "a", ["edited: 1 function, it ran"]),
        ("ab", "", "abc", ["edited: 2 functions, all ran"]),
        ("abc", "", "b", ["edited, never ran: 2 of 3 functions: a, c"]),
        ("abcdefg", "", "", ["edited, never ran: 7 of 7 functions: a, b, c, d, e and 2 more"]),
        ("a", "n", "", ["edited, never ran: 1 of 1 function: a", "edited, compiled, not known to run: n"]),
    ],
)
def test_edited_functions_that_never_ran_are_named(
    watched: str, compiled: str, ran: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._KINDS, "edited", (__name__, "EditedEngine"))
    monkeypatch.setattr(EditedEngine, "functions", EditedFunctions(tuple(watched), tuple(compiled)))
    assert edited_lines(CONFIG, set(ran)) == lines
    assert never_run(CONFIG, set(ran)) == tuple(name for name in watched if name not in ran)


def test_without_sources_nothing_is_said() -> None:
    assert edited_lines(RunConfig(), ()) == []
