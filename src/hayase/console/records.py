"""Draws records as a table, and dead letters with their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["Columns", "cell_text", "change_table", "dead_letters", "fit_widths", "record_table"]

Record = Mapping[str, Any]

_LEAST = 6


class Columns:
    """The columns of a table of records; the first records decide their widths, so that later pages are aligned with them."""

    def __init__(self, names: Sequence[str], records: Sequence[Record], offsets: int, width: int, *, spare: int = 0):
        """`offsets` is the greatest offset; `spare` widens columns, where there is room, for longer values that may follow."""
        wanted = [max([len(name), *(len(cell_text(record[name])) for record in records)]) for name in names]
        self.names = tuple(names)
        self.offset = len(str(max(offsets, 1)))
        room = width - self.offset - 2 - 2 * len(names)
        more = max(0, min(spare, (room - sum(wanted)) // max(len(names), 1)))
        self.widths = fit_widths([length + more for length in wanted], room)


def fit_widths(wanted: Sequence[int], room: int) -> list[int]:
    """Reduce widths to fit `room`, the widest first, none below a few characters.

    >>> fit_widths([4, 30, 10], 30)
    [4, 16, 10]
    """
    widths = list(wanted)
    while sum(widths) > room and max(widths) > _LEAST:
        widest = max(widths)
        second = max((width for width in widths if width < widest), default=_LEAST)
        count = widths.count(widest)
        cut = min(widest - max(second, _LEAST), -(-(sum(widths) - room) // count))
        widths = [width - max(cut, 1) if width == widest else width for width in widths]
    return widths


def record_table(columns: Columns, first: int, records: Iterable[Record], *, header: bool) -> RenderableType:
    """Draw records from offset `first` on, one per line; longer values end in an ellipsis."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_header=header,
                  header_style="dim", show_edge=False)  # fmt: skip
    table.add_column("#", justify="right", style="dim", no_wrap=True, width=columns.offset)
    for name, width in zip(columns.names, columns.widths):
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=width)
    for at, record in enumerate(records, first):
        table.add_row(str(at), *(_styled(record[name]) for name in columns.names))
    return table


def change_table(columns: Columns, sign: str, changes: Iterable[Record], *, header: bool) -> RenderableType:
    """Draw changes, one per line: "+" or "-", which is in the column `sign`, then the columns, of which the first is the time."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_header=header,
                  header_style="dim", show_edge=False)  # fmt: skip
    table.add_column("", no_wrap=True, width=1)
    for name, width in zip(columns.names, columns.widths):
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=width)
    for change in changes:
        cells = (_styled(change[name]) for name in columns.names)
        table.add_row(change[sign], *cells, style="green" if change[sign] == "+" else "red")
    return table


def dead_letters(letters: Iterable[Record]) -> RenderableType:
    """Draw dead letters: stage and place, reason, and record."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = []
    for letter in letters:
        place = letter["stream"] if letter["offset"] is None else f"{letter['stream']} #{letter['offset']}"
        lines.append(
            Text.assemble((cell_text(letter["time"])[:19], "dim"), "  ", (letter["stage"], "bold"), f" ← {place}")
        )
        lines.append(Text(f"  {letter['reason']}", style="yellow"))
        lines.append(Text(f"  {letter['record']}", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def cell_text(value: object) -> str:
    """Format a value on one line; times without T and without the zone UTC."""
    if value is None:
        return "null"
    if hasattr(value, "isoformat"):
        return str(value).removesuffix("+00:00").replace("T", " ")
    text = value if isinstance(value, str) else str(value)
    return text if text.isprintable() else repr(text)[1:-1]


def _styled(value: object) -> Text:
    from rich.text import Text

    return Text(cell_text(value), style="dim italic" if value is None else "")
