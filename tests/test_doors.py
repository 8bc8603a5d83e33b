"""Doors: what only one module of a room may do, read from the source.

Verifies: that commands and reports print through `cluster.reports.terminal` alone.
Does not verify: what a library prints by itself.
"""

import ast

from tests.test_architecture import files_of, module_of, tree_of

TERMINAL = "cluster.reports.terminal"
# They print before our packages can be imported, are below reports, or are programs that rewrite a checked-in file.
REWRITERS = {"cluster.campaigns.regressions", "cluster.cli.executed"}
PRINTING = {TERMINAL, "cluster.cli.main", "cluster.dispatch.job_server", *REWRITERS}


def calls_of(*names: str) -> set[str]:
    """Return the modules of `cluster` that call a function of some names."""
    return {
        module_of(path)
        for path in files_of("cluster")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in names
    }


def test_only_the_terminal_prints() -> None:
    assert calls_of("print", "echo", "secho", "print_json") == PRINTING
    assert calls_of("Console") == {TERMINAL}
