/** The governor: its dial with its meaning in words, and the loads and shares of its queues over the last hour. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type LaneFigures, type QueueFigures, get, patch } from "../api";
import { Confirmation } from "../confirmation";
import { Exact } from "../exact_json";
import { compact, duration, plural, rate, whole } from "../format";
import { LineChart } from "../line_chart";
import { pipeline } from "../live";
import { messageOf, useLoaded } from "../loading";
import { type Governor, type LoadHistory, type QueueHistory, dialWords, loadText, queueName, withLoads } from "../operations_api";
import { LongTable, Panel, Trouble } from "../parts";

const DRAWN = 6;
const LANES: Record<string, string> = { main: "Queries, jobs and tables", operations: "Operations" };

export function GovernorPanel({ changes, onChange }: { changes: number; onChange: () => void }) {
  const definition = pipeline.value?.definition;
  const loaded = useLoaded((abort) => get<Governor>("/governor", {}, abort), [definition, changes]);
  const history = useLoadHistory();
  const lanes = pipeline.value?.governor ?? [];
  const governor = loaded.value.value;
  return (
    <>
      <Panel title="Governor" aside={governor && <span class="quiet">policy {governor.policy}; it decides how much each queue may give to the next batch</span>}>
        <Trouble text={loaded.value.trouble} />
        {governor && <Dial governor={governor} lanes={lanes} onChange={onChange} />}
      </Panel>
      {lanes.map((lane) => (
        <LanePanel key={lane.lane} lane={lane} history={history} />
      ))}
    </>
  );
}

/** Loads and shares of the last hour: asked for once, then continued by the events of the pipeline. */
function useLoadHistory(): LoadHistory | null {
  const history = useSignal<LoadHistory | null>(null);
  const now = pipeline.value;
  useEffect(() => {
    if (now === null) return;
    const known = history.peek();
    if (known !== null && now.sample === known.sample + 1) history.value = withLoads(known, now);
    else if (known === null || now.sample !== known.sample) {
      get<LoadHistory>("/governor/history").then((answer) => (history.value = answer), () => undefined);
    }
  }, [now?.sample]);
  return history.value;
}

// ---------------------------------------------------------------------------------------------------- the dial

function Dial({ governor, lanes, onChange }: { governor: Governor; lanes: LaneFigures[]; onChange: () => void }) {
  const moved = useSignal<number | null>(null);
  const asked = useSignal<{ u: number | null; shown: number } | null>(null);
  const report = useSignal<string | null>(null);
  const trouble = useSignal<string | null>(null);
  const [present, declared] = [plain(governor.u), plain(governor.declared_u)];
  if (present === null) return <p class="empty">The policy {governor.policy} has no dial; als, asc and informed have one.</p>;
  const u = moved.value ?? present;
  const set = async (value: number | null) => {
    report.value = trouble.value = null;
    try {
      const made = await patch<{ u: number; version: number; takes_effect: string }>("/governor", JSON.stringify({ u: value }));
      report.value = `u is ${plain(made.u)}: version ${made.version}, which takes effect ${made.takes_effect}.`;
      moved.value = null;
      onChange();
    } catch (error) {
      trouble.value = messageOf(error);
    }
  };
  const used = lanes.filter((lane) => lane.u !== null).map((lane) => `${lane.lane} ${lane.u}`);
  return (
    <div class="dial">
      <div class="slider">
        <label class="above">
          Dial u: <b>{u}</b> {moved.value !== null && moved.value !== present && <span class="quiet">(now {present})</span>}
          <input type="range" min={0} max={0.99} step={0.01} value={u} aria-valuetext={`${u}. ${dialWords(governor.policy, u)}`} onInput={(event) => (moved.value = Number(event.currentTarget.value))} />
          <span class="ends quiet"><span>0: look all the time</span><span>near 1: save polls</span></span>
        </label>
        <button class="primary" disabled={moved.value === null || moved.value === present} onClick={() => (asked.value = { u, shown: u })}>Set u</button>
        {governor.by === "command" && declared !== null && <button onClick={() => (asked.value = { u: null, shown: declared })}>As the file says: {declared}</button>}
      </div>
      <p>{dialWords(governor.policy, u)}</p>
      <p class="quiet">
        Set by {governor.by === "command" ? `command; the file says ${declared}` : "the pipeline file, or its default"}.
        {used.length > 0 && <> The lanes use it: {used.join(", ")}.</>} {!governor.in_effect && <span class="tag tag-open">from the next batch on</span>}
      </p>
      <div class="result" role="status">{report.value && <p class="good">{report.value}</p>}</div>
      <Trouble text={trouble.value} />
      {asked.value !== null && (
        <Confirmation title={`Set u to ${asked.value.shown}?`} action={`Set u to ${asked.value.shown}`} onConfirm={() => void set(asked.peek()!.u)} onClose={() => (asked.value = null)}>
          <p>{dialWords(governor.policy, asked.value.shown)}</p>
          <p>All lanes adopt it at their next batch and keep the loads that they have measured. No results change, only how often queues are looked at.</p>
          <p>{asked.value.u === null ? "The pipeline file decides again." : "It holds until the pipeline file says something else of the governor."}</p>
        </Confirmation>
      )}
    </div>
  );
}

/** A number with all its digits as a plain one. */
function plain(value: number | Exact | null): number | null {
  return value instanceof Exact ? Number(value.text) : value;
}

// ---------------------------------------------------------------------------------------------------- loads and shares

function LanePanel({ lane, history }: { lane: LaneFigures; history: LoadHistory | null }) {
  const queues = (history?.queues ?? []).filter((queue) => queue.lane === lane.lane);
  const drawn = lane.queues.slice(0, DRAWN).map((queue) => ({ queue, samples: queues.find((each) => sameQueue(each, queue)) }));
  const series = (pick: (samples: QueueHistory) => number[]) => drawn.map(({ queue, samples }) => ({ name: queueName(queue), values: samples === undefined ? [] : pick(samples) }));
  const behind = lane.load > lane.slots;
  return (
    <Panel
      title={<>{LANES[lane.lane] ?? lane.lane} <span class="quiet">lane {lane.lane}</span></>}
      aside={
        <span class={behind ? "warn" : "quiet"}>
          work for {loadText(lane.load)} of {plural(lane.slots, "worker")}{behind ? ": queues grow" : ""} · {Math.round(lane.empty * 100)}% of the polls found nothing
        </span>
      }
    >
      <div class="halves">
        <LineChart title="Load: workers that each queue keeps busy" series={series((samples) => samples.loads)} seconds={history?.seconds ?? 10} text={loadText} />
        <LineChart title="Share of the work that the lane did" series={series((samples) => samples.shares)} seconds={history?.seconds ?? 10} top={1} text={(value) => `${Math.round(value * 100)}%`} />
      </div>
      <LongTable
        label={`Queues of the lane ${lane.lane}`}
        columns={[
          { name: "queue", value: (queue: QueueFigures) => queueName(queue) },
          { name: "load", number: true, value: (queue) => loadText(queue.load) },
          { name: "share", number: true, value: (queue) => `${Math.round(queue.share * 100)}%` },
          { name: "arrive", number: true, value: (queue) => rate(queue.rate) },
          { name: "time of a record", number: true, value: (queue) => serviceText(queue.service) },
          { name: "wait", number: true, value: (queue) => compact(queue.waiting) },
        ]}
        rows={lane.queues}
        keyOf={(queue) => queueName(queue)}
        empty="no queues"
      />
      {lane.more > 0 && <p class="quiet">and {whole(lane.more)} more that have less to do</p>}
    </Panel>
  );
}

function sameQueue(one: { stage: string; stream: string }, other: { stage: string; stream: string }): boolean {
  return one.stage === other.stage && one.stream === other.stream;
}

function serviceText(seconds: number): string {
  return seconds > 0 && seconds < 0.001 ? `${Number((seconds * 1e6).toPrecision(2))} µs` : duration(seconds);
}
