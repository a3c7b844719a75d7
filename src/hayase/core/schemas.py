"""Converts schemas between Spark DDL and Arrow. `timestamp` is microseconds in UTC, `timestamp_ntz` microseconds without a zone.

The parser is Hayase's own: it reports every mistake of a schema at once, with line and column, and accepts any word as the
name of a column, as Spark does. `ddl` and `arrow_schema` are inverses, except for the nullability of the values of arrays and
maps, which DDL cannot express. Names that differ only in case are the same name, as in Spark and DuckDB.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.errors import DeclarationError, Mistake, suggestion

__all__ = ["JSON", "arrow_schema", "ddl", "empty_rows", "field_type", "is_json", "spark_schema"]

JSON = "json"
"""The type of a column that takes any JSON value. In Arrow it is text, and metadata of the field tell it from a string."""
_JSON_METADATA = {b"hayase:type": b"json"}

_NAMES = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp", pa.timestamp("us"): "timestamp_ntz",
    pa.time64("us"): "time", pa.uint64(): "ubigint",
}  # fmt: skip
_SYNONYMS = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "varchar": "string", "char": "string", "character": "string", "dec": "decimal", "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}  # fmt: skip
_ATOMS = {name: kind for kind, name in _NAMES.items()}
_KNOWN = (*_NAMES.values(), JSON, "decimal(p, s)", "array<...>", "map<..., ...>", "struct<name: ...>")
_RESERVED = re.compile(
    "all|and|anti|any|as|authorization|both|case|cast|check|collate|column|constraint|create|cross|current_date"
    "|current_time|current_timestamp|current_user|distinct|else|end|escape|except|false|fetch|filter|for|foreign|from|full"
    "|grant|group|having|in|inner|intersect|into|is|join|lateral|leading|left|natural|not|null|offset|on|only|or|order"
    "|outer|overlaps|primary|references|right|select|semi|session_user|set|some|table|then|to|trailing|true|union|unique"
    "|unknown|user|using|when|where|with|within",
    re.IGNORECASE,
)
"""Reserved words of standard SQL. `ddl` quotes them for parsers stricter than this one."""
_MAX_DEPTH = 50
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<name>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<mark>[<>(),:])"
)


@lru_cache(maxsize=1024)
def arrow_schema(text: str) -> pa.Schema:
    """Parse Spark DDL into an Arrow schema. Raise DeclarationError with every mistake, with line and column in the text.

    >>> arrow_schema("time timestamp, user_id string not null, `my tags` array<string>").field("user_id")
    pyarrow.Field<user_id: string not null>
    >>> arrow_schema("x foo, y array<int>>")
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:3: column "x": unknown type "foo"; known are: array<...>, bigint, binary, \
boolean, date, decimal(p, s), double, float, int, json, map<..., ...>, smallint, string, struct<name: ...>, time, \
timestamp, timestamp_ntz, tinyint, ubigint
    1:20: column "y": found ">"; after the type comes "not null", a comma or the end
    """
    if not text.strip():
        raise DeclarationError("the schema is empty", 'write it like "time timestamp, amount double"')
    reader = _Reader(text, _tokens(text))
    fields: list[pa.Field] = []
    mistakes: list[Mistake] = []
    seen: set[str] = set()
    while True:
        start = reader.at
        try:
            fields.append(reader.column(seen))
        except _SchemaError as wrong:
            name = reader.tokens[start]
            has_name = name.kind in ("word", "name") and reader.at > start
            mistakes.append(reader.mistake(wrong, f'column "{_unquoted(name)}": ' if has_name else ""))
            reader.skip_column(start)
        if reader.peek().kind == "end":
            break
        reader.at += 1
    if mistakes:
        raise DeclarationError(mistakes)
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _SchemaError(Exception):
    """An unexpected token, with the message and the hint for it."""

    def __init__(self, token: _Token, message: str, hint: str):
        self.token, self.message, self.hint = token, message, hint


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind, word = (match.lastgroup or "", match[0]) if match else ("other", text[at])
        if kind != "space":
            tokens.append(_Token(kind, word, at))
        at += len(word)
    return [*tokens, _Token("end", "the end", at)]


@dataclass(slots=True)
class _Reader:
    """Recursive-descent parser over the tokens of one schema."""

    text: str
    tokens: list[_Token]
    at: int = 0

    def peek(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def accept(self, word: str) -> bool:
        """Take the next token if it is that mark or word. Return whether it is."""
        token = self.peek()
        matches = token.kind in ("word", "mark") and token.text.lower() == word
        self.at += matches
        return matches

    def expect(self, word: str, hint: str) -> None:
        token = self.peek()
        if not self.accept(word):
            raise _SchemaError(token, f"found {_shown(token)}", hint)

    def column(self, seen: set[str]) -> pa.Field:
        field = self.field(seen, 0)
        if self.peek().kind != "end" and self.peek().text != ",":
            raise _SchemaError(
                self.peek(), f"found {_shown(self.peek())}", 'after the type comes "not null", a comma or the end'
            )
        return field

    def field(self, seen: set[str], depth: int) -> pa.Field:
        token = self.peek()
        if token.kind not in ("word", "name") or token.text.isdecimal():
            raise _SchemaError(token, f"found {_shown(token)} where a name should be", _naming_hint(token))
        name = _unquoted(self.take())
        if "\0" in name or not _encodable(name):
            raise _SchemaError(token, "the name holds a character that no column name can hold", "rename the column")
        if name.lower() in seen:
            raise _SchemaError(token, f'the name "{name}" stands twice', "rename one; case makes no difference")
        seen.add(name.lower())
        self.accept(":")
        is_any_json = depth == 0 and self.accept(JSON)
        kind = pa.string() if is_any_json else self.type(depth)
        required = self.accept("not")
        if required:
            self.expect("null", 'write "not null"')
        if self.accept("comment") and self.take().kind != "text":
            raise _SchemaError(
                self.tokens[self.at - 1], "a comment is text in single quotes", "write comment 'what it is'"
            )
        return pa.field(name, kind, not required, _JSON_METADATA if is_any_json else None)

    def type(self, depth: int) -> pa.DataType:
        token = self.take()
        if token.kind != "word":
            raise _SchemaError(token, f"found {_shown(token)} where a type should be", _naming_hint(token))
        if depth > _MAX_DEPTH:
            raise _SchemaError(token, "the type is nested too deep", f"at most {_MAX_DEPTH} levels")
        word = token.text.lower()
        name = _SYNONYMS.get(word, word)
        if name == "decimal":
            return self.decimal(token)
        if name == "string" and word != name and self.accept("("):
            self.number()
            self.expect(")", "write the length like varchar(20)")
        if name in _ATOMS:
            return _ATOMS[name]
        if name in ("array", "map", "struct"):
            self.expect("<", f"write the type like {_KNOWN[-3:][('array', 'map', 'struct').index(name)]}")
            nested_type = self.nested(name, depth + 1)
            self.expect(">", f'close "{name}<" with ">"')
            return nested_type
        if name == JSON:
            raise _SchemaError(
                token, "json is the type of a whole column", "declare the column json; it takes arrays and objects"
            )
        raise _SchemaError(token, f'unknown type "{token.text}"', suggestion(word, _KNOWN) or "")

    def nested(self, name: str, depth: int) -> pa.DataType:
        if name == "array":
            return pa.list_(self.type(depth))
        if name == "map":
            key = self.type(depth)
            self.expect(",", "a map has two types: map<key, value>")
            return pa.map_(key, self.type(depth))
        seen: set[str] = set()
        fields = [self.field(seen, depth)]
        while self.accept(","):
            fields.append(self.field(seen, depth))
        return pa.struct(fields)

    def decimal(self, token: _Token) -> pa.DataType:
        precision, scale = 10, 0
        if self.accept("("):
            precision = self.number()
            scale = self.number() if self.accept(",") else 0
            self.expect(")", "write the type like decimal(10, 2)")
        if not 0 <= scale <= precision <= 38 or precision == 0:
            raise _SchemaError(
                token,
                f"decimal({precision}, {scale}) does not exist",
                "the precision is 1 to 38, the scale at most that",
            )
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        token = self.take()
        if not (token.kind == "word" and token.text.isdecimal() and len(token.text) < 10):
            raise _SchemaError(token, f"found {_shown(token)} where a number should be", "write it like decimal(10, 2)")
        return int(token.text)

    def skip_column(self, start: int) -> None:
        """Move to the comma after the column that begins at `start`, or to the end."""
        self.at, open_marks = start, 0
        while self.peek().kind != "end" and not (self.peek().text == "," and open_marks <= 0):
            open_marks += {"<": 1, "(": 1, ">": -1, ")": -1}.get(self.peek().text, 0)
            self.at += 1

    def mistake(self, wrong: _SchemaError, prefix: str) -> Mistake:
        before = self.text[: wrong.token.start]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return Mistake(prefix + wrong.message, wrong.hint, line=line, column=column)


def _shown(token: _Token) -> str:
    text = token.text if len(token.text) <= 40 else token.text[:40] + "..."
    return text if token.kind in ("end", "name") or text == '"' else f'"{text}"'


def _naming_hint(token: _Token) -> str:
    if token.kind in ("end", "mark"):
        return 'write "name type, name type"'
    return "a name that is not only letters, digits and _ must be in backquotes: `my name`"


def _unquoted(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text


def _encodable(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def empty_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of this schema without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def ddl(schema: pa.Schema) -> str:
    """Return the Spark DDL of an Arrow schema, in one canonical form; `arrow_schema` reads it back.

    >>> ddl(pa.schema([pa.field("t", pa.timestamp("us", tz="UTC")), pa.field("order", pa.int64(), nullable=False)]))
    't timestamp, `order` bigint not null'
    """
    return ", ".join(_field_text(field, " ") for field in schema)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema in types that Spark has: json and time become string, ubigint becomes decimal(20, 0).

    >>> ddl(spark_schema(arrow_schema("a json, b array<ubigint>, c struct<d: time>")))
    'a string, b array<decimal(20, 0)>, c struct<d: string>'
    """
    return pa.schema([pa.field(field.name, _spark_type(field.type), field.nullable) for field in schema])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _spark_type(field.type), field.nullable) for field in kind])
    return kind


def is_json(field: pa.Field) -> bool:
    """Return whether a column takes any JSON value.

    >>> [is_json(field) for field in arrow_schema("a json, b string")]
    [True, False]
    """
    return field.metadata is not None and field.metadata.get(b"hayase:type") == b"json"


def field_type(field: pa.Field) -> str:
    """Return the type of a column as a schema writes it.

    >>> [field_type(field) for field in arrow_schema("a json, b array<long>")]
    ['json', 'array<bigint>']
    """
    return JSON if is_json(field) else _type_text(field.type)


def _field_text(field: pa.Field, between: str) -> str:
    return f"{_quoted(field.name)}{between}{field_type(field)}{'' if field.nullable else ' not null'}"


def _quoted(name: str) -> str:
    if not name:
        raise DeclarationError("a column has no name", "give every column a name")
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not _RESERVED.fullmatch(name)
    return name if plain else "`" + name.replace("`", "``") + "`"


def _type_text(kind: pa.DataType) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_field_text(field, ': ') for field in kind)}>"
    raise DeclarationError(f"a stream cannot hold the Arrow type {kind}", f"known are: {', '.join(_KNOWN)}")
