/** Where the nodes of a graph stand, and the paths of its edges: a pipeline, or the plan of a query. */

import { Graph, layout } from "@dagrejs/dagre";

export interface Size {
  width: number;
  height: number;
}

export const NODE: Size = { width: 232, height: 82 };
const MARGIN = 14;
const APART = 138;

interface Named {
  name: string;
}

interface Edge {
  source: string;
  target: string;
}

export interface Placed {
  name: string;
  x: number;
  y: number;
}

export interface Path {
  source: string;
  target: string;
  d: string;
  x: number;
  y: number;
}

export interface Drawing {
  width: number;
  height: number;
  nodes: Placed[];
  paths: Path[];
}

/** The same for graphs of the same shape, whatever their figures. */
export function shapeOf(nodes: Named[], edges: Edge[]): string {
  return JSON.stringify([nodes.map((node) => node.name), edges.map((edge) => [edge.source, edge.target])]);
}

export function draw(nodes: Named[], edges: Edge[], size: Size = NODE, apart: number = APART): Drawing {
  const graph = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: 16, ranksep: apart, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.name, { ...size });
  for (const edge of edges) graph.setEdge(edge.source, edge.target, {});
  layout(graph);
  const placed = nodes.map(({ name }) => {
    const { x, y } = graph.node(name) as { x: number; y: number };
    return { name, x: x - size.width / 2, y: y - size.height / 2 };
  });
  const at = new Map(placed.map((node) => [node.name, node]));
  const entries = entriesOf(edges, at, size);
  const paths = edges.map((edge) => {
    const { source, target } = edge;
    return { source, target, ...pathBetween(at.get(source)!, at.get(target)!, entries.get(edge)!, graph.edge(source, target), size) };
  });
  const about = graph.graph() as { width?: number; height?: number };
  return { width: about.width ?? 0, height: about.height ?? 0, nodes: placed, paths };
}

/** How far below the top of its target each edge enters: edges of one node apart, in the order of their sources. */
function entriesOf(edges: Edge[], at: Map<string, Placed>, size: Size): Map<Edge, number> {
  const entries = new Map<Edge, number>();
  for (const target of new Set(edges.map((edge) => edge.target))) {
    const inside = edges.filter((edge) => edge.target === target).sort((one, other) => at.get(one.source)!.y - at.get(other.source)!.y);
    inside.forEach((edge, number) => entries.set(edge, ((number + 1) / (inside.length + 1)) * size.height));
  }
  return entries;
}

/** A curve from the right side of one node to the left side of another, through the points between. */
function pathBetween(from: Placed, to: Placed, entry: number, edge: unknown, size: Size): { d: string; x: number; y: number } {
  const start = { x: from.x + size.width, y: from.y + size.height / 2 };
  const end = { x: to.x, y: to.y + entry };
  const inner = ((edge as { points?: { x: number; y: number }[] } | undefined)?.points ?? []).slice(1, -1);
  const between = inner.filter((point) => point.x > start.x + 12 && point.x < end.x - 12);
  const points = [start, ...(between.length > 1 ? between : []), end];
  let d = `M${start.x},${start.y}`;
  for (let at = 1; at < points.length; at++) {
    const [one, two] = [points[at - 1]!, points[at]!];
    const middle = (one.x + two.x) / 2;
    d += ` C${middle},${one.y} ${middle},${two.y} ${two.x},${two.y}`;
  }
  return { d, x: end.x - 8, y: end.y };
}
