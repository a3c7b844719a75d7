"""The words of CQL, for editors: keywords, windows, stream operators and functions, as the language itself knows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration
from hayase.core.expressions import listed_functions
from hayase.cql.aggregation import FUNCTIONS as AGGREGATES
from hayase.cql.dialect import STREAM_OPERATORS
from hayase.cql.windows_text import WINDOWS

__all__ = ["KEYWORDS", "WINDOWS", "CallableName", "functions"]

KEYWORDS = (
    "select", "from", "where", "group by", "having", "order by", "limit", "qualify", "as", "and", "or", "not", "in", "exists",
    "between", "like", "is null", "is not null", "case", "when", "then", "else", "end", "cast", "distinct", "join", "left join",
    "right join", "full join", "semi join", "anti join", "asof join", "on", "using", "union", "union all", "except", "intersect",
    "with", "over", "partition by", "filter", "interval", "values", "true", "false", "null",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallableName:
    """A function: its name, what it is, and its arguments as people write them, empty if they are not known."""

    name: str
    kind: Literal["aggregate", "scalar", "stream operator", "own"]
    arguments: str = ""


def functions(declaration: PipelineDeclaration) -> Sequence[CallableName]:
    """Return the functions that a query of the pipeline can call: the user's own first."""
    own = [CallableName(function.name, "own", function.arguments or "") for function in declaration.functions]
    own += [CallableName(aggregate.name, "own") for aggregate in declaration.aggregates]
    return (*own, *_built_in())


@lru_cache(maxsize=1)
def _built_in() -> tuple[CallableName, ...]:
    operators = [CallableName(name.capitalize(), "stream operator", "query") for name in STREAM_OPERATORS]
    arguments = dict(listed_functions("aggregate"))
    aggregates = [CallableName(name, "aggregate", arguments.get(name, "")) for name in sorted(AGGREGATES)]
    scalars = [CallableName(name, "scalar", written) for name, written in listed_functions("scalar")]
    return (*operators, *aggregates, *(one for one in scalars if one.name not in AGGREGATES))
