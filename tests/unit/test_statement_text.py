"""Texts of a prompt and of scripts: where statements end, what Tab offers, and where a mistake is."""

from __future__ import annotations

import pytest

from hayase.cli.sql_completion import completions
from hayase.cli.statement_text import is_complete, pieces
from hayase.console.statement_mistakes import placed, statement_mistake
from hayase.core.errors import HayaseError, UnknownName

COLUMNS = {"totals": ["user", "spend"], "orders": ["time", "user", "amount"], "hayase.stages": ["stage", "read"]}


class TestPieces:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", []),
            (" \n ;; ", []),
            ("select 1", ["select 1"]),
            ("select 1;\nselect 2 ;", ["select 1", "select 2"]),
            ("select ';', \"a;b\" from t; select 2", ["select ';', \"a;b\" from t", "select 2"]),
            ("select 1 -- a; b\n+ 1; select 2", ["select 1 -- a; b\n+ 1", "select 2"]),
            ("select /* ; */ 1; select $$;$$", ["select /* ; */ 1", "select $$;$$"]),
            ("\\d\nselect 1", ["\\d", "select 1"]),
            ("select 1;\\d orders\n", ["select 1", "\\d orders"]),
            ("select 'open ; select 2", ["select 'open ; select 2"]),
        ],
    )
    def test_where_they_end(self, text: str, expected: list[str]) -> None:
        found = list(pieces(text))
        assert [piece.text for piece in found] == expected
        assert all(text[piece.start :].startswith(piece.text) for piece in found)

    @pytest.mark.parametrize(
        "text", ["", "  \n", "select 1;", "select 1;  \n", "select 1; select 2;", "\\d", " \\as_of x"]
    )
    def test_what_can_be_run(self, text: str) -> None:
        assert is_complete(text)

    @pytest.mark.parametrize("text", ["select", "select ';", "select 1 -- ;", "select 1; select", "select /* ;"])
    def test_what_goes_on_in_the_next_line(self, text: str) -> None:
        assert not is_complete(text)


class TestCompletions:
    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ("sel", "", ["SELECT"]),
            ("select * from ", "", ["totals", "orders", "hayase.stages"]),
            ("select * from t", "", ["totals"]),
            ("select * from totals, or", "", ["orders"]),
            ("select * from totals join ", "", ["totals", "orders", "hayase.stages"]),
            ("select am", "", ["amount"]),
            ("select ", " from totals", ["user", "spend"]),
            ("select t.", " from totals t", ["user", "spend"]),
            ("select T.s", " from totals as t, orders o", ["spend"]),
            ("select o.am", " from totals as t, orders o", ["amount"]),
            ("select totals.us", " from totals", ["user"]),
            ("select * from hayase.s", "", ["hayase.stages"]),
            ("select * from totals where ", "", ["user", "spend"]),
            ("select * from totals where us", "", ["user", "USING"]),
            ("\\", "", ["\\d", "\\as_of"]),
            ("\\as", "", ["\\as_of"]),
            ("\\d o", "", ["orders"]),
            ("\\as_of ", "", ["complete", "latest"]),
            ("\\timing o", "", ["on", "off"]),
            ("select nothing_like_it", "", []),
        ],
    )
    def test_what_is_offered(self, before: str, after: str, expected: list[str]) -> None:
        word, offered = completions(before, before + after, COLUMNS, lambda: ["\\d", "\\as_of"])
        assert before.endswith(word)
        assert offered == expected


class TestMistakes:
    def test_an_unknown_relation(self) -> None:
        error = UnknownName("relation", "total", list(COLUMNS))
        sql = "select *\nfrom orders, total"
        assert str(statement_mistake(error, sql)) == '2:14: unknown relation "total"; did you mean "totals"?'

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ('Binder Error: Referenced column "spent" not found in FROM clause!', 'unknown column "spent"; did you mean "spend"?'),
            ('Binder Error: Table "t" does not have a column named "spent"', 'unknown column "spent"; did you mean "spend"?'),
            ('Binder Error: Referenced table "x" not found!', '"x" is not in the FROM clause'),
            ('Parser Error: syntax error at or near "wher"', 'Parser Error: syntax error at or near "wher"'),
        ],
    )  # fmt: skip
    def test_where_it_is(self, message: str, expected: str) -> None:
        sql = "select 1,\n  {} from totals t"
        name = message.rsplit('"', 2)[1] if "spent" in message else message.split('"')[1]
        mistake = statement_mistake(HayaseError(message), sql.format(name), COLUMNS["totals"])
        assert str(mistake).startswith(f"2:3: {expected}")

    def test_in_a_script(self) -> None:
        script = "select 1;\nselect 2; select x"
        mistake = statement_mistake(HayaseError('Referenced column "x" not found'), "select x", ["y"])
        assert placed(mistake, script, script.index("select x")).place == "2:18: "
        elsewhere = statement_mistake(HayaseError("out of memory"), "select x")
        assert placed(elsewhere, script, 9).place == ""
