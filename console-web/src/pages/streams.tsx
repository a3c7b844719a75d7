/** A stream: its schema and clock, its newest records, and a box to append to it, which says first what would be refused. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { type AppendAnswer, type PipelineNode, type Records, type StreamAbout, get, place, post } from "../api";
import { compact, microseconds, plural, timeText, whole } from "../format";
import { pipeline, version } from "../live";
import { messageOf, useLoaded } from "../loading";
import { KindMark, LongTable, NameList, Panel, Trouble, jsonColumns } from "../parts";
import { hashOf, route } from "../route";

const WRITTEN = ["stream", "job", "operation"];

export function StreamsPage() {
  const nodes = (pipeline.value?.nodes ?? []).filter((node) => WRITTEN.includes(node.kind) && node.part_of === null);
  const node = nodes.find((each) => each.name === route.value.name) ?? nodes[0];
  if (pipeline.value !== null && nodes.length === 0) return <p class="empty">This pipeline has no streams.</p>;
  return (
    <div class="beside">
      <NameList
        label="Streams"
        names={nodes.map((each) => ({ name: each.name, note: <>{compact(each.figures.written)} <KindMark kind={each.kind} /></> }))}
        picked={node?.name ?? null}
        href={(name) => hashOf("streams", name)}
      />
      <div class="stack">{node && <StreamView key={node.name} node={node} />}</div>
    </div>
  );
}

function StreamView({ node }: { node: PipelineNode }) {
  const isInput = node.kind === "stream";
  const length = node.figures.written;
  const appended = useSignal(0);
  const about = useLoaded(
    (abort) => (isInput ? get<StreamAbout>(place("streams", node.name), {}, abort) : Promise.resolve(null)),
    [appended.value],
    length,
  );
  const stream = about.value.value;
  return (
    <>
      <Panel title={<><KindMark kind={node.kind} /> {node.name} <span class="quiet">{isInput ? "stream" : `written by the ${node.kind}`}</span></>}>
        <Trouble text={about.value.trouble} />
        {stream && <StreamFacts stream={stream} />}
        {!isInput && <p class="quiet">Records of this stream are written by the pipeline; append to a stream that it reads.</p>}
      </Panel>
      {stream && !stream.finished && <AppendPanel stream={stream} onAppended={() => appended.value++} />}
      <RecordsPanel name={node.name} appended={appended.value} change={`${length} ${version.value}`} />
    </>
  );
}

function StreamFacts({ stream }: { stream: StreamAbout }) {
  const columns = columnsOf(stream.schema);
  const facts: [string, string][] = [
    ["records", `${whole(stream.next - stream.first)}${stream.first ? `, from ${whole(stream.first)}` : ""}`],
    ["latest event time", timeText(stream.latest)],
    ["clock", stream.finished ? "finished" : timeText(stream.clock)],
    ["slack", stream.slack],
    ["last append", timeText(stream.written_at)],
  ];
  return (
    <div class="stream-facts">
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <table class="schema" aria-label="Schema">
        <tbody>
          {columns.map(([name, type]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="mono">{type}</td>
              <td class="quiet">
                {name === stream.time ? `event time${stream.time_unit ? ` in ${stream.time_unit}` : ""}` : ""}
                {name === stream.id ? "id" : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The columns of a schema: names, perhaps in backquotes, and types, perhaps with commas in brackets. */
export function columnsOf(schema: string): [string, string][] {
  const parts: string[] = [];
  let depth = 0;
  let part = "";
  for (const letter of schema) {
    if ("<([".includes(letter)) depth++;
    if (">)]".includes(letter)) depth--;
    if (letter === "," && depth === 0) {
      parts.push(part);
      part = "";
    } else part += letter;
  }
  return [...parts, part].map((each) => {
    const match = /^\s*(?:`((?:[^`]|``)+)`|(\S+))\s+(.*)$/.exec(each);
    return match ? [(match[1] ?? match[2]!).replaceAll("``", "`"), match[3]!.trim()] : [each.trim(), ""];
  });
}

/** A record to begin with, of the latest event time, with a value of the right type in each column. */
export function exampleOf(stream: StreamAbout): string {
  const latest = stream.latest === null ? null : microseconds(stream.latest);
  const now = new Date(latest === null ? Date.now() : Math.ceil(latest / 1000));
  const parts = columnsOf(stream.schema).map(([name, type]) => {
    const isTime = name === stream.time;
    const units: Record<string, number> = { s: 1000, ms: 1, us: 0.001, ns: 0.000001 };
    let value: string;
    if (isTime && stream.time_unit) value = String(Math.round(now.getTime() / (units[stream.time_unit] ?? 1)));
    else if (/^timestamp/i.test(type)) value = JSON.stringify(now.toISOString());
    else if (/^date/i.test(type)) value = JSON.stringify(now.toISOString().slice(0, 10));
    else if (/^(tinyint|smallint|int|bigint|long|short|byte)/i.test(type)) value = "1";
    else if (/^(double|float|real|decimal)/i.test(type)) value = "1.5";
    else if (/^bool/i.test(type)) value = "true";
    else if (/^string/i.test(type)) value = JSON.stringify(name === stream.id ? crypto.randomUUID() : "text");
    else value = "null";
    return `${JSON.stringify(name)}: ${value}`;
  });
  return `{${parts.join(", ")}}`;
}

function AppendPanel({ stream, onAppended }: { stream: StreamAbout; onAppended: () => void }) {
  const text = useSignal("");
  const answer = useSignal<{ dry: boolean; answer: AppendAnswer } | null>(null);
  const trouble = useSignal<string | null>(null);
  const busy = useSignal(false);
  const send = async (dry: boolean) => {
    busy.value = true;
    answer.value = trouble.value = null;
    const lines = text.value.trim();
    const kind = /^\s*\[/.test(lines) ? "application/json" : "application/x-ndjson";
    try {
      const body = kind === "application/json" ? lines : `${lines}\n`;
      const done = await post<AppendAnswer>(`${place("streams", stream.name)}${dry ? "?dry_run=true" : ""}`, body, kind);
      answer.value = { dry, answer: done };
      if (!dry) onAppended();
    } catch (error) {
      trouble.value = messageOf(error);
    }
    busy.value = false;
  };
  const empty = text.value.trim() === "";
  const example = useMemo(() => exampleOf(stream), [stream.name]);
  return (
    <Panel title="Append" aside={<span class="quiet">one JSON object per line, or an array; what does not fit becomes a dead letter</span>}>
      <textarea
        class="mono"
        rows={4}
        spellcheck={false}
        aria-label={`Records for ${stream.name}`}
        placeholder={example}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          answer.value = null;
        }}
      />
      <div class="actions">
        <button disabled={busy.value} onClick={() => (text.value = `${text.value.trimEnd()}${empty ? "" : "\n"}${exampleOf(stream)}`)}>
          Insert an example
        </button>
        <button disabled={empty || busy.value} onClick={() => void send(true)}>
          Check
        </button>
        <button class="primary" disabled={empty || busy.value} onClick={() => void send(false)}>
          Append
        </button>
      </div>
      <Trouble text={trouble.value} />
      {answer.value && <AppendResult dry={answer.value.dry} answer={answer.value.answer} />}
    </Panel>
  );
}

function AppendResult({ dry, answer }: { dry: boolean; answer: AppendAnswer }) {
  const place = answer.first === null ? "" : `, at offset ${whole(answer.first)}`;
  return (
    <div role="status" class="result">
      <p class={answer.refused ? "warn" : "good"}>
        {dry
          ? `${plural(answer.accepted, "record")} would be accepted, ${whole(answer.refused)} refused.`
          : `${plural(answer.accepted, "record")} accepted${place}; ${whole(answer.refused)} refused.`}
      </p>
      {answer.refusals.map((each, at) => (
        <p key={at} class="refusal">
          <code>{each.record}</code> <span>{each.reason}</span>
        </p>
      ))}
    </div>
  );
}

function RecordsPanel({ name, appended, change }: { name: string; appended: number; change: string }) {
  const older = useSignal<{ of: Records | null; rows: Records["records"]; next: number | null }>({ of: null, rows: [], next: null });
  const held = useSignal(false);
  const kept = useSignal(change);
  if (!held.value) kept.value = change;
  const newest = useLoaded((abort) => get<Records>(place("streams", name, "records"), { limit: 200 }, abort), [appended], kept.value);
  const now = newest.value.value;
  const tail = older.value.of === now ? older.value : { of: now, rows: [], next: now?.older ?? null };
  const rows = now === null ? [] : [...now.records, ...tail.rows];
  const names = useMemo(() => Object.keys(rows[0]?.record ?? {}), [rows[0]?.record]);
  const loadOlder = async () => {
    if (now === null || tail.next === null) return;
    held.value = true;
    const page = await get<Records>(place("streams", name, "records"), { limit: 1000, before: tail.next }).catch(() => null);
    if (page !== null && newest.peek().value === now) older.value = { of: now, rows: [...tail.rows, ...page.records], next: page.older };
  };
  return (
    <Panel
      title="Newest records"
      class="grow"
      aside={
        <button aria-pressed={held.value} class={held.value ? "on" : ""} onClick={() => (held.value = !held.value)}>
          {held.value ? "go on" : "pause"}
        </button>
      }
    >
      <Trouble text={newest.value.trouble} />
      <LongTable
        label="Newest records"
        columns={[
          { name: "offset", number: true, value: (each: Records["records"][number]) => whole(each.offset) },
          ...jsonColumns(names, (each: Records["records"][number]) => each.record, rows.slice(0, 50)),
        ]}
        rows={rows}
        keyOf={(each) => each.offset}
        onEnd={rows.length >= 200 ? () => void loadOlder() : undefined}
        empty={now === null ? "" : "no records"}
      />
    </Panel>
  );
}
