"""Json columns: any JSON text is stored so that its value is unchanged, in one form, whichever way it came."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hayase.core.declarations import StreamDeclaration
from hayase.core.numbers import exact_loads
from hayase.streams.file_formats import Format, read_records
from hayase.streams.json_columns import records
from hayase.streams.records import conform, row_texts

STREAM = StreamDeclaration("s", "t bigint, j json", "t", time_unit="s")

numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.builds("{}.{}e{}".format, st.integers(-99, 99), st.text("0123456789", min_size=1), st.integers(-400, 400)),
)
atoms = st.one_of(st.sampled_from(["null", "true", "false"]), numbers, st.text().map(json.dumps))
texts = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{' , '.join(items)}]"),
        st.dictionaries(st.text(max_size=3).map(json.dumps), inner, max_size=4).map(
            lambda fields: "{ " + ", ".join(f"{name} : {value}" for name, value in fields.items()) + "}"
        ),
    ),
    max_leaves=8,
)


class _Number(Fraction):
    pass


def meaning(text: str) -> Any:
    """The value of a JSON text, with exact numbers and the order of keys."""
    return json.loads(
        text,
        parse_int=_Number,
        parse_float=_Number,
        object_pairs_hook=lambda pairs: ("object", list(dict(pairs).items())),
    )


@given(st.lists(texts, min_size=1, max_size=5))
def test_the_value_is_unchanged_and_has_one_form(given: list[str]) -> None:
    lines = "".join(f'{{"t": 1, "j": {text}}}\n' for text in given).encode()
    (chunk,) = read_records(io.BytesIO(lines), Format("ndjson"), STREAM, lambda: 0)
    assert chunk.conformed.refused == ()
    stored = chunk.conformed.rows.column("j").to_pylist()
    for text, kept in zip(given, stored):
        assert (kept is None) == (text == "null")
        assert kept is None or meaning(kept) == meaning(text)
    rows = chunk.conformed.rows
    for again in (
        conform([{"t": 1, "j": exact_loads(text)} for text in given], STREAM, 0),
        conform(pa.table({"t": [1] * len(given), "j": given}), STREAM, 0),
        conform(rows, STREAM, 0),
        conform(records(rows), STREAM, 0),
        conform([exact_loads(text) for text in row_texts(rows)], STREAM, 0),
    ):
        assert again.refused == ()
        assert again.rows.column("j").to_pylist() == stored
