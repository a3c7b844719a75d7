"""Sources and outputs as plain data, in the form of a pipeline file, to and from their declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from hayase.core.connector_declarations import OutputDeclaration, SourceDeclaration
from hayase.core.connector_fields import OUTPUT, OUTPUTS, SOURCES
from hayase.core.declaration_fields import FieldTable
from hayase.core.errors import DeclarationError, Mistake, suggestion

__all__ = ["declared_output", "declared_source", "output_data", "source_data"]

_BESIDE = ("delta", "files", "iceberg", "parquet", "python")
"""The kinds with names of files in their options, relative to the pipeline's file."""
_MAPPINGS = ("options", "options_env", "settings")
"""The options that are mappings themselves."""
_SECRETS = ("password", "dsn", "token", "secret")
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_$]{0,62}\.)?[A-Za-z_][A-Za-z0-9_$]{0,62}")
"""A table of PostgreSQL, with or without its schema; the case of letters counts."""
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


def declared_source(stream: str, data: Any, directory: str | None = None) -> SourceDeclaration:
    """Return the source of a stream from its plain data, a kind and its options; DeclarationError carries all mistakes, with the
    option as their subject.

    >>> source = declared_source("orders", {"kafka": {"brokers": "localhost:9092", "topic": "orders"}})
    >>> source.kind, source.values["format"]
    ('kafka', 'json')
    """
    where = f'the source of stream "{stream}"'
    kind, options = _kind(data, SOURCES, where, "from: {kafka: {brokers: ..., topic: ...}}")
    checked = _checked(SOURCES[kind], options, where, _CHECKS.get(("source", kind)))
    return SourceDeclaration(stream, kind, checked, directory if kind in _BESIDE else None)


def declared_output(name: str, data: Mapping[str, Any], directory: str | None = None) -> OutputDeclaration:
    """Return an output from its plain data; mistakes as in `declared_source`.

    >>> to = {"kafka": {"brokers": "localhost:9092", "topic": "alerts", "emit": "upserts", "key": "user"}}
    >>> declared_output("alerts", {"reads": "spree", "to": to}).values["key"]
    ('user',)
    """
    where = f'output "{name}"'
    mistakes = [
        Mistake(f'{where} has no "{field}"', suggestion(str(field), OUTPUT.names), subject=str(field))
        for field in data
        if field not in OUTPUT.names
    ]
    mistakes += [
        Mistake(f"{where} has no {field}", hint, subject=field)
        for field, hint in OUTPUT.required.items()
        if field not in data
    ]
    values, unreadable = OUTPUT.read(data, f" of {where}")
    mistakes += unreadable
    kind, checked = "", tuple[tuple[str, Any], ...]()
    if "to" in data:
        try:
            kind, options = _kind(data["to"], OUTPUTS, where, "to: {kafka: {brokers: ..., topic: ...}}")
            checked = _checked(OUTPUTS[kind], options, where, _CHECKS.get(("output", kind)))
        except DeclarationError as error:
            mistakes += error.mistakes
    if mistakes:
        raise DeclarationError(mistakes)
    return OutputDeclaration(name, values["reads"], kind, checked, directory if kind in _BESIDE else None)


def source_data(source: SourceDeclaration) -> dict[str, Any]:
    """Return the plain data of a source, which `declared_source` takes."""
    return {source.kind: _plain_options(source.options)}


def output_data(output: OutputDeclaration) -> dict[str, Any]:
    """Return the plain data of an output, which `declared_output` takes.

    >>> data = {"reads": "spree", "to": {"kafka": {"brokers": "localhost:9092", "topic": "alerts", "key": ["a", "b"]}}}
    >>> output_data(declared_output("alerts", data)) == data
    True
    """
    return {"reads": output.reads, "to": {output.kind: _plain_options(output.options)}}


def _kind(data: Any, kinds: Mapping[str, FieldTable], where: str, example: str) -> tuple[str, Mapping[str, Any]]:
    """Return the kind and the options of `{kind: options}`."""
    if not isinstance(data, Mapping) or len(data) != 1:
        raise DeclarationError(f"{where} must be one kind with its options", f'write it like "{example}"')
    kind, options = next(iter(data.items()))
    if kind not in kinds:
        raise DeclarationError(f'{where} has the unknown kind "{kind}"', suggestion(str(kind), list(kinds)))
    if not isinstance(options, Mapping):
        raise DeclarationError(f"{kind} of {where} must be a mapping of its options", f'write it like "{example}"')
    return kind, options


def _checked(
    fields: FieldTable,
    options: Mapping[str, Any],
    where: str,
    check: Callable[[Mapping[str, Any]], list[tuple[str, str, str]]] | None,
) -> tuple[tuple[str, Any], ...]:
    """Return the options in canonical form, in the order of their table; DeclarationError carries all mistakes in them."""
    mistakes = [_unknown(str(name), fields, where) for name in options if name not in fields.names]
    mistakes += [
        Mistake(f"{where} has no {name}", hint, subject=name)
        for name, hint in fields.required.items()
        if name not in options
    ]
    values, unreadable = fields.read(options, f" of {where}")
    mistakes += unreadable
    for field in fields:
        allowed = field.kind.schema.get("enum")
        if allowed and field.name in values and values[field.name] not in allowed:
            mistakes.append(
                Mistake(
                    f'{field.name} of {where} is "{values[field.name]}"',
                    f"write one of {', '.join(map(str, allowed))}",
                    subject=field.name,
                )
            )
    for name in values:
        twin = f"{name.removesuffix('_env')}_file"
        if name.endswith("_env") and twin in values:
            mistakes.append(Mistake(f"{where} has {name} and {twin}", "keep one of the two", subject=name))
    if check is not None and not mistakes:
        given = {field.name: values.get(field.name, field.value) for field in fields}
        mistakes += [Mistake(f"{message} in {where}", hint, subject=subject) for subject, message, hint in check(given)]
    if mistakes:
        raise DeclarationError(mistakes)
    return tuple((name, _frozen(value)) for name, value in fields.write(values).items())


def _unknown(name: str, fields: FieldTable, where: str) -> Mistake:
    """The mistake of an option that does not exist; a secret is never quoted."""
    if any(name.lower() == secret or name.lower().endswith(f"_{secret}") for secret in _SECRETS):
        where_to = [field for field in fields.names if field.startswith(name.lower()) and field != name]
        hint = f"say where it stands: {' or '.join(where_to)}" if where_to else "leave it out"
        return Mistake(f'{where} has the secret "{name}", which must not stand in a pipeline', hint, subject=name)
    return Mistake(f'{where} has no option "{name}"', suggestion(name, fields.names), subject=name)


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(one) for one in value)
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _plain_options(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {
        name: (dict(value) if name in _MAPPINGS else list(value)) if isinstance(value, tuple) else value
        for name, value in options
    }


def _kafka_security(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = []
    secret = values["password_env"] or values["password_file"]
    if values["sasl"] and not (values["username"] and secret):
        mistakes.append(
            ("sasl", "sasl needs a name and a password", "give username, and password_env or password_file")
        )
    if not values["sasl"] and (values["username"] or secret):
        mistakes.append(
            ("username", "a name or a password without sasl", "say how they are sent, like sasl: SCRAM-SHA-256")
        )
    if values["tls_ca"] and not values["tls"]:
        mistakes.append(("tls_ca", "tls_ca without tls", "add tls: true"))
    return mistakes


def _kafka_source(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _kafka_security(values)
    if values["format"] == "avro" and not values["registry"]:
        mistakes.append(("registry", "the format avro without a schema registry", "add registry: http://HOST:8081"))
    if values["upserts"] and not values["key_column"]:
        hint = "name the column that gets the key of a message, like key_column: id"
        mistakes.append(("key_column", "upserts without key_column", hint))
    if values["upserts"] and not values["timestamp_column"]:
        hint = "name the time column of the stream: a message that ends a row has no other time than Kafka's"
        mistakes.append(("timestamp_column", "upserts without timestamp_column", hint))
    return mistakes


def _kafka_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _kafka_security(values)
    if values["emit"] == "upserts" and not values["key"]:
        mistakes.append(("key", "upserts without a key", "name its columns, like key: user"))
    return mistakes


def _postgres(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = []
    if not (values["dsn_env"] or values["dsn_file"]):
        mistakes.append(("dsn_env", "no connection string", "say where it stands: dsn_env or dsn_file"))
    if not _TABLE.fullmatch(values["table"]):
        mistakes.append(
            ("table", f'"{values["table"]}" is not the name of a table', "write it like users or public.users")
        )
    return mistakes


def _postgres_source(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _postgres(values)
    polls = values["mode"] == "poll"
    if polls and not values["column"]:
        mistakes.append(("column", "the mode poll without a column", "name one that only grows, like column: id"))
    if not polls and values["column"]:
        mistakes.append(("column", "a column without the mode poll", "leave it out, or add mode: poll"))
    for option in ("slot", "publication"):
        if values[option] and polls:
            mistakes.append((option, f"a {option} with the mode poll", "leave it out"))
        elif values[option] and not _SLOT.fullmatch(values[option]):
            mistakes.append((option, f'"{values[option]}" is not the name of a {option}', "use a-z, 0-9 and _"))
    if values["every"] <= 0:
        mistakes.append(("every", "every is not above 0", "write it like 1 second"))
    return mistakes


def _postgres_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _postgres(values)
    if values["mode"] == "history" and values["key"]:
        mistakes.append(("key", "a key with the mode history", "leave it out: each row has a row_id of its own"))
    return mistakes


def _files_source(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _path_mistakes(values["path"])
    if values["watch"] < 100_000:
        mistakes.append(("watch", "watch is less than 100 ms", "write it like 10 seconds"))
    if not values["header"] and values["format"] not in (None, "csv"):
        mistakes.append(("header", f"header with the format {values['format']}", "leave it out: only CSV has one"))
    return mistakes


def _spark_source(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = []
    for field in ("options", "options_env", "settings"):
        if not isinstance(values[field], Mapping):
            return [(field, f"{field} is not a mapping", "write it like {name: value}")]
    for name in values["options"]:
        if any(secret in str(name).lower() for secret in ("password", "secret", "token")):
            hint = "name a variable of the environment in options_env"
            mistakes.append(("options", f'the secret "{name}", which must not stand in a pipeline', hint))
    return mistakes


def _lake_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _path_mistakes(values["path"]) if values["path"] is not None else []
    if values["path"] is not None and any(mark in values["path"] for mark in "*?["):
        mistakes.append(("path", "a pattern as the path", "give a directory"))
    return mistakes


def _delta_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _lake_output(values)
    if (values["emit"] == "mirror") != bool(values["key"]):
        hint = (
            "name its columns, like key: user" if values["emit"] == "mirror" else "leave it out, or write emit: mirror"
        )
        mistakes.append(("key", "a mirror without a key, or a key without a mirror", hint))
    return mistakes


def _iceberg_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    mistakes = _lake_output(values)
    if bool(values["catalog"]) == bool(values["path"]):
        mistakes.append(("path", "both or neither of catalog and path", "give one of the two"))
    if values["table"].count(".") != 1 or not all(values["table"].split(".")):
        mistakes.append(("table", f'the table "{values["table"]}"', "write it like NAMESPACE.NAME"))
    return mistakes


def _webhook_output(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    url = urlsplit(values["url"])
    if url.scheme not in ("http", "https") or not url.hostname:
        return [("url", f'the url "{values["url"]}"', "write it like https://host/path")]
    if url.username or url.password:
        return [("url", "a name or a password in the url", "give a token by token_env or token_file")]
    if not 1 <= values["most"] <= 20_000:
        return [("most", f"most is {values['most']}", "write a number from 1 to 20000")]
    has_token = values["token_env"] or values["token_file"]
    if has_token and url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        return [("url", "a token that would be sent without encryption", "use https")]
    return []


def _path_mistakes(path: str) -> list[tuple[str, str, str]]:
    scheme, colon, rest = path.partition("://")
    if not path or (colon and not rest.strip("/")):
        return [("path", "an empty path", "write it like logs/*.csv or s3://bucket/logs/*.csv")]
    if colon and scheme not in ("s3", "gs", "az"):
        return [("path", f'the unknown scheme "{scheme}" of path', "known are s3, gs and az; or give a local path")]
    return []


_CHECKS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], list[tuple[str, str, str]]]] = {
    ("source", "files"): _files_source,
    ("source", "kafka"): _kafka_source,
    ("source", "spark"): _spark_source,
    ("output", "delta"): _delta_output,
    ("output", "iceberg"): _iceberg_output,
    ("output", "kafka"): _kafka_output,
    ("output", "postgres"): _postgres_output,
    ("source", "postgres"): _postgres_source,
    ("output", "parquet"): _lake_output,
    ("output", "webhook"): _webhook_output,
}
"""What depends on several options."""
