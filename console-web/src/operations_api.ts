/** The shapes of answers about operations and the governor, and texts made of them. */

import type { LaneFigures, Pipeline, QueueFigures, Row } from "./api";
import { compactJson, type Json } from "./exact_json";
import { compact } from "./format";

export interface OperationVersion {
  version: number;
  since: string;
  fingerprint: string | null;
  by: "file" | "command";
  changed: string[];
  operation: Record<string, Json> | null;
  code: string | null;
}

export interface Operation extends OperationVersion {
  name: string;
  in_effect: boolean;
}

export interface OperationSources extends OperationVersion {
  name: string;
  files: { path: string; text: string | null }[];
}

export interface TriedWindow {
  records: Row[];
  more_records: number;
  results: Row[];
  more_results: number;
  failure: { kind: string; reason: string; traceback: string } | null;
  seconds: number;
}

export interface Trial {
  schema: string;
  tried: number;
  failed: number;
  untried: number;
  passes: boolean;
  windows: TriedWindow[];
}

export interface Governor {
  version: number;
  policy: string;
  u: number | null;
  declared_u: number | null;
  by: "file" | "command";
  in_effect: boolean;
  lanes: LaneFigures[];
}

export interface QueueHistory {
  lane: string;
  stage: string;
  stream: string;
  loads: number[];
  shares: number[];
}

export interface LoadHistory {
  sample: number;
  seconds: number;
  queues: QueueHistory[];
}

const MOST_SAMPLES = 360;

/** The history with the sample that an event of the pipeline has; queues that are gone are dropped. */
export function withLoads(known: LoadHistory, now: Pick<Pipeline, "sample" | "governor">): LoadHistory {
  const before = new Map(known.queues.map((queue) => [keyOf(queue.lane, queue), queue]));
  const queues = now.governor.flatMap((lane) =>
    lane.queues.map((queue) => {
      const old = before.get(keyOf(lane.lane, queue));
      return {
        lane: lane.lane,
        stage: queue.stage,
        stream: queue.stream,
        loads: [...(old?.loads ?? []), queue.load].slice(-MOST_SAMPLES),
        shares: [...(old?.shares ?? []), queue.share].slice(-MOST_SAMPLES),
      };
    }),
  );
  return { sample: now.sample, seconds: known.seconds, queues };
}

function keyOf(lane: string, queue: { stage: string; stream: string }): string {
  return `${lane}\n${queue.stage}\n${queue.stream}`;
}

export function queueName(queue: Pick<QueueFigures, "stage" | "stream">): string {
  return queue.stage ? `${queue.stage} ← ${queue.stream}` : queue.stream;
}

/** A load, in workers. */
export function loadText(load: number): string {
  return load === 0 ? "0" : load >= 10 ? compact(load) : load >= 0.01 ? load.toFixed(2) : load.toFixed(4);
}

/** An operation as text, to compare versions: its fields, one per line, then its files. */
export function versionText(version: OperationSources): string {
  if (version.operation === null) return "(removed)\n";
  const fields = Object.entries(version.operation).map(([name, value]) => `${name}: ${typeof value === "string" ? value : compactJson(value)}\n`);
  const files = version.files.map((file) => `\n# ---- ${file.path}\n${file.text ?? "(longer than is shown)"}`.replace(/\n*$/, "\n"));
  const none = version.files.length === 0 ? ["\n(its module is installed and has changed since)\n"] : [];
  return [...fields, ...files, ...none].join("");
}

/** What a value of the dial means, in a sentence. */
export function dialWords(policy: string, u: number): string {
  const vain = Math.max(1, Math.round((1 - u) * 100));
  if (u === 0) return policy === "informed" ? "Lanes look for records all the time: nothing waits, and most looks find nothing." : "Workers visit one queue after the other without a rest: nothing waits, and most visits find nothing.";
  const share = policy === "informed" ? `at most about ${vain} of 100 looks find nothing` : `about ${vain} of 100 visits find nothing`;
  if (u < 0.5) return `Eager: ${share}. A first record hardly waits.`;
  if (u < 0.9) return `In between: ${share}.`;
  return `Thrifty: ${share}. A first record after a silence waits a little longer.`;
}
