"""Documents that commands print, held against the schemas that are printed for them."""

import json
from functools import cache
from typing import Any

import jsonschema

from cluster.reports.documents import document_schema


def document_of(name: str, text: str) -> Any:
    """Return the values of a document, which must be what its schema allows."""
    values = json.loads(text)
    assert complaints(name, values) == []
    return values


@cache
def _validator(name: str) -> Any:
    schema = document_schema(name)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def complaints(name: str, values: object) -> list[str]:
    """Return what the schema of a document says against some values."""
    return [error.message for error in _validator(name).iter_errors(values)]
