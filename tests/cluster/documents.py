"""Documents that commands print, held against the schemas that are printed for them."""

import json
from typing import Any

import jsonschema

from cluster.reports.documents import document_schema


def document_of(name: str, text: str) -> Any:
    """Return the values of a document, which must be what its schema allows."""
    values = json.loads(text)
    assert complaints(name, values) == []
    return values


def complaints(name: str, values: object) -> list[str]:
    """Return what the schema of a document says against some values."""
    schema = document_schema(name)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    return [error.message for error in validator(schema).iter_errors(values)]
