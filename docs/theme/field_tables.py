"""Writes the tables of fields in docs/reference.md from the field tables of declarations: `python docs/theme/field_tables.py`."""

from __future__ import annotations

import re
from pathlib import Path

from hayase.core import connector_fields as connectors
from hayase.core import declaration_fields as tables
from hayase.core.declaration_fields import Field, FieldTable

PAGE = Path(__file__).parent.parent / "reference.md"
_PART = re.compile(r"(?<=<!-- fields: begin -->\n).*(?=<!-- fields: end -->)", re.DOTALL)
_SECTIONS = (
    ("The file", tables.PIPELINE, "The other keys are the sections: `streams`, `queries`, `aggregates`, `functions`, "
     "`tables`, `jobs`, `operations`, `outputs`, `governor`, `rules`."),
    ("`streams: NAME:`", FieldTable((*tables.STREAM, *connectors.STREAM_SOURCE)), ""),
    ("`retention` of a stream", tables.RETENTION, ""),
    ("`functions: NAME:`", tables.FUNCTION, "A function has `function` or `sql`. `NAME: module:function` is short for "
     "`NAME: {function: module:function}`. See [Your own functions](queries.md#your-own-functions)."),
    ("`tables: NAME:`", tables.TABLE, ""),
    ("`jobs: NAME:`", tables.JOB, ""),
    ("`steps` of a job", tables.STEP, "A step begins with `map`, `reduce` or `merge` and its function, as `module:function`; "
     "a reduce may name aggregates instead."),
    ("`operations: NAME:`", tables.OPERATION, "`hayase ops add` and `hayase ops update` have an option for each field; "
     "`POST` and `PATCH /operations` take all but `files`."),
    *((f"`from: {kind}:` of a stream", fields, "") for kind, fields in connectors.SOURCES.items()),
    ("`outputs: NAME:`", connectors.OUTPUT, "See [Sources and outputs](connectors.md)."),
    *((f"`to: {kind}:` of an output", fields, "") for kind, fields in connectors.OUTPUTS.items()),
    ("`governor`", tables.GOVERNOR, "Further keys are options of the policy: see [Governor](governor.md)."),
)  # fmt: skip


def with_fields(page: str) -> str:
    """The page with the tables of fields as they are now."""
    text = "".join(f"\n### {title}\n\n{_table(fields)}{_note(note)}" for title, fields, note in _SECTIONS)
    return _PART.sub(lambda _: f"{text}\n", page)


def _note(text: str) -> str:
    return f"\n{text}\n" if text else ""


def _table(fields: FieldTable) -> str:
    rows = [f"| `{field.name}` | {field.kind.name} | {_default(field)} | {_meaning(field)} |\n" for field in fields]
    return "| field | value | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _default(field: Field) -> str:
    if field.required:
        return "required"
    return "" if field.default in (None, [], {}) else f"`{str(field.default).replace('False', 'false')}`"


def _meaning(field: Field) -> str:
    only = f" Only in a {' or a '.join(field.only)}." if field.only else ""
    limits = f" {field.at_least} to {field.at_most}." if field.at_most else ""
    return field.help.replace("*", r"\*").replace("|", r"\|") + limits + only


if __name__ == "__main__":
    PAGE.write_text(with_fields(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
