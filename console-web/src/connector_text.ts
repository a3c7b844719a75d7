/** Sources and outputs in a few words: on nodes, on edges, and when one that fails is tried again. */

import type { PipelineEdge, PipelineNode } from "./api";
import { compact, rate } from "./format";

/** What a node is, and its declared name: a source has that of its stream. */
export function labelOf(node: Pick<PipelineNode, "kind" | "name" | "connector">): string {
  return `${node.kind} ${node.connector?.name ?? node.name}`;
}

/** The foot of a node: the state first, because it may be cut. */
export function connectorSummary(connector: NonNullable<PipelineNode["connector"]>, lag: number | null): string {
  const parts: string[] = [connector.state];
  if (connector.attempts > 0) parts.push(`${compact(connector.attempts)} failed`);
  if (lag) parts.push(`${compact(lag)} wait`);
  return [...parts, connector.target].join(" · ");
}

/** What stands above the edge of a source or an output, and below it: the rate, or another state than running; and what waits. */
export function movesTexts(edge: Pick<PipelineEdge, "state" | "rate" | "lag" | "attempts">): [string, string] {
  const parts: string[] = [];
  if (edge.state !== "running" && edge.state !== null) parts.push(edge.state);
  if (edge.state === "running" && edge.rate) parts.push(rate(edge.rate));
  if (edge.attempts) parts.push(`${compact(edge.attempts)} failed`);
  return [parts.join(" · "), edge.lag ? `${compact(edge.lag)} wait` : ""];
}

/** When the next attempt is made; both times in microseconds. */
export function againText(again: number, now: number): string {
  const seconds = Math.ceil((again - now) / 1e6);
  return seconds > 0 ? `in ${seconds} s` : "now";
}
