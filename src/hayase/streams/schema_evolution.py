"""The stored declaration of a stream, and which new declaration may replace it.

Written records stay as they are, so columns can only be added, and only nullable ones; they are null in older records.
Settings that do not concern records (slack, retention, ...) may change freely.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, SchemaMismatch
from hayase.core.schemas import field_type
from hayase.streams.log_index import reaches
from hayase.streams.sealed import read_sealed, seal

__all__ = ["DECLARATION", "StoredDeclaration", "reconcile", "stored_declaration", "under"]

_KIND = "declaration"
DECLARATION = "stream.json"
"""The file in a log's directory with the declaration of the stream."""


@dataclass(frozen=True, slots=True)
class StoredDeclaration:
    """The content of stream.json; `mark` identifies the occasion on which the stream was last cleared by its stage, if
    it was."""

    declaration: StreamDeclaration
    mark: str | None = None

    def as_bytes(self) -> bytes:
        """Return the content of stream.json."""
        return seal(_KIND, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    @classmethod
    def from_body(cls, body: bytes) -> StoredDeclaration:
        """Decode the content of stream.json, without the checksum."""
        kept = orjson.loads(body)
        return cls(StreamDeclaration.from_json(kept["declaration"]), kept["mark"])


def stored_declaration(path: Path) -> StoredDeclaration | None:
    """Return the stored declaration in a log's directory; None if there is none, or if the log is just being created."""
    file = path / DECLARATION
    remedy = f"put back a copy from a backup, or run `hayase home repair {path.parent.parent}`, which writes it again"
    for _ in range(2):  # the log may be created between the two checks
        try:
            return StoredDeclaration.from_body(read_sealed(file, _KIND, remedy))
        except FileNotFoundError:
            if not _has_records(path):
                return None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the {_KIND} {file} cannot be read: {error}", remedy) from error
    raise DamagedState(f"the {_KIND} {file} is missing, and its stream has records", remedy)


def _has_records(path: Path) -> bool:
    """Return whether anything was ever appended to a log: files that name records, or say that some were removed."""
    try:
        return any(reaches(name) > 0 for name in os.listdir(path))
    except FileNotFoundError:
        return False


def reconcile(kept: StreamDeclaration, wanted: StreamDeclaration) -> None:
    """Check that a new declaration can replace the stored one; SchemaMismatch lists every reason against it."""
    old, new = kept.arrow_schema, wanted.arrow_schema
    reasons = [f'column "{name}" is missing' for name in old.names if name not in new.names]
    reasons += [
        f'column "{column.name}" is {field_type(new.field(column.name))} and was {field_type(column)}'
        for column in old
        if column.name in new.names and field_type(new.field(column.name)) != field_type(column)
    ]
    reasons += [
        f'column "{column.name}" is not null' + (" and was nullable" if column.name in old.names else " and is new")
        for column in new
        if not column.nullable and (column.name not in old.names or old.field(column.name).nullable)
    ]
    kept_order = [name for name in old.names if name in new.names]
    if kept_order != [name for name in new.names if name in old.names]:
        reasons.append(f"the columns are in another order than {', '.join(kept_order)}")
    reasons += [
        f"{what} is {getattr(wanted, field)} and was {getattr(kept, field)}"
        for what, field in (("the time column", "time"), ("time_unit", "time_unit"), ("the changes column", "changes"))
        if getattr(wanted, field) != getattr(kept, field)
    ]
    if reasons:
        raise SchemaMismatch(
            f'stream "{kept.name}" holds records that its new declaration does not fit: {"; ".join(reasons)}. Nullable '
            f"columns can be added; for anything else declare a stream under a new name, or keep this one as "
            f"({kept.schema})"
        )


def under(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return records of an older declaration in the current schema: missing columns are null."""
    if batch.schema.equals(schema, check_metadata=False):
        return batch
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
