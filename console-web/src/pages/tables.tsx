/** A table: rows by the beginning of their key, one row as of any event time, and the payloads behind it. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { type Payloads, type TableAbout, type TableRow, address, get } from "../api";
import { type Json, cellText, compactJson, parseJson } from "../exact_json";
import { bytes, isoText, microseconds, timeText, whole } from "../format";
import { version } from "../live";
import { useLoaded } from "../loading";
import { Cell, LongTable, NameList, Panel, Trouble, jsonColumns } from "../parts";
import { go, hashOf, route } from "../route";

export function TablesPage() {
  const tables = useLoaded((abort) => get<{ tables: string[] }>("/tables", {}, abort), [version.value > 0]);
  const names = tables.value.value?.tables ?? [];
  const name = names.find((each) => each === route.value.name) ?? names[0];
  if (tables.value.value !== null && names.length === 0) return <p class="empty">This pipeline has no tables.</p>;
  return (
    <div class="beside">
      <NameList label="Tables" names={names.map((each) => ({ name: each }))} picked={name ?? null} href={(each) => hashOf("tables", each)} />
      <div class="stack">
        <Trouble text={tables.value.trouble} />
        {name !== undefined && <TableView key={name} name={name} />}
      </div>
    </div>
  );
}

function TableView({ name }: { name: string }) {
  const about = useLoaded((abort) => get<TableAbout>(`/tables/${encodeURIComponent(name)}`, {}, abort), [], version.value);
  const table = about.value.value;
  const asked = route.value.search.get("key");
  const key = useMemo(() => keyIn(asked), [asked]);
  if (table === null) return <Trouble text={about.value.trouble} />;
  return (
    <>
      <Panel
        title={<>{name} <span class="quiet">key: {table.key.join(", ")}</span></>}
        aside={<span class="quiet">about {whole(table.keys)} keys, {whole(table.payloads)} updates not folded, {bytes(table.bytes)}; complete up to {timeText(table.clock)}</span>}
      >
        <p class="types">
          {table.columns.map((column) => (
            <span key={column.name}>
              <b>{column.name}</b> <span class="quiet">{column.type}</span>
            </span>
          ))}
        </p>
      </Panel>
      <div class="halves">
        <ScanPanel table={table} picked={asked} />
        {key !== null && <RowPanel key={asked} table={table} parts={key} />}
      </div>
    </>
  );
}

function keyIn(text: string | null): Json[] | null {
  if (text === null) return null;
  try {
    const key = parseJson(text);
    return Array.isArray(key) ? key : [key];
  } catch {
    return [text];
  }
}

// ---------------------------------------------------------------------------------------------------- scan

function ScanPanel({ table, picked }: { table: TableAbout; picked: string | null }) {
  const texts = useSignal<string[]>(table.key.map(() => ""));
  const more = useSignal<{ of: unknown; rows: TableRow[]; next: string | null }>({ of: null, rows: [], next: null });
  const filter = useMemo(() => prefixOf(texts.value), [texts.value]);
  const path = `/scan/${encodeURIComponent(table.name)}`;
  const scan = useLoaded((abort) => get<{ rows: TableRow[]; next: string | null }>(path, { ...filter, limit: 200 }, abort), [filter.prefix, filter.text_prefix], version.value);
  const now = scan.value.value;
  const tail = more.value.of === now ? more.value : { of: now, rows: [], next: now?.next ?? null };
  const rows = now === null ? [] : [...now.rows, ...tail.rows];
  const loadMore = async () => {
    if (tail.next === null) return;
    const page = await get<{ rows: TableRow[]; next: string | null }>(path, { ...filter, limit: 1000, after: tail.next }).catch(() => null);
    if (page !== null && scan.peek().value === now) more.value = { of: now, rows: [...tail.rows, ...page.rows], next: page.next };
  };
  const pick = (row: TableRow) => go("tables", table.name, { key: compactJson(row.key) });
  return (
    <Panel title="Rows" aside={<span class="quiet">{whole(rows.length)}{tail.next === null ? "" : "+"} shown</span>}>
      <div class="actions">
        {table.key.map((part, at) => (
          <label key={part}>
            {part}{" "}
            <input
              class="mono"
              data-search={at === 0 ? "" : undefined}
              value={texts.value[at]}
              placeholder="begins with"
              onInput={(event) => (texts.value = texts.value.map((text, place) => (place === at ? event.currentTarget.value : text)))}
              onKeyDown={(event) => { if (event.key === "Enter" && rows[0] !== undefined) pick(rows[0]); }}
            />
          </label>
        ))}
      </div>
      <Trouble text={scan.value.trouble} />
      <LongTable
        label={`Rows of ${table.name}`}
        columns={[
          ...table.key.map((part, at) => ({
            name: part,
            value: (row: TableRow) => (at === 0 ? <button class="link mono" onClick={() => pick(row)}>{cellText(row.key[at])}</button> : <Cell value={row.key[at]} />),
          })),
          ...jsonColumns(table.columns.map((column) => column.name), (row: TableRow) => row.row, rows.slice(0, 50)),
        ]}
        rows={rows}
        keyOf={(row) => compactJson(row.key)}
        onPick={pick}
        picked={(row) => compactJson(row.key) === picked}
        onEnd={() => void loadMore()}
        empty={now === null ? "" : "no such key"}
      />
    </Panel>
  );
}

/** The parameters of a scan: all parts but the last that is given must be whole, the last one is the beginning of a text. */
export function prefixOf(texts: string[]): { prefix?: string; text_prefix?: string } {
  const given = texts.slice(0, texts.findLastIndex((text) => text !== "") + 1);
  if (given.length === 0) return {};
  const whole = given.slice(0, -1).map(partOf);
  const last = given.at(-1)!;
  const value = partOf(last);
  if (typeof value !== "string") return { prefix: compactJson([...whole, value]) };
  return { ...(whole.length ? { prefix: compactJson(whole) } : {}), text_prefix: value };
}

/** A part of a key as typed: a number, true, false or null, a text in quotes, or else the text itself. */
function partOf(text: string): Json {
  try {
    const value = parseJson(text);
    return value !== null && typeof value === "object" && !("text" in value) ? text : value;
  } catch {
    return text;
  }
}

// ---------------------------------------------------------------------------------------------------- one row

const STEPS = 1000;

function RowPanel({ table, parts }: { table: TableAbout; parts: Json[] }) {
  /** null: now. */
  const asOf = useSignal<number | null>(null);
  const where = parts.map((part) => encodeURIComponent(compactJson(part))).join("/");
  const time = asOf.value === null ? null : isoText(asOf.value);
  const renewal = time === null ? version.value : 0;
  const row = useLoaded((abort) => get<TableRow>(address(`/tables/${encodeURIComponent(table.name)}/${where}`, { json: true, as_of: time }), {}, abort), [time], renewal);
  const payloads = useLoaded((abort) => get<Payloads>(address(`/payloads/${encodeURIComponent(table.name)}/${where}`, { json: true, as_of: time, limit: 500 }), {}, abort), [time], renewal);
  const every = useLoaded((abort) => get<Payloads>(address(`/payloads/${encodeURIComponent(table.name)}/${where}`, { json: true, limit: 500 }), {}, abort), [], version.value);
  const span = spanOf(table, every.value.value);
  const found = row.value.trouble === null ? row.value.value : null;
  const behind = payloads.value.trouble === null ? payloads.value.value : null;
  return (
    <Panel title={<span class="mono">{parts.map((part) => cellText(part)).join(" / ")}</span>} aside={<a class="button" href={hashOf("tables", table.name)} aria-label="Close the row">✕</a>}>
      {span !== null && (
        <div class="slider">
          <label class="above">
            as of {asOf.value === null ? "now" : timeText(time)}
            <input
              type="range"
              min={0}
              max={STEPS}
              value={asOf.value === null ? STEPS : Math.round(((asOf.value - span.start) / (span.end - span.start)) * STEPS)}
              onInput={(event) => {
                const at = Number(event.currentTarget.value);
                asOf.value = at === STEPS ? null : Math.round(span.start + (at / STEPS) * (span.end - span.start));
              }}
            />
          </label>
          <button class={asOf.value === null ? "on" : ""} aria-pressed={asOf.value === null} onClick={() => (asOf.value = null)}>now</button>
        </div>
      )}
      <Trouble text={row.value.trouble} />
      {found && (
        <dl class="facts">
          {table.columns.map((column) => (
            <div key={column.name}>
              <dt>{column.name} <span class="quiet">{column.type}</span></dt>
              <dd class="mono">{cellText(found.row[column.name])}</dd>
            </div>
          ))}
        </dl>
      )}
      {behind && (
        <>
          <h3>{behind.more ? "The newest payloads behind it" : "Payloads behind it"} <span class="quiet">{behind.folded ? "and a snapshot of folded ones" : ""}</span></h3>
          <LongTable
            label="Payloads"
            columns={[
              { name: "time", value: (each: Payloads["payloads"][number]) => <span class="mono">{timeText(each.time)}</span> },
              { name: "column", value: (each) => each.column },
              { name: "method", value: (each) => <span class="mono" title={each.type}>{each.method}</span> },
              { name: "alone gives", value: (each) => <Cell value={each.alone} /> },
              { name: "event", value: (each) => <span class="mono">{cellText(each.event)}{each.update ? ` #${each.update}` : ""}</span> },
            ]}
            rows={behind.payloads}
            keyOf={(_, at) => at}
            empty="all updates are folded"
          />
        </>
      )}
    </Panel>
  );
}

/** The times between which the slider moves: from before the first update, or what can be read, to the table's clock. */
function spanOf(table: TableAbout, every: Payloads | null): { start: number; end: number } | null {
  const readable = table.readable_from === null ? null : microseconds(table.readable_from);
  const times = (every?.payloads ?? []).map((each) => microseconds(each.time)).filter((each) => each !== null);
  const clock = table.clock === null ? null : microseconds(table.clock);
  const first = times.length ? Math.min(...times) : readable;
  const last = Math.max(clock ?? -Infinity, ...times);
  if (first === null || !Number.isFinite(last) || last <= first) return null;
  const start = Math.max(readable ?? -Infinity, first - (last - first) * 0.02);
  return start < last ? { start: Math.round(start), end: last } : null;
}
