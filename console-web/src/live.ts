/** The state of the pipeline, kept up to date by server-sent events while the page is visible. */

import { computed, effect, signal } from "@preact/signals";
import { type History, type Pipeline, Refusal, get, loginNeeded } from "./api";

/** `starting`: the server answers, and the pipeline has not recovered yet. */
export type Connection = "connecting" | "live" | "starting" | "lost";

export const pipeline = signal<Pipeline | null>(null);
export const history = signal<History | null>(null);
export const connection = signal<Connection>("connecting");
/** Changes with every commit; pages read results again when it does. */
export const version = computed(() => pipeline.value?.version ?? 0);

const MOST_SAMPLES = 360;
let source: EventSource | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;

/** Connect while the page is visible and no token is missing; a hidden page costs the server nothing. */
export function follow(): void {
  effect(() => {
    if (loginNeeded.value) disconnect();
    else connect();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") {
      disconnect();
      connection.value = "connecting";
    } else if (!loginNeeded.peek()) connect();
  });
}

function disconnect(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function connect(): void {
  if (source !== null || document.visibilityState === "hidden") return;
  const opened = new EventSource("/pipeline/events");
  source = opened;
  opened.addEventListener("pipeline", (event) => {
    connection.value = "live";
    take(JSON.parse((event as MessageEvent<string>).data) as Pipeline);
  });
  opened.addEventListener("error", () => {
    disconnect();
    connection.value = "lost";
    retry = setTimeout(() => void reconnect(), 1000);
  });
}

/** EventSource does not say why it failed, so ask: the token may be missing, or the pipeline may be starting. */
async function reconnect(): Promise<void> {
  try {
    take(await get<Pipeline>("/pipeline"));
  } catch (error) {
    connection.value = error instanceof Refusal && error.status === 503 ? "starting" : "lost";
    if (!loginNeeded.peek()) retry = setTimeout(() => void reconnect(), 1000);
    return;
  }
  connect();
}

function take(now: Pipeline): void {
  const known = history.peek();
  pipeline.value = now;
  if (known === null || now.sample > known.sample + 1 || now.sample < known.sample) void loadHistory();
  else if (now.sample === known.sample + 1) history.value = withSample(known, now);
}

async function loadHistory(): Promise<void> {
  try {
    history.value = await get<History>("/pipeline/history");
  } catch {
    // the next event tries again
  }
}

export function withSample(known: History, now: Pipeline): History {
  const rates: Record<string, number[]> = {};
  const lags: Record<string, number[]> = {};
  for (const node of now.nodes) {
    rates[node.name] = [...(known.rates[node.name] ?? []), node.figures.rate ?? 0].slice(-MOST_SAMPLES);
    lags[node.name] = [...(known.lags[node.name] ?? []), node.figures.lag ?? 0].slice(-MOST_SAMPLES);
  }
  return { sample: now.sample, seconds: known.seconds, rates, lags };
}
