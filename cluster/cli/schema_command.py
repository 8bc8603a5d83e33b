"""Command `schema`: JSON Schema of scenario files and of what `--json` prints."""

import json
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.inputs import InputError
from cluster.reports.documents import DOCUMENTS, SCENARIO, document_schema


def schema(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: list the names.")] = None,
) -> int:
    """Print the JSON Schema of a scenario file, or of the document that a command prints with --json."""
    names = (SCENARIO, *DOCUMENTS)
    if name is None:
        print("\n".join(names))
    elif name in names:
        print(json.dumps(document_schema(name), indent=2, ensure_ascii=False))
    else:
        raise InputError(f"unknown document {name!r}; known are {', '.join(names)}")
    return EXIT_AGREED
