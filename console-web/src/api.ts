/** Requests to the HTTP interface of the pipeline, and the shapes of its answers. */

import { type Json, parseJson } from "./exact_json";
import { signal } from "@preact/signals";

export type Row = Record<string, Json>;
export type NodeKind = "source" | "stream" | "query" | "job" | "operation" | "table" | "output";
export type ConnectorState = "starting" | "running" | "retrying" | "paused" | "stopped";

export interface NodeFigures {
  rate: number | null;
  written_rate: number | null;
  lag: number | null;
  waiting: number | null;
  dead: number | null;
  read: number | null;
  written: number | null;
  batch_seconds: number | null;
  clock: string | null;
  silent_seconds: number | null;
  missed: number | null;
}

/** What a source or an output is doing, without its positions. */
export interface ConnectorFigures {
  role: "sources" | "outputs";
  name: string;
  kind: string;
  target: string;
  state: ConnectorState;
  attempts: number;
  failures: number;
  last_error: string | null;
}

/** The whole status; times are microseconds. */
export interface ConnectorStatus extends ConnectorFigures {
  records: number;
  rate: number;
  lag: number | null;
  error: string | null;
  since: number | null;
  again: number | null;
  failed: number | null;
  positions: Record<string, string>;
  written: number;
}

export interface PipelineNode {
  name: string;
  kind: NodeKind;
  part_of: string | null;
  lane: string | null;
  shares: string[];
  every: string | null;
  connector: ConnectorFigures | null;
  figures: NodeFigures;
}

export interface PipelineEdge {
  source: string;
  target: string;
  kind: "reads" | "looks up" | "moves";
  rate: number | null;
  lag: number | null;
  state: ConnectorState | null;
  attempts: number | null;
}

export interface Notice {
  severity: "error" | "warning";
  subject: string | null;
  text: string;
}

export interface QueueFigures {
  stage: string;
  stream: string;
  rate: number;
  service: number;
  load: number;
  share: number;
  waiting: number;
}

export interface LaneFigures {
  lane: string;
  policy: string;
  u: number | null;
  slots: number;
  load: number;
  empty: number;
  queues: QueueFigures[];
  more: number;
}

export interface Pipeline {
  name: string;
  state: string;
  reason: string | null;
  version: number;
  definition: number;
  committed_at: string | null;
  batch_seconds: number;
  sample: number;
  dead_open: number;
  nodes: PipelineNode[];
  edges: PipelineEdge[];
  problems: Notice[];
  governor: LaneFigures[];
}

export interface History {
  sample: number;
  seconds: number;
  rates: Record<string, number[]>;
  lags: Record<string, number[]>;
}

export interface StageText {
  name: string;
  kind: NodeKind;
  declaration: string;
  explain: string | null;
}

export interface QueryName {
  name: string;
  text: string;
  schema: string;
  kind: "relation" | "stream";
}

export interface Snapshot {
  query: string;
  at: string | number | null;
  rows: Row[];
  next: string | null;
  cursor: string;
}

export interface Lifetime {
  row: Row;
  valid_from: string | number;
  valid_to: string | number | null;
  from_us: number;
  to_us: number | null;
}

export interface Lifetimes {
  query: string;
  start_us: number | null;
  end_us: number | null;
  first_us: number | null;
  final_us: number | null;
  matching: number;
  complete: boolean;
  density: number[];
  rows: Lifetime[];
}

export interface StreamAbout {
  name: string;
  schema: string;
  time: string;
  time_unit: string | null;
  id: string | null;
  first: number;
  next: number;
  latest: string | null;
  finished: boolean;
  slack: string;
  clock: string | null;
  written_at: string | null;
}

export interface Records {
  stream: string;
  next: number;
  records: { offset: number; record: Row }[];
  older: number | null;
}

export interface AppendAnswer {
  accepted: number;
  refused: number;
  first: number | null;
  next: number | null;
  refusals: { record: string; reason: string }[];
}

export interface DeadGroup {
  stage: string;
  stream: string;
  kind: string;
  reason: string;
  letters: number;
  first: number;
  last: number;
  since: string;
  until: string;
}

export interface Letter {
  letter: number;
  time: string;
  stage: string;
  version: string | null;
  stream: string;
  offset: number | null;
  kind: string;
  reason: string;
  record: string;
  attempts: number;
  state: "open" | "replayed" | "dropped";
  settled_at?: string | null;
  replayed?: string | null;
  appended?: number | null;
  again?: number | null;
}

export interface Settled {
  settled: number;
  appended: number;
  unchanged: number;
  again: number;
  late: number;
  before: number;
  left: { reason: string; letters: number }[];
  refusals: { letter: number; reason: string }[];
  next: number | null;
}

export interface TableAbout {
  name: string;
  key: string[];
  columns: { name: string; type: string }[];
  fold_after: string;
  horizon: string;
  keys: number;
  payloads: number;
  bytes: number;
  readable_from: string | null;
  clock: string | null;
}

export interface TableRow {
  key: Json[];
  row: Row;
}

export interface Payloads {
  key: Json[];
  folded: boolean;
  payloads: { column: string; type: string; method: string; time: string; event: Json; update: number; alone: Json }[];
  more: boolean;
}

/** What the server said when it refused a request. */
export class Refusal extends Error {
  constructor(readonly status: number, detail: string) {
    super(detail);
  }
}

/** Whether the server wants the token; then the form for it is shown. */
export const loginNeeded = signal(false);

export function place(...segments: string[]): string {
  return `/${segments.map(encodeURIComponent).join("/")}`;
}

type Parameters = Record<string, string | number | boolean | null | undefined>;

export function address(path: string, parameters: Parameters = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return search ? `${path}?${search}` : path;
}

/** Signals of requests that renew what is shown already. */
export const renewals = new WeakSet<AbortSignal>();
/** Such an answer may be one that the server gives to other pages too, and may wait for it a little; not after a change by this
 * page, which must see it. */
const SHARED = { "Cache-Control": "max-age=2" };
const OWN_CHANGE = 5000;
let changedAt = -Infinity;

export async function get<T>(path: string, parameters: Parameters = {}, abort?: AbortSignal): Promise<T> {
  const isShared = abort !== undefined && renewals.has(abort) && performance.now() > changedAt + OWN_CHANGE;
  return ask<T>(address(path, parameters), { signal: abort ?? null, headers: isShared ? SHARED : {} });
}

export async function post<T>(path: string, body: string, kind = "application/json"): Promise<T> {
  return ask<T>(path, { method: "POST", body, headers: { "Content-Type": kind } });
}

export async function patch<T>(path: string, body: string): Promise<T> {
  return ask<T>(path, { method: "PATCH", body, headers: { "Content-Type": "application/json" } });
}

async function ask<T>(path: string, options: RequestInit): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, "the server cannot be reached");
  }
  const text = await answer.text();
  if (options.method !== undefined) changedAt = performance.now();
  if (answer.status === 401 && path !== "/session") loginNeeded.value = true;
  if (!answer.ok) throw new Refusal(answer.status, detailOf(text) ?? `the server answered ${answer.status}`);
  return (text ? parseJson(text) : undefined) as T;
}

function detailOf(text: string): string | null {
  try {
    return (JSON.parse(text) as { detail?: string }).detail ?? null;
  } catch {
    return null;
  }
}

export async function login(token: string): Promise<void> {
  await post("/session", JSON.stringify({ token }));
  loginNeeded.value = false;
}

export async function logout(): Promise<void> {
  await fetch("/session", { method: "DELETE", credentials: "same-origin" });
  loginNeeded.value = true;
}
