"""What a benchmark's picture shows: titles, axes, series and labels, read from the figure as it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Points = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Graph:
    """One pair of axes: its lines as points by label, its bars by label, the labels of its legend."""

    title: str
    x: str
    y: str
    lines: dict[str, Points]
    bars: dict[str, float]
    legend: list[str]


def saved_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Return a list that receives the graphs of every figure that is saved from now on."""
    from matplotlib.figure import Figure

    graphs: list[Graph] = []
    save = Figure.savefig

    def savefig(figure: Any, path: Path, **options: Any) -> None:
        save(figure, path, **options)
        graphs.extend(_graph(axes) for axes in figure.axes)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return graphs


def _graph(axes: Any) -> Graph:
    legend = axes.get_legend()
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    return Graph(
        title=axes.get_title(),
        x=axes.get_xlabel(),
        y=axes.get_ylabel(),
        lines={line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.get_lines()},
        bars=dict(zip(names, (bar.get_height() for bar in axes.patches))),
        legend=[] if legend is None else [text.get_text() for text in legend.get_texts()],
    )


def is_png(path: Path) -> bool:
    """Whether the file is a PNG picture."""
    return path.read_bytes().startswith(b"\x89PNG\r\n")
