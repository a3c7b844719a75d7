/** The playground: a query is written, checked in place, drawn as a plan, run on the newest records, and added to the pipeline. */

import { autocompletion } from "@codemirror/autocomplete";
import { setDiagnostics } from "@codemirror/lint";
import { Prec } from "@codemirror/state";
import { keymap } from "@codemirror/view";
import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Lifetime, type Lifetimes, type NodeKind, type QueryName, get, post } from "../api";
import { type Mistake, type QueryColumn, type Words, completionSource, diagnosticsOf, language, mistakeText, placeOf } from "../cql";
import { type Editor, openEditor } from "../editor";
import { plural, whole } from "../format";
import { type Size, draw } from "../graph_layout";
import { groupColumn } from "../lifetime_lanes";
import { pipeline } from "../live";
import { messageOf, useLoaded } from "../loading";
import { Code, KindMark, LongTable, Panel, Trouble, jsonColumns } from "../parts";
import { hashOf, route } from "../route";
import { TimelineView } from "../timeline";
import { type Range, within } from "../timeline_view";
import { Scaled } from "./pipeline";
import { CursorBar, GroupBy, dedented } from "./queries";

interface Check {
  /** The text that was checked. */
  text: string;
  valid: boolean;
  mistakes: Mistake[];
  kind: "relation" | "stream" | null;
  columns: QueryColumn[];
  reads: string[];
}

interface PlanNode {
  name: string;
  kind: "stream" | "table" | "map side" | "operator" | "result";
  title: string;
  lines: string[];
  stage: string | null;
}

interface Explanation {
  text: string;
  nodes: PlanNode[];
  edges: { source: string; target: string }[];
}

interface Trial {
  kind: "relation" | "stream";
  start_us: number | null;
  end_us: number | null;
  matching: number;
  density: number[];
  rows: Lifetime[];
  cut: boolean;
  read: Record<string, number>;
  refused: number;
  reasons: { stage: string; kind: string; reason: string; records: number }[];
}

interface Addition {
  version: number;
  stages: { name: string; lane: string; reads: string[]; shares: string[]; keeps: string[] }[];
  changed: string[];
  declaration: string;
}

const COUNTS = [100, 1000, 10_000];
const PAUSE = 300;

/** The text that is being written; it stays while other pages are open. */
const text = signal<string | null>(null);

export function PlaygroundPage() {
  const words = useLoaded((abort) => get<Words>("/playground/words", {}, abort), [pipeline.value?.definition]);
  const queries = useLoaded((abort) => get<{ queries: QueryName[] }>("/queries", {}, abort), [pipeline.value?.definition]);
  const known = words.value.value;
  const all = queries.value.value?.queries ?? null;
  if (known === null || all === null) return <Trouble text={words.value.trouble ?? queries.value.trouble} />;
  return <Playground words={known} queries={all} />;
}

function Playground({ words, queries }: { words: Words; queries: QueryName[] }) {
  const asked = route.value.name;
  const check = useSignal<Check | null>(null);
  const trouble = useSignal<string | null>(null);
  const count = useSignal(1000);
  const trial = useSignal<{ number: number; result: Trial } | null>(null);
  const running = useSignal(false);
  const failure = useSignal<string | null>(null);
  const adding = useSignal(false);
  if (text.peek() === null) text.value = beginning(words, queries);

  const run = async () => {
    if (running.peek()) return;
    running.value = true;
    failure.value = null;
    try {
      const result = await post<Trial>("/playground/run", JSON.stringify({ text: text.peek(), records: count.peek(), limit: 1000, bins: 240 }));
      trial.value = { number: (trial.peek()?.number ?? 0) + 1, result };
    } catch (error) {
      failure.value = messageOf(error);
    }
    running.value = false;
  };
  useChecked(check, trouble);
  const valid = (check.value?.valid ?? false) && check.value?.text === text.value;
  return (
    <div class="stack">
      <Panel
        title="Query"
        aside={
          <label>
            begin with{" "}
            <select aria-label="Begin with a query of the pipeline" value="" onChange={(event) => copy(queries, event.currentTarget.value)}>
              <option value="">…</option>
              {queries.map((query) => (
                <option key={query.name}>{query.name}</option>
              ))}
            </select>
          </label>
        }
      >
        <QueryEditor words={words} mistakes={check.value?.mistakes ?? []} onRun={() => void run()} opened={asked === null ? null : (queries.find((query) => query.name === asked) ?? null)} />
        <Verdict check={check.value} trouble={trouble.value} />
        <div class="actions">
          <button class="primary" disabled={!valid || running.value} onClick={() => void run()} title="Ctrl ⏎">
            {running.value ? "Running …" : "Run"}
          </button>
          <label>
            on the newest{" "}
            <select aria-label="Records of each stream" value={count.value} onChange={(event) => (count.value = Number(event.currentTarget.value))}>
              {COUNTS.map((each) => (
                <option key={each} value={each}>
                  {whole(each)}
                </option>
              ))}
            </select>{" "}
            records of each stream
          </label>
          <button disabled={!valid} aria-expanded={adding.value} onClick={() => (adding.value = !adding.value)}>
            Add to the pipeline …
          </button>
        </div>
        {adding.value && valid && <AddForm />}
      </Panel>
      <PlanPanel check={check.value} />
      <Trouble text={failure.value} />
      {trial.value && <TrialView key={trial.value.number} trial={trial.value.result} />}
    </div>
  );
}

/** A query to begin with: the newest records of the first stream. */
function beginning(words: Words, queries: QueryName[]): string {
  const stream = words.sources.find((source) => source.kind === "stream");
  if (stream !== undefined) return `select ${stream.columns.slice(0, 4).map((column) => column.name).join(", ")}\nfrom ${stream.name} [Range 1 minute]`;
  return queries[0] ? dedented(queries[0].text) : "select ";
}

function copy(queries: QueryName[], name: string): void {
  const query = queries.find((each) => each.name === name);
  if (query !== undefined) text.value = dedented(query.text);
}

/** Checks the text a moment after it has changed. */
function useChecked(check: { value: Check | null }, trouble: { value: string | null }): void {
  const definition = pipeline.value?.definition;
  const now = text.value;
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      post<Omit<Check, "text">>("/playground/check", JSON.stringify({ text: now })).then(
        (answer) => {
          if (!current) return;
          check.value = { ...answer, text: now ?? "" };
          trouble.value = null;
        },
        (error: unknown) => {
          if (current) trouble.value = messageOf(error);
        },
      );
    }, PAUSE);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [now, definition]);
}

// ---------------------------------------------------------------------------------------------------- editor

let editor: Editor | null = null;

function QueryEditor({ words, mistakes, onRun, opened }: { words: Words; mistakes: Mistake[]; onRun: () => void; opened: QueryName | null }) {
  const box = useRef<HTMLDivElement>(null);
  const known = useRef(words);
  const runner = useRef(onRun);
  known.current = words;
  runner.current = onRun;
  useEffect(() => {
    if (opened !== null) text.value = dedented(opened.text);
  }, [opened?.name]);
  useEffect(() => {
    const runKey = { key: "Mod-Enter", run: () => (runner.current(), true) };
    editor = openEditor({
      parent: box.current!,
      text: text.peek() ?? "",
      label: "Query in CQL",
      extensions: [Prec.highest(keymap.of([runKey])), language(words), autocompletion({ override: [completionSource(() => known.current)], icons: false })],
      onChange: (changed) => (text.value = changed),
    });
    return () => {
      editor?.close();
      editor = null;
    };
  }, []);
  useEffect(() => {
    if (editor !== null && text.value !== null && editor.text() !== text.value) editor.setText(text.value);
  }, [text.value]);
  useEffect(() => {
    if (editor !== null) editor.view.dispatch(setDiagnostics(editor.view.state, diagnosticsOf(editor.text(), mistakes)));
  }, [mistakes]);
  return <div class="editor" ref={box} />;
}

/** What the server says about the text: columns, or mistakes, each of which leads to its place. */
function Verdict({ check, trouble }: { check: Check | null; trouble: string | null }) {
  if (trouble !== null) return <Trouble text={trouble} />;
  if (check === null) return <p class="verdict quiet" role="status" />;
  const lead = (mistake: Mistake) => {
    if (editor === null) return;
    const { from, to } = placeOf(editor.text(), mistake);
    editor.view.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true });
    editor.view.focus();
  };
  return (
    <div class="verdict" role="status">
      {check.valid ? (
        <p class="good">
          {check.kind === "relation" ? "Rows that appear and disappear" : "A stream of records"}:{" "}
          <span class="mono">{check.columns.map((column) => `${column.name} ${column.type}`).join(", ")}</span>; reads {check.reads.join(", ")}
        </p>
      ) : (
        <ul class="mistakes" aria-label="Mistakes">
          {check.mistakes.map((mistake) => (
            <li key={mistakeText(mistake)}>
              {mistake.line !== null && (
                <button class="link" onClick={() => lead(mistake)}>
                  line {mistake.line}, column {mistake.column}
                </button>
              )}{" "}
              {mistake.message}
              {mistake.hint !== null && <b>; {mistake.hint}</b>}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------- plan

const PLAN_NODE: Size = { width: 224, height: 92 };
const MARKS: Record<PlanNode["kind"], NodeKind> = { stream: "stream", table: "table", "map side": "job", operator: "operation", result: "query" };

function PlanPanel({ check }: { check: Check | null }) {
  const plan = useSignal<Explanation | null>(null);
  const trouble = useSignal<string | null>(null);
  const worded = useSignal(false);
  useEffect(() => {
    if (check === null || !check.valid) return;
    let current = true;
    post<Explanation>("/playground/explain", JSON.stringify({ text: check.text })).then(
      (answer) => {
        if (!current) return;
        plan.value = answer;
        trouble.value = null;
      },
      (error: unknown) => {
        if (current) trouble.value = messageOf(error);
      },
    );
    return () => {
      current = false;
    };
  }, [check]);
  const drawing = useMemo(() => plan.value && draw(plan.value.nodes, plan.value.edges, PLAN_NODE, 44), [plan.value]);
  if (plan.value === null || drawing === null) return null;
  const byName = new Map(plan.value.nodes.map((node) => [node.name, node]));
  return (
    <Panel
      title={
        <>
          Plan {check !== null && !check.valid && <span class="quiet">of the last text without mistakes</span>}
        </>
      }
      aside={
        <button aria-pressed={worded.value} class={worded.value ? "on" : ""} onClick={() => (worded.value = !worded.value)}>
          in words
        </button>
      }
    >
      <Trouble text={trouble.value} />
      {worded.value ? (
        <Code text={plan.value.text.trimEnd()} label="Explanation" />
      ) : (
        <div class="graph-scroll" tabIndex={0} role="region" aria-label="Picture of the plan">
          <Scaled drawing={drawing} fit>
            <svg class="edges" width={drawing.width} height={drawing.height} aria-hidden="true">
              {drawing.paths.map((path) => (
                <g key={`${path.source} ${path.target}`} class="edge">
                  <path d={path.d} />
                </g>
              ))}
            </svg>
            {drawing.nodes.map((spot) => {
              const node = byName.get(spot.name)!;
              const kind = MARKS[node.kind];
              return (
                <div
                  key={spot.name}
                  class={`node node-${kind} plan-node`}
                  style={{ left: `${spot.x}px`, top: `${spot.y}px`, width: `${PLAN_NODE.width}px`, height: `${PLAN_NODE.height}px` }}
                  title={[node.title, ...node.lines].join("\n")}
                >
                  <span class="node-head">
                    <span class="node-name">{node.title}</span>
                    <span class="tag">{node.kind}</span>
                  </span>
                  <span class="plan-lines">{node.lines.join("; ")}</span>
                </div>
              );
            })}
          </Scaled>
        </div>
      )}
    </Panel>
  );
}

// ---------------------------------------------------------------------------------------------------- trial

function TrialView({ trial }: { trial: Trial }) {
  const range = useSignal<Range | null>(null);
  const cursor = useSignal<number | null>(null);
  const names = useMemo(() => Object.keys(trial.rows[0]?.row ?? {}), [trial]);
  const by = useSignal<string | null>(trial.rows.length > 1 ? groupColumn(trial.rows, names) : null);
  const isStream = trial.kind === "stream";
  const read = Object.entries(trial.read).map(([name, count]) => `${plural(count, "record")} of ${name}`).join(", ");
  const at = cursor.value;
  const rows = at === null || isStream ? trial.rows : trial.rows.filter((row) => row.from_us <= at && (row.to_us === null || row.to_us > at));
  const shown = `${trial.cut ? `${whole(trial.rows.length)} of ` : ""}${plural(trial.matching, isStream ? "record" : "row")}`;
  const bounds = trial.start_us === null || trial.end_us === null ? null : { start: trial.start_us, end: Math.max(trial.end_us, trial.start_us + 10) };
  return (
    <>
      {trial.refused > 0 && (
        <div class="problems" role="status">
          <ul aria-label="Refused records">
            {trial.reasons.map((each) => (
              <li key={`${each.stage} ${each.kind}`}>
                <span class="badge">
                  {each.stage} refused {plural(each.records, "record")} ({each.kind})
                </span>
                {each.records > 1 && "the first one: "}
                {each.reason}
              </li>
            ))}
          </ul>
        </div>
      )}
      {bounds && (
        <Panel
          class="timeline-panel"
          title="Timeline"
          aside={
            <>
              <span class="quiet">
                {shown} from {read}
              </span>
              <GroupBy by={by.value ?? null} names={names} pick={(name) => (by.value = name)} />
            </>
          }
        >
          <TimelineView
            data={lifetimesOf(trial)}
            range={range.value ?? bounds}
            bounds={bounds}
            cursor={cursor.value}
            by={by.value}
            isStream={isStream}
            onCursor={(instant) => (cursor.value = instant)}
            onRange={(next) => (range.value = within(next, bounds))}
            onAll={() => (range.value = null)}
          />
          <CursorBar cursor={cursor} bounds={bounds} />
        </Panel>
      )}
      <Panel
        title={at === null || isStream ? "Rows with their lifetimes" : "Rows at the cursor"}
        aside={<span class="quiet">{at === null || isStream ? `${shown} from ${read}` : `${plural(rows.length, "row")}${trial.cut ? " of those that were given" : ""}`}</span>}
      >
        <LongTable
          label="Rows"
          columns={[
            ...jsonColumns(names, (row: Lifetime) => row.row, rows.slice(0, 50)),
            ...jsonColumns(isStream ? ["valid_from"] : ["valid_from", "valid_to"], (row: Lifetime) => ({ valid_from: row.valid_from, valid_to: row.valid_to }), []),
          ]}
          rows={rows}
          keyOf={(_, place) => place}
          empty={`no rows come of ${read || "streams without records"}`}
        />
      </Panel>
    </>
  );
}

function lifetimesOf(trial: Trial): Lifetimes {
  const { start_us, end_us, matching, density, rows } = trial;
  return { query: "", start_us, end_us, first_us: start_us, final_us: end_us, matching, complete: true, density, rows };
}

// ---------------------------------------------------------------------------------------------------- addition

function AddForm() {
  const name = useSignal("");
  const start = useSignal<"earliest" | "now">("earliest");
  const plan = useSignal<{ of: string; addition: Addition } | null>(null);
  const added = useSignal<string | null>(null);
  const trouble = useSignal<string | null>(null);
  const body = JSON.stringify({ name: name.value, text: text.value });
  const current = plan.value?.of === body ? plan.value.addition : null;
  const attempt = async (work: () => Promise<void>) => {
    trouble.value = null;
    try {
      await work();
    } catch (error) {
      trouble.value = messageOf(error);
    }
  };
  const show = (event: Event) => {
    event.preventDefault();
    added.value = null;
    void attempt(async () => {
      plan.value = { of: body, addition: await post<Addition>("/playground/plan", body) };
    });
  };
  const add = () =>
    attempt(async () => {
      await post("/queries", JSON.stringify({ name: name.value, text: text.value, start: start.value }));
      added.value = name.value;
      plan.value = null;
    });
  return (
    <form class="add-form" onSubmit={show} aria-label="Add to the pipeline">
      <div class="actions">
        <label>
          as{" "}
          <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} required pattern="[A-Za-z][A-Za-z0-9_]{0,62}" maxLength={63} placeholder="name" aria-label="Name of the query" />
        </label>
        <label>
          from{" "}
          <select aria-label="Where it starts" value={start.value} onChange={(event) => (start.value = event.currentTarget.value as "earliest" | "now")}>
            <option value="earliest">the earliest record</option>
            <option value="now">now on</option>
          </select>
        </label>
        <button type="submit">Show what it would do</button>
      </div>
      <Trouble text={trouble.value} />
      {current && <AdditionPlan plan={current} onAdd={() => void add()} />}
      {added.value && (
        <p class="good" role="status">
          {added.value} runs from the next batch on: <a href={hashOf("queries", added.value)}>its rows and timeline</a>. It stays until the pipeline's file declares that name.
        </p>
      )}
    </form>
  );
}

function AdditionPlan({ plan, onAdd }: { plan: Addition; onAdd: () => void }) {
  return (
    <div class="addition" role="region" aria-label="What it would do">
      <table>
        <thead>
          <tr>
            <th scope="col">new stage</th>
            <th scope="col">lane</th>
            <th scope="col">reads</th>
            <th scope="col">shares its pass with</th>
            <th scope="col">keeps</th>
          </tr>
        </thead>
        <tbody>
          {plan.stages.map((stage) => (
            <tr key={stage.name}>
              <th scope="row">
                <KindMark kind="query" /> {stage.name}
              </th>
              <td>{stage.lane}</td>
              <td>{stage.reads.join(", ")}</td>
              <td>{stage.shares.join(", ") || "nobody"}</td>
              <td class="keeps">{stage.keeps.join("; ") || "nothing: record by record"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {plan.changed.length > 0 && <p class="warn">These would run differently: {plan.changed.join(", ")}</p>}
      <p>To have it in the pipeline's file too:</p>
      <Code text={plan.declaration.trimEnd()} label="Lines for the pipeline's file" />
      <div class="actions">
        <button type="button" class="primary" onClick={onAdd}>
          Add it: version {plan.version + 1}
        </button>
      </div>
    </div>
  );
}
