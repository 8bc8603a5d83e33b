"""Operations that only one module of a package may use, read from the source.

Verifies: commands and reports print through `cluster.reports.terminal` only.
Does not verify: output of libraries.
"""

import ast

from tests.test_architecture import files_of, module_of, tree_of

TERMINAL = "cluster.reports.terminal"
# They print before our packages can be imported, are below reports, or rewrite a checked-in file.
REWRITERS = {"cluster.campaigns.regressions", "cluster.cli.executed"}
PRINTING = {TERMINAL, "cluster.cli.main", "cluster.dispatch.job_server", *REWRITERS}


def calls_of(*names: str) -> set[str]:
    """Return the modules of `cluster` that call a function with one of these names."""
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
