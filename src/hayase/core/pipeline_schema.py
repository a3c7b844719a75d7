"""The JSON schema (draft 2020-12) of pipeline files, derived from the field tables of declarations.

It describes the shape of a file: sections, fields, required fields, and what a value of each field looks like. It refuses no
file that `pipeline_text` writes. What depends on other parts of a file, such as names of streams, columns and functions, is
left to `hayase check`. The rules of tables are not described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hayase.core.connector_fields import OUTPUT, OUTPUTS, SOURCES, STREAM_SOURCE
from hayase.core.declaration_fields import (
    FUNCTION,
    GOVERNOR,
    JOB,
    OPERATION,
    PIPELINE,
    RETENTION,
    STEP,
    STREAM,
    TABLE,
    Field,
    FieldTable,
)
from hayase.core.declarations import STEP_KINDS
from hayase.core.field_kinds import NAME, NUMBER, TEXT

__all__ = ["pipeline_schema"]


def pipeline_schema(column_types: Iterable[str] = (), policies: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON schema of a pipeline file. The names of column types and of governor policies, if given, are the only
    ones that it accepts.

    >>> schema = pipeline_schema()
    >>> schema["required"], schema["properties"]["buckets"]["maximum"]
    (['pipeline'], 1024)
    """
    text = dict(TEXT.schema)
    aggregates = {"type": "object", "minProperties": 1, "additionalProperties": text}
    column_type = {"enum": list(column_types)} if column_types else text
    columns = {"minProperties": 1, "propertyNames": NAME.schema, "additionalProperties": column_type}
    policy = {"enum": list(policies)} if policies else {}
    rules = {"type": ["string", "object"], "minLength": 1}
    query = {"type": "object", "required": ["cql"], "additionalProperties": False, "properties": {"cql": text}}
    functions = {kind: {"description": f"Function of the {kind}, as module:function.", **text} for kind in STEP_KINDS}
    functions["reduce"] = {
        "description": "Function, as module:function, or aggregates by name.",
        "anyOf": [text, aggregates],
    }
    step = _object(STEP, **functions)
    step["oneOf"] = [{"required": [kind]} for kind in STEP_KINDS]
    step["dependentSchemas"] = {
        field.name: {
            "anyOf": [
                *({"required": [kind]} for kind in field.only),
                {"properties": {field.name: {"const": field.default}}},
            ]
        }
        for field in STEP
        if field.only
    }
    step["dependentRequired"] = {"window": ["every"], "every": ["window"], "merge": ["table"]}
    step["if"] = {"required": ["batches"], "properties": {"batches": {"enum": [True, "true"]}}}
    step["then"] = {"required": ["schema"]}
    steps = {"type": "array", "minItems": 1, "items": step}
    function = _object(FUNCTION)
    function["oneOf"] = [{"required": ["function"]}, {"required": ["sql"]}]
    source = {**_field(STREAM_SOURCE["from"]), **_one_of(SOURCES)}
    sections = {
        "streams": _named("Streams by name.", _object(STREAM, retention=_object(RETENTION), **{"from": source})),
        "queries": _named("Continuous queries by name, in CQL.", {"anyOf": [text, query]}),
        "aggregates": _named("Your own aggregates by name, as module:attribute.", text),
        "functions": _named(
            "Your own functions by name, as module:function or with their fields.", {"anyOf": [text, function]}
        ),
        "tables": _named("Tables by name.", _object(TABLE, columns=columns)),
        "jobs": _named("Jobs by name.", _object(JOB, steps=steps)),
        "operations": _named("Operations by name.", _object(OPERATION)),
        "outputs": _named("Outputs by name: where results go.", _object(OUTPUT, to=_one_of(OUTPUTS))),
        "governor": {
            "description": "How the work is divided; further keys are options of the policy.",
            **_object(GOVERNOR, policy=policy),
            "type": ["object", "null"],
            "additionalProperties": dict(NUMBER.schema),
        },
        "rules": {
            "description": "What events do to tables: a file, relative to this one, the rules themselves, or a list of such.",
            "type": ["string", "object", "array", "null"],
            "minLength": 1,
            "items": rules,
        },
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Hayase pipeline",
        **_object(PIPELINE),
    }
    schema["properties"] |= sections
    return schema


def _object(fields: FieldTable, **special: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping with the fields of a table; `special` adds to the schemas of some, or further properties."""
    properties = {field.name: _field(field) for field in fields}
    properties |= {name: {**properties.get(name, {}), **schema} for name, schema in special.items()}
    required = {"required": list(fields.required)} if fields.required else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _one_of(kinds: Mapping[str, FieldTable]) -> dict[str, Any]:
    """The schema of a mapping with one kind and its options."""
    properties = {kind: _object(fields) for kind, fields in kinds.items()}
    return {"properties": properties, "minProperties": 1, "maxProperties": 1, "additionalProperties": False}


def _field(field: Field) -> dict[str, Any]:
    schema = {"description": field.help, **field.kind.schema}
    limits = {"default": field.default, "minimum": field.at_least, "maximum": field.at_most}
    return schema | {name: value for name, value in limits.items() if value is not None}


def _named(description: str, item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a section: declarations by name, or nothing."""
    names = {"propertyNames": dict(NAME.schema), "additionalProperties": item}
    return {"description": description, "type": ["object", "null"], **names}
