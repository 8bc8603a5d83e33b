"""JSON documents that commands print, validated by the schemas that `schema` prints."""

import json
from functools import cache
from typing import Any

import jsonschema

from cluster.reports.documents import document_schema


def document_of(name: str, text: str) -> Any:
    """Return the values of a JSON document after validating them by its schema."""
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
    """Return the validation errors of some values by the schema of a document."""
    return [error.message for error in _validator(name).iter_errors(values)]
