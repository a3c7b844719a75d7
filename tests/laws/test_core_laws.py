"""Laws of the core: whatever is written is read back as it was."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import jsonschema_rs
import pyarrow as pa
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, Retention, StreamDeclaration
from hayase.core.errors import DeclarationError, Mistake
from hayase.core.pipeline_file import pipeline_text, read_pipeline
from hayase.core.pipeline_schema import pipeline_schema
from hayase.core.schemas import arrow_schema, ddl
from hayase.core.sizes import size, size_text
from hayase.core.times import END, UNITS, duration, duration_text, instant, instant_text

FIRST, LAST = instant("0001-01-01T00:00:00Z"), instant("9999-12-31T23:59:59.999999Z")
UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")
KEYWORDS = ("group", "order", "select", "not", "null", "comment", "array", "struct", "timestamp", "time", "2nd", "true")

durations = st.one_of(
    st.integers(0, END - 1), st.builds(int.__mul__, st.integers(0, 1000), st.sampled_from((1000, 10**6, 86400 * 10**6)))
)
sizes = st.one_of(
    st.integers(0, 2**63 - 1), st.builds(int.__mul__, st.integers(0, 1000), st.sampled_from((1000, 1024, 10**9, 2**40)))
)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
column_names = st.one_of(
    st.sampled_from(KEYWORDS),
    st.sampled_from(("a b", "`", "``", "a`b", "größe", "早瀬", "it's", 'a"b', "a,b", "a>b", "\n")),
) | texts.filter(lambda name: name and "\0" not in name)
atoms = st.sampled_from(
    (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
        pa.date32(), UTC_TIMESTAMP, pa.timestamp("us"),
    )
) | st.integers(1, 38).flatmap(lambda p: st.builds(pa.decimal128, st.just(p), st.integers(0, p)))  # fmt: skip

query_texts = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("\n\t\r :#'\"|\x85\u2028"), max_size=60
).filter(str.strip)


def fields(kinds, smallest):
    one = st.builds(pa.field, column_names, kinds, nullable=st.booleans())
    return st.lists(one, min_size=smallest, max_size=3, unique_by=lambda field: field.name.lower())


types = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(pa.list_, inner), st.builds(pa.map_, inner, inner), st.builds(pa.struct, fields(inner, 1))
    ),
    max_leaves=4,
)
SCHEMA = jsonschema_rs.Draft202012Validator(pipeline_schema())
schemas = st.builds(pa.schema, fields(types, 1))
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,12}", fullmatch=True) | st.sampled_from(("on", "No", "null", "yes", "y"))


@st.composite
def streams(draw, name):
    others = draw(fields(types, 0).map(lambda found: [each for each in found if not each.name.startswith("__")]))
    unit = draw(st.sampled_from((None, *UNITS)))
    taken = {each.name.lower() for each in others}
    time = draw(column_names.filter(lambda name: name.lower() not in taken and not name.startswith("__")))
    schema = pa.schema([*others, pa.field(time, pa.int64() if unit else UTC_TIMESTAMP)])
    return StreamDeclaration(
        name,
        ddl(schema),
        time,
        id=draw(st.none() | st.sampled_from(schema.names)),
        time_unit=unit,
        slack=draw(durations),
        max_ahead=draw(st.none() | durations),
        idle_after=draw(st.none() | durations),
        retention=Retention(draw(st.none() | durations), draw(st.none() | sizes)),
    )


@st.composite
def pipelines(draw):
    """Pipelines that a file can hold: their queries have a text."""
    found = draw(st.lists(names, max_size=3, unique_by=str.lower))
    cut = draw(st.integers(0, len(found)))
    return PipelineDeclaration(
        draw(names),
        tuple(draw(streams(name)) for name in found[:cut]),
        tuple(QueryDeclaration(name, draw(query_texts)) for name in found[cut:]),
        draw(st.none() | st.integers(1, 1024)),
    )


def read_back(text):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "pipeline.yaml")
        path.write_bytes(text.encode())
        return read_pipeline(path)


@given(durations)
@settings(deadline=None)
def test_a_duration_is_read_back(microseconds):
    assert duration(duration_text(microseconds)) == microseconds


@given(sizes)
@settings(deadline=None)
def test_a_size_is_read_back(count):
    assert size(size_text(count)) == count


@given(st.integers(FIRST, LAST))
@settings(deadline=None)
def test_an_instant_is_read_back(microseconds):
    assert instant(instant_text(microseconds)) == microseconds


@given(st.lists(st.integers(FIRST, LAST), min_size=2, max_size=2))
@settings(deadline=None)
def test_times_of_equal_precision_sort_as_their_texts(pair):
    whole = [each // 10**6 * 10**6 for each in pair]
    assert sorted(whole) == sorted(whole, key=instant_text)


@given(schemas)
@settings(deadline=None)
def test_a_schema_is_read_back(schema):
    assert arrow_schema(ddl(schema)).equals(schema, check_metadata=True)
    assert ddl(arrow_schema(ddl(schema))) == ddl(schema)


@given(st.text(st.sampled_from("ab`<>(),: \n'int9\\-") | st.characters(), max_size=30))
@settings(deadline=None)
def test_any_text_is_a_schema_or_a_declaration_error(text):
    with suppress(DeclarationError):
        assert arrow_schema(ddl(arrow_schema(text))) == arrow_schema(text)


@given(pipelines())
@settings(max_examples=examples(15), deadline=None)
def test_a_pipeline_is_read_back_from_json_and_from_its_file(pipeline):
    assert PipelineDeclaration.from_json(json.loads(json.dumps(pipeline.as_json()))) == pipeline
    text = pipeline_text(pipeline)
    assert read_back(text).declaration == pipeline
    assert SCHEMA.is_valid(yaml.load(text, Loader=yaml.BaseLoader)), "the JSON schema accepts it too"


@given(query_texts)
@settings(max_examples=examples(15), deadline=None)
def test_every_visible_character_of_a_query_is_found_in_its_file(query):
    text = pipeline_text(PipelineDeclaration("p", queries=(QueryDeclaration("q", query),)))
    file = read_back(text)
    lines = text.split("\n")
    for number, line in enumerate(query.rstrip().split("\n"), 1):
        for column, character in enumerate(line, 1):
            place = file.at("query", "q", Mistake("wrong", line=number, column=column))
            found = lines[place.line - 1][place.column - 1]
            assert character.isspace() or found in (character, "\\")


@given(st.text(st.sampled_from("ab:- \n'\"|>{}[]&*!#%@,?\t") | st.characters(exclude_categories=("Cs",)), max_size=40))
@settings(deadline=None)
def test_any_text_is_a_pipeline_or_a_declaration_error(text):
    with suppress(DeclarationError):
        assert read_back(text).declaration.name
