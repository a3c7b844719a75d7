"""The windows of a WINDOW clause, and windows that begin with the name of one: `OVER w`, `OVER (w ORDER BY ...)`.

As in PostgreSQL and DuckDB, a window that extends another one takes its partition, and its order if it has none of its own; the
other one has no frame then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sqlglot import Token, TokenType, exp

from hayase.core.data_classes import dataclass
from hayase.core.errors import suggestion
from hayase.cql.over_text import named_window, read_frame
from hayase.cql.syntax import OrderItem, Part

__all__ = ["NamedWindows", "OverWindow"]


@dataclass(frozen=True, slots=True)
class OverWindow:
    """The window of a window function: how records are divided, in which order they are, and the frame as written."""

    partition: tuple[Part, ...] = ()
    order: tuple[OrderItem, ...] = ()
    frame: str = ""


class _Reader(Protocol):
    """What converts expressions, and notes mistakes by offset in the text."""

    text: str
    tokens: Sequence[Token]

    def expression(self, node: exp.Expr) -> Part | None: ...

    def order_item(self, node: exp.Expr) -> OrderItem | None: ...

    def part(self, offset: int, text: str) -> Part: ...

    def refuse_at(self, part: Part, message: str, hint: str | None = None) -> None: ...


class NamedWindows:
    """The windows that one SELECT names."""

    def __init__(self, reader: _Reader, select: exp.Expr | None = None):
        self._reader = reader
        self._nodes = {node.name.lower(): node for node in (select.args.get("windows") or () if select else ())}

    def resolve(self, node: exp.Window, frame: str, place: Part) -> OverWindow | None:
        """Return the window of a call with this frame; None if it has mistakes."""
        whole = named_window(place)
        return self._resolve(node, frame, place, whole, ())

    def _resolve(
        self, node: exp.Expr, frame: str, place: Part, whole: bool, through: tuple[str, ...]
    ) -> OverWindow | None:
        reader = self._reader
        order = node.args.get("order")
        items = [reader.order_item(item) for item in order.expressions] if order else []
        keys = [reader.expression(key) for key in node.args.get("partition_by") or ()]
        own = OverWindow(tuple(key for key in keys if key), tuple(item for item in items if item), frame)
        alias = node.args.get("alias")
        if alias is None:
            return own
        name = alias.name.lower()
        definition = self._nodes.get(name)
        if definition is None or name in through:
            hint = suggestion(alias.name, [known.name for known in self._nodes.values()])
            reader.refuse_at(place, f'there is no window "{alias.name}"', hint or f"write WINDOW {alias.name} AS (...)")
            return None
        inner = self._definition(definition)
        base = self._resolve(definition, read_frame(inner), inner, False, (*through, name))
        if base is None or whole:
            return base
        for wrong, what in ((own.partition, "PARTITION BY"), (own.order and base.order, "ORDER BY")):
            if wrong:
                message = f'a window that begins with "{alias.name}" has its {what}, and cannot have another one'
                reader.refuse_at(place, message, "leave one of them out")
                return None
        if base.frame:
            message = f'the window "{alias.name}" has a frame, and cannot be extended'
            reader.refuse_at(place, message, f"write OVER {alias.name}, or write the frame only where it is used")
            return None
        return replace(base, order=own.order or base.order, frame=own.frame)

    def _definition(self, node: exp.Expr) -> Part:
        """Return the text in parentheses after `name AS`."""
        tokens = self._reader.tokens
        at = next(at for at, token in enumerate(tokens) if token.start == node.this.meta["start"])
        first = next(at for at in range(at, len(tokens)) if tokens[at].token_type is TokenType.L_PAREN)
        depth = 0
        for last in range(first, len(tokens)):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[last].token_type, 0)
            if depth == 0:
                break
        start, end = tokens[first].start, tokens[last].end + 1
        return self._reader.part(start, self._reader.text[start:end])
