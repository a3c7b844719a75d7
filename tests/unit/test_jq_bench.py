"""The benchmark of jq at a tiny size: which programs it finds, and that both sides agree. No time is looked at."""

from __future__ import annotations

import pytest
from benchmarks import jq as bench

from hayase.tables.jq_syntax import parsed


@pytest.mark.parametrize("name", bench.EXPRESSIONS)
def test_every_kind_of_expression_runs_in_process_and_equals_libjq(name: str) -> None:
    program = bench.EXPRESSIONS[name]
    assert parsed(program) is not None
    told = bench.rates(program, bench.shop_events(50), 1)
    assert set(told) == {"in process", "libjq"}


def test_programs_are_found_where_rules_are() -> None:
    written = bench.programs_in_rules()
    assert {".user_id", '.type == "purchase"', "{(.time[:10]): .amount}", "0 - .amount", ".country"} <= written
    assert [program for program in written if program.startswith(".") and parsed(program) is None] == []
    assert '.a | split("T") | .[0]' in bench.programs_in_corpus()
