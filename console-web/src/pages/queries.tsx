/** A query: its lifetimes over event time, its rows at the present or at the time cursor, and its changes as they come. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { type Lifetimes, type QueryName, type Row, type Snapshot, type StageText, address, get, place } from "../api";
import { parseJson } from "../exact_json";
import { isoText, microseconds, plural, timeText, whole } from "../format";
import { groupColumn } from "../lifetime_lanes";
import { connection, pipeline, version } from "../live";
import { messageOf, useLoaded } from "../loading";
import { Code, LongTable, NameList, Panel, Trouble, jsonColumns } from "../parts";
import { hashOf, route } from "../route";
import { TimelineView } from "../timeline";
import { type Range, within } from "../timeline_view";

export function QueriesPage() {
  const queries = useLoaded((abort) => get<{ queries: QueryName[] }>("/queries", {}, abort), [pipeline.value?.definition]);
  const all = queries.value.value?.queries ?? [];
  const query = all.find((each) => each.name === route.value.name) ?? all[0];
  if (queries.value.value !== null && all.length === 0) return <p class="empty">This pipeline has no queries.</p>;
  return (
    <div class="beside">
      <NameList
        label="Queries"
        names={all.map((each) => ({ name: each.name, note: each.kind }))}
        picked={query?.name ?? null}
        href={(name) => hashOf("queries", name)}
      />
      <div class="stack">
        <Trouble text={queries.value.trouble} />
        {query && <QueryView key={query.name} query={query} />}
      </div>
    </div>
  );
}

const SPANS: [string, number | null][] = [["all", null], ["1 min", 60e6], ["10 min", 600e6], ["1 h", 3600e6], ["1 day", 86_400e6]];

function QueryView({ query }: { query: QueryName }) {
  /** null: the last hour at most, to the present. */
  const range = useSignal<Range | null>(null);
  /** null: the present. */
  const cursor = useSignal<number | null>(null);
  const asked = range.value;
  const settled = useSettled(asked);
  const lifetimes = useLoaded(
    (abort) =>
      get<Lifetimes>(
        place("queries", query.name, "lifetimes"),
        { limit: 1000, bins: 240, ...(settled ? { from: isoText(settled.start), to: isoText(settled.end) } : {}) },
        abort,
      ),
    [settled?.start, settled?.end, asked === null],
    asked === null ? version.value : 0,
  );
  const data = lifetimes.value.value;
  return (
    <>
      <Panel
        title={
          <>
            {query.name} <span class="quiet">{query.kind === "relation" ? "rows appear and disappear" : "a stream of records"}</span>
          </>
        }
        aside={<span class="quiet mono">{query.schema}</span>}
      >
        <QueryText query={query} />
      </Panel>
      <LifetimesPanel query={query} data={data} trouble={lifetimes.value.trouble} range={range} cursor={cursor} />
      <div class="halves">
        <RowsPanel query={query} cursor={cursor.value} />
        <ChangesPanel query={query} />
      </div>
    </>
  );
}

export interface Held<T> {
  value: T;
}

function LifetimesPanel(props: { query: QueryName; data: Lifetimes | null; trouble: string | null; range: Held<Range | null>; cursor: Held<number | null> }) {
  const { query, data, range, cursor } = props;
  const by = useSignal<string | null | undefined>(undefined);
  const names = useMemo(() => Object.keys(data?.rows[0]?.row ?? {}), [data]);
  const isStream = query.kind === "stream";
  if (data !== null && by.peek() === undefined && data.rows.length > 1) by.value = groupColumn(data.rows, names);
  if (data === null || data.start_us === null || data.end_us === null || data.first_us === null || data.final_us === null) {
    return (
      <Panel title="Timeline">
        <Trouble text={props.trouble} />
        {data !== null && <p class="empty">Nothing is final yet.</p>}
      </Panel>
    );
  }
  const bounds = { start: data.first_us, end: Math.max(data.final_us, data.first_us + 10) };
  const shown = range.value ?? { start: data.start_us, end: data.end_us };
  const setRange = (next: Range) => (range.value = within(next, bounds));
  const span = (length: number | null) => setRange(length === null ? bounds : { start: Math.max(bounds.start, bounds.end - length), end: bounds.end });
  const sample = data.rows.length < data.matching ? `${whole(data.rows.length)} of ` : "";
  return (
    <Panel
      class="timeline-panel"
      title="Timeline"
      aside={
        <>
          <span class="quiet">
            {sample}
            {plural(data.matching, isStream ? "record" : "row")}
            {data.complete ? "" : " among the newest records of the range"}
          </span>
          <GroupBy by={by.value ?? null} names={names} pick={(name) => (by.value = name)} />
          <span class="group" role="group" aria-label="Range">
            {SPANS.map(([label, length]) => (
              <button key={label} onClick={() => span(length)}>
                {label}
              </button>
            ))}
            <button class={range.value === null ? "on" : ""} aria-pressed={range.value === null} onClick={() => (range.value = null)}>
              follow
            </button>
          </span>
        </>
      }
    >
      <Trouble text={props.trouble} />
      <TimelineView
        data={data}
        range={shown}
        bounds={bounds}
        cursor={cursor.value}
        by={by.value ?? null}
        isStream={isStream}
        onCursor={(at) => (cursor.value = at)}
        onRange={setRange}
        onAll={() => setRange(bounds)}
      />
      <CursorBar cursor={cursor} bounds={bounds} />
    </Panel>
  );
}

/** The choice of the column by which the rows of a timeline are grouped. */
export function GroupBy({ by, names, pick }: { by: string | null; names: string[]; pick: (name: string | null) => void }) {
  return (
    <label>
      by{" "}
      <select value={by ?? ""} onChange={(event) => pick(event.currentTarget.value || null)} aria-label="Group the rows by">
        <option value="">nothing</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

export function CursorBar({ cursor, bounds }: { cursor: Held<number | null>; bounds: Range }) {
  const wrong = useSignal(false);
  const enter = (text: string) => {
    const at = microseconds(text);
    wrong.value = at === null;
    if (at !== null) cursor.value = Math.min(Math.max(at, bounds.start), bounds.end - 1);
  };
  return (
    <div class="cursor-bar">
      <label>
        as of{" "}
        <input
          class={`mono ${wrong.value ? "wrong" : ""}`}
          size={27}
          value={timeText(isoText(cursor.value ?? bounds.end - 1))}
          onChange={(event) => enter(event.currentTarget.value)}
          aria-label="Instant of the time cursor, UTC"
          aria-invalid={wrong.value}
        />
      </label>
      <button class={cursor.value === null ? "on" : ""} aria-pressed={cursor.value === null} onClick={() => (cursor.value = null)}>
        present
      </button>
      <span class="quiet">drag over the bars to move the cursor, over the axis to pan; Ctrl and wheel zooms. Times are UTC.</span>
    </div>
  );
}

/** The value once it has not changed for a moment. */
function useSettled<T>(value: T): T {
  const settled = useSignal(value);
  useEffect(() => {
    const timer = setTimeout(() => (settled.value = value), 150);
    return () => clearTimeout(timer);
  }, [value]);
  return value === null ? value : settled.value;
}

function QueryText({ query }: { query: QueryName }) {
  const shown = useSignal(false);
  const explained = useSignal<string | null>(null);
  const explain = async () => {
    shown.value = !shown.value;
    if (explained.value !== null) return;
    try {
      explained.value = (await get<StageText>(place("pipeline", "stages", query.name))).explain ?? "";
    } catch (error) {
      explained.value = messageOf(error);
    }
  };
  return (
    <>
      <Code text={dedented(query.text)} label={`Text of ${query.name}`} />
      <button onClick={() => void explain()} aria-expanded={shown.value}>
        {shown.value ? "Hide the plan" : "Explain"}
      </button>{" "}
      <a class="button" href={hashOf("playground", query.name)}>
        Open in the playground
      </a>
      {shown.value && explained.value !== null && <Code text={explained.value.trimEnd()} label="Explanation" />}
    </>
  );
}

export function dedented(text: string): string {
  const lines = text.replace(/^\s*\n/, "").trimEnd().split("\n");
  const indent = Math.min(...lines.filter((line) => line.trim()).map((line) => line.length - line.trimStart().length));
  return lines.map((line) => line.slice(indent)).join("\n");
}

// ---------------------------------------------------------------------------------------------------- rows

function RowsPanel({ query, cursor }: { query: QueryName; cursor: number | null }) {
  const at = useSettled(cursor);
  const more = useSignal<{ of: Snapshot | null; rows: Row[]; next: string | null }>({ of: null, rows: [], next: null });
  const snapshot = useLoaded(
    (abort) => get<Snapshot>(place("queries", query.name), { lifetimes: true, limit: 500, at: at === null ? null : isoText(at) }, abort),
    [at],
    at === null ? version.value : 0,
  );
  const now = snapshot.value.value;
  const tail = more.value.of === now ? more.value : { of: now, rows: [], next: now?.next ?? null };
  const rows = now === null ? [] : [...now.rows, ...tail.rows];
  const names = useMemo(() => Object.keys(rows[0] ?? {}), [rows[0]]);
  const loadMore = async () => {
    if (now === null || tail.next === null) return;
    const page = await get<Snapshot>(place("queries", query.name), { lifetimes: true, limit: 1000, after: tail.next }).catch(() => null);
    if (page !== null && snapshot.peek().value === now) more.value = { of: now, rows: [...tail.rows, ...page.rows], next: page.next };
  };
  return (
    <Panel
      title={cursor === null ? "Rows at present" : "Rows at the cursor"}
      aside={
        <span class="quiet">
          {whole(rows.length)}
          {tail.next === null ? "" : "+"} {rows.length === 1 ? "row" : "rows"}, {typeof now?.at === "string" ? timeText(now.at) : String(now?.at ?? "–")}
        </span>
      }
    >
      <Trouble text={snapshot.value.trouble} />
      <LongTable
        label="Rows"
        columns={jsonColumns(names, (row: Row) => row, rows.slice(0, 50))}
        rows={rows}
        keyOf={(_, place) => place}
        onEnd={() => void loadMore()}
        empty={now === null ? "" : "no rows are valid then"}
      />
    </Panel>
  );
}

// ---------------------------------------------------------------------------------------------------- changes

interface Change {
  id: number;
  time: string | number;
  change: "+" | "-";
  row: Row;
}

const MOST_CHANGES = 1000;

function ChangesPanel({ query }: { query: QueryName }) {
  const changes = useSignal<Change[]>([]);
  const held = useSignal(false);
  const trouble = useSignal<string | null>(null);
  const from = useSignal<string | null>(null);
  const live = connection.value === "live"; // not while the page is hidden, or the server lost
  useEffect(() => {
    if (held.value || !live) return;
    let count = changes.peek()[0]?.id ?? 0;
    let waiting: Change[] = [];
    const source = new EventSource(address(place("queries", query.name, "changes"), { from: from.peek() ?? "now" }));
    const show = setInterval(() => {
      if (waiting.length === 0) return;
      changes.value = [...waiting.reverse(), ...changes.peek()].slice(0, MOST_CHANGES);
      waiting = [];
    }, 250);
    source.addEventListener("change", (event) => {
      const message = event as MessageEvent<string>;
      from.value = message.lastEventId;
      waiting.push({ id: ++count, ...(parseJson(message.data) as unknown as Omit<Change, "id">) });
      if (waiting.length > MOST_CHANGES) waiting.shift();
    });
    source.addEventListener("gone", (event) => {
      trouble.value = (JSON.parse((event as MessageEvent<string>).data) as { detail: string }).detail;
      from.value = null;
      source.close();
    });
    return () => {
      source.close();
      clearInterval(show);
    };
  }, [query.name, held.value, live]);
  const names = useMemo(() => Object.keys(changes.value[0]?.row ?? {}), [changes.value[0]?.row]);
  return (
    <Panel
      title="Changes"
      aside={
        <button aria-pressed={held.value} class={held.value ? "on" : ""} onClick={() => (held.value = !held.value)}>
          {held.value ? "go on" : "pause"}
        </button>
      }
    >
      <Trouble text={trouble.value} />
      <LongTable
        label="Changes"
        columns={[
          { name: "time", value: (each: Change) => <span class="mono">{timeText(String(each.time))}</span> },
          { name: "±", value: (each: Change) => (each.change === "+" ? "+" : "−"), width: "2rem" },
          ...jsonColumns(names, (each: Change) => each.row, changes.value.slice(0, 50)),
        ]}
        rows={changes.value}
        keyOf={(each) => each.id}
        marked={(each) => (each.change === "+" ? "appears" : "disappears")}
        empty="changes are shown from now on, newest first"
      />
    </Panel>
  );
}
