/** Small parts that several pages use. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ConnectorState as State, NodeKind } from "./api";
import { type Json, Exact, cellText } from "./exact_json";

export const KIND_MARKS: Record<NodeKind, string> = { source: "↦", stream: "≋", query: "ƒ", job: "⚙", operation: "λ", table: "▦", output: "⇥" };
const STATE_MARKS: Record<State, string> = { starting: "…", running: "●", retrying: "▲", paused: "‖", stopped: "■" };

export function KindMark({ kind }: { kind: NodeKind }) {
  return (
    <span class={`mark mark-${kind}`} title={kind} aria-label={kind} role="img">
      {KIND_MARKS[kind]}
    </span>
  );
}

/** The state of a source or an output: a word, and a mark that needs no colour. */
export function ConnectorState({ state }: { state: State }) {
  return (
    <span class={`connector-state connector-${state}`}>
      <span aria-hidden="true">{STATE_MARKS[state]}</span> {state}
    </span>
  );
}

/** What went wrong, read out to those who do not see it. */
export function Trouble({ text }: { text: string | null }) {
  return text === null ? null : (
    <p class="trouble" role="alert">
      {text}
    </p>
  );
}

export function Panel(props: { title: ComponentChildren; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      <header class="panel-head">
        <h2>{props.title}</h2>
        {props.aside && <div class="panel-aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  );
}

export function Code({ text, label }: { text: string; label: string }) {
  return (
    <pre class="code" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}

/** The course of a figure over the last hour, as a line with its greatest value. */
export function Sparkline({ values, label, width = 84, height = 20 }: { values: number[]; label: string; width?: number; height?: number }) {
  const top = Math.max(...values, 0);
  const shown = thinned(values, width / 2);
  if (shown.length < 2) return <svg class="spark" width={width} height={height} aria-hidden="true" />;
  const step = width / (shown.length - 1);
  const y = (value: number) => (height - 1.5 - (top ? (value / top) * (height - 3) : 0)).toFixed(1);
  const points = shown.map((value, at) => `${(at * step).toFixed(1)},${y(value)}`).join(" ");
  return (
    <svg class="spark" width={width} height={height} role="img" aria-label={label}>
      <title>{label}</title>
      <polygon points={`0,${height} ${points} ${width},${height}`} />
      <polyline points={points} />
    </svg>
  );
}

/** At most `most` values, each the greatest of its part. */
export function thinned(values: number[], most: number): number[] {
  if (values.length <= most) return values;
  const size = values.length / most;
  return Array.from({ length: Math.floor(most) }, (_, at) =>
    Math.max(...values.slice(Math.floor(at * size), Math.floor((at + 1) * size))),
  );
}

export interface Column<T> {
  name: string;
  value: (row: T) => ComponentChildren;
  number?: boolean;
  width?: string;
}

const ROW = 27;
const SPARE = 10;

/** A table of which only the visible rows are in the document; `onEnd` is called when its end comes into sight. */
export function LongTable<T>(props: {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T, at: number) => string | number;
  onEnd?: (() => void) | undefined;
  onPick?: (row: T) => void;
  picked?: (row: T) => boolean;
  marked?: (row: T) => string;
  empty?: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const look = () => {
    const element = box.current;
    if (element === null) return;
    setView({ top: element.scrollTop, height: element.clientHeight });
  };
  useEffect(() => {
    const observer = new ResizeObserver(look);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
  const last = Math.min(props.rows.length, Math.ceil((view.top + view.height) / ROW) + SPARE);
  const nearEnd = last >= props.rows.length - SPARE;
  useEffect(() => {
    if (nearEnd) props.onEnd?.();
  }, [nearEnd, props.rows.length]);
  const shown = props.rows.slice(first, last);
  return (
    <div class="long" ref={box} onScroll={look} tabIndex={0} role="region" aria-label={props.label}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th key={column.name} scope="col" class={column.number ? "number" : ""} style={column.width ? { width: column.width } : {}}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: `${first * ROW}px` }} />}
          {shown.map((row, at) => (
            <tr
              key={props.keyOf(row, first + at)}
              class={`${props.onPick ? "pickable" : ""} ${props.picked?.(row) ? "picked" : ""} ${props.marked?.(row) ?? ""}`}
              onClick={props.onPick && (() => props.onPick!(row))}
            >
              {props.columns.map((column) => (
                <td key={column.name} class={column.number ? "number" : ""}>
                  {column.value(row)}
                </td>
              ))}
            </tr>
          ))}
          {last < props.rows.length && <tr aria-hidden="true" style={{ height: `${(props.rows.length - last) * ROW}px` }} />}
        </tbody>
      </table>
      {props.rows.length === 0 && <p class="empty">{props.empty ?? "nothing"}</p>}
    </div>
  );
}

/** The columns of rows of JSON, numbers to the right. */
export function jsonColumns<T>(names: string[], pick: (row: T) => Record<string, Json>, sample: T[]): Column<T>[] {
  return names.map((name) => ({
    name,
    number: sample.length > 0 && sample.every((row) => isNumber(pick(row)[name])),
    value: (row) => <Cell value={pick(row)[name]} />,
  }));
}

function isNumber(value: Json | undefined): boolean {
  return value === null || typeof value === "number" || value instanceof Exact;
}

export function Cell({ value }: { value: Json | undefined }) {
  const text = cellText(value);
  const plain = value === null || value === undefined ? "null" : "";
  return (
    <span class={`cell ${plain}`} title={text.length > 40 ? text : undefined}>
      {typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value) ? value.replace("T", " ").replace(/Z$/, "") : text}
    </span>
  );
}

/** A list of names beside a page. */
export function NameList(props: { label: string; names: { name: string; note?: ComponentChildren }[]; picked: string | null; href: (name: string) => string }) {
  const [filter, setFilter] = useState("");
  const shown = props.names.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()));
  return (
    <nav class="names" aria-label={props.label}>
      {props.names.length > 12 && (
        <input type="search" placeholder="Filter" aria-label={`Filter ${props.label}`} data-search value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      )}
      <ul>
        {shown.map(({ name, note }) => (
          <li key={name}>
            <a href={props.href(name)} aria-current={name === props.picked ? "page" : undefined}>
              <span class="name">{name}</span>
              {note !== undefined && <span class="note">{note}</span>}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
