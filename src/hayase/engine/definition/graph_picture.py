"""The graph of a pipeline as a picture (SVG): what is read stands to the left of what reads it.

A stage that is part of a declaration is drawn as that declaration. A node's column is the length of the longest way to it;
within a column, nodes are ordered by the places of what they read. Edges back, as in loops of jobs, go over the same boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from hayase.core.svg_text import element, picture, shortened
from hayase.engine.definition.pipeline_graph import Edge, Graph, Node

__all__ = ["graph_svg"]

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 132.0, 34.0, 48.0, 14.0, 4.0
NAME_LENGTH = 19
"""Characters of a name in a box."""
_COLOURS = {"stream": "#4c78a8", "query": "#54a24b", "table": "#f58518", "job": "#b279a2", "operation": "#e45756"}


def graph_svg(graph: Graph, title: str) -> str:
    """Return the picture of a graph."""
    nodes, edges = _declared(graph)
    columns = _columns([node.name for node in nodes], edges)
    places = _places(nodes, edges, columns)
    width = max((x for x, _ in places.values()), default=0.0) + BOX_WIDTH + MARGIN
    height = max((y for _, y in places.values()), default=0.0) + BOX_HEIGHT + MARGIN
    parts = [_line(places[edge.source], places[edge.target], edge) for edge in edges]
    parts += [_box(node, *places[node.name]) for node in nodes]
    return picture(width, height, parts, title)


def _declared(graph: Graph) -> tuple[list[Node], list[Edge]]:
    """Return the nodes that were declared, and the edges between them."""
    owner = {node.name: node.part_of or node.name for node in graph.nodes}
    kinds = {owner[node.name]: node.kind for node in graph.nodes}
    nodes = [Node(name, kind) for name, kind in kinds.items()]
    edges = dict.fromkeys(Edge(owner[edge.source], owner[edge.target], edge.kind) for edge in graph.edges)
    return nodes, [edge for edge in edges if edge.source != edge.target]


def _columns(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the column of each node. In a loop, the way stops growing when it is longer than there are nodes."""
    columns = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for edge in edges:
            wanted = columns[edge.source] + 1
            if columns[edge.target] < wanted < len(names):
                columns[edge.target], moved = wanted, True
        if not moved:
            break
    used = sorted(set(columns.values()))  # a loop leaves columns empty
    return {name: used.index(column) for name, column in columns.items()}


def _places(nodes: Sequence[Node], edges: Sequence[Edge], columns: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return the upper left corner of each box."""
    heights: dict[str, float] = {}
    places: dict[str, tuple[float, float]] = {}
    for column in sorted(set(columns.values())):
        members = [node.name for node in nodes if columns[node.name] == column]
        read = {
            name: [heights[edge.source] for edge in edges if edge.target == name and edge.source in heights]
            for name in members
        }
        members.sort(key=lambda name: sum(read[name]) / len(read[name]) if read[name] else 0.0)
        for row, name in enumerate(members):
            heights[name] = float(row)
            places[name] = (MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y))
    return places


def _box(node: Node, x: float, y: float) -> str:
    colour = _COLOURS[node.kind]
    shape = element(
        "rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=5, fill=colour, fill_opacity=0.18, stroke=colour
    )
    name = element("text", shortened(node.name, NAME_LENGTH), x=x + 8, y=y + 15, font_weight="bold")
    kind = element("text", node.kind, x=x + 8, y=y + 28, fill_opacity=0.7, font_size="9px")
    return element("g", element("title", escape(f"{node.kind} {node.name}")) + shape + name + kind)


def _line(source: tuple[float, float], target: tuple[float, float], edge: Edge) -> str:
    """Return a curve from the right side of a box to the left side of another; a look-up is dashed."""
    x1, y1 = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT / 2
    x2, y2 = target[0], target[1] + BOX_HEIGHT / 2
    bend = GAP_X * 0.6
    path = f"M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2 - 4:.1f} {y2:.1f}"
    tip = f"M{x2 - 6:.1f} {y2 - 3:.1f} L{x2:.1f} {y2:.1f} L{x2 - 6:.1f} {y2 + 3:.1f}"
    dashes = {"stroke_dasharray": "4 3"} if edge.kind == "looks up" else {}
    line = element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=0.5, **dashes)
    return line + element("path", d=tip, fill="none", stroke="currentColor", stroke_opacity=0.5)
