"""What `hayase check` says about PostgreSQL, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from hayase import Pipeline, Postgres
from hayase.core.connector_data import declared_output, declared_source, output_data, source_data
from hayase.core.errors import DeclarationError

SOURCE = {"dsn_env": "SHOP_DSN", "table": "public.users"}


def test_options_and_their_plain_data() -> None:
    source = declared_source("users", {"postgres": {**SOURCE, "mode": "poll", "column": "id", "every": "5 s"}})
    assert source.values["every"] == 5_000_000
    assert declared_source("users", source_data(source)) == source
    output = declared_output("mart", {"reads": "q", "to": {"postgres": {**SOURCE, "key": ["a", "b"]}}})
    assert (output.values["mode"], output.values["key"]) == ("mirror", ("a", "b"))
    assert declared_output("mart", output_data(output)) == output
    assert Postgres(dsn_env="SHOP_DSN", table="public.users").data == {"postgres": SOURCE}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "users"}, "no connection string"),
        ({**SOURCE, "dsn_file": "dsn"}, "keep one of the two"),
        ({**SOURCE, "dsn": "postgresql://shop:secret@host/db"}, "must not stand in a pipeline"),
        ({**SOURCE, "table": 'users"; drop table x'}, "is not the name of a table"),
        ({**SOURCE, "table": "a.b.c"}, "is not the name of a table"),
        ({**SOURCE, "mode": "poll"}, "the mode poll without a column"),
        ({**SOURCE, "column": "id"}, "a column without the mode poll"),
        ({**SOURCE, "mode": "poll", "column": "id", "slot": "s"}, "a slot with the mode poll"),
        ({**SOURCE, "slot": "My-Slot"}, '"My-Slot" is not the name of a slot'),
        ({**SOURCE, "mode": "poll", "column": "id", "every": 0}, "every is not above 0"),
    ],
)
def test_mistakes_of_a_source(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words) as caught:
        declared_source("users", {"postgres": options})
    assert "secret@" not in str(caught.value)


def test_a_history_has_no_key() -> None:
    options = {**SOURCE, "mode": "history", "key": "user"}
    with pytest.raises(DeclarationError, match="a key with the mode history"):
        declared_output("mart", {"reads": "q", "to": {"postgres": options}})


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        (None, {}, "does not say which column has their sign"),
        ("op", {"mode": "poll", "column": "id"}, "its source polls rows"),
    ],
)
def test_replication_gives_changes_and_polling_gives_rows(
    tmp_path: Any, changes: str | None, options: dict[str, str], words: str
) -> None:
    pipeline, source = Pipeline("shop", home=tmp_path / "home"), Postgres(**SOURCE, **options)
    with pytest.raises(DeclarationError, match=words):
        pipeline.stream("users", "op string, at timestamp, id bigint", time="at", changes=changes, source=source)
