/** Operations: their figures, their versions with differences, an editor with a trial, updates and rollbacks; and the governor. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type LaneFigures, type PipelineNode, get, patch, place, post } from "../api";
import { Confirmation } from "../confirmation";
import { compactJson } from "../exact_json";
import { compact, duration, plural, rate, timeText, whole } from "../format";
import { type DiffLine, changedCounts, diffLines, hunksOf } from "../line_diff";
import { pipeline } from "../live";
import { messageOf, useLoaded } from "../loading";
import { type Operation, type OperationSources, type OperationVersion, type Trial, type TriedWindow, loadText, versionText } from "../operations_api";
import { Code, LongTable, Panel, Trouble } from "../parts";
import { go, hashOf, route } from "../route";
import { GovernorPanel } from "./governor";

export function OperationsPage() {
  const definition = pipeline.value?.definition;
  const changes = useSignal(0);
  const loaded = useLoaded((abort) => get<{ operations: Operation[] }>("/operations", {}, abort), [definition, changes.value]);
  const session = useLoaded((abort) => get<{ token_required: boolean }>("/session", {}, abort), []);
  const operations = loaded.value.value?.operations ?? [];
  const picked = operations.find((each) => each.name === route.value.name) ?? operations[0];
  return (
    <div class="stack">
      <OperationTable operations={operations} picked={picked?.name ?? null} trouble={loaded.value.trouble} known={loaded.value.value !== null} />
      {picked !== undefined && (
        <OperationView key={picked.name} operation={picked} allowed={session.value.value?.token_required ?? null} onChange={() => changes.value++} />
      )}
      <GovernorPanel changes={changes.value} onChange={() => changes.value++} />
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------- all operations

function OperationTable(props: { operations: Operation[]; picked: string | null; trouble: string | null; known: boolean }) {
  const now = pipeline.value;
  const nodes = new Map(now?.nodes.map((node) => [node.name, node]));
  const lane = now?.governor.find((each) => each.lane === "operations");
  return (
    <Panel title="Operations" aside={lane && <span class="quiet">a pool of {plural(lane.slots, "worker")}, work for {loadText(lane.load)}</span>}>
      <Trouble text={props.trouble} />
      {props.known && props.operations.length === 0 ? (
        <p class="empty">This pipeline has no operations; `hayase ops add` adds one while it runs.</p>
      ) : (
        <div class="wide" tabIndex={0} role="region" aria-label="All operations">
          <table>
            <thead>
              <tr>
                <th scope="col">operation</th>
                <th scope="col" class="number">version</th>
                <th scope="col">since</th>
                <th scope="col">reads</th>
                <th scope="col">function</th>
                <th scope="col" class="number">in</th>
                <th scope="col" class="number">records</th>
                <th scope="col" class="number">results</th>
                <th scope="col" class="number">failures</th>
                <th scope="col" class="number">behind</th>
                <th scope="col" class="number">workers busy</th>
              </tr>
            </thead>
            <tbody>
              {props.operations.map((each) => (
                <OperationRow key={each.name} operation={each} node={nodes.get(each.name)} lane={lane} picked={each.name === props.picked} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function OperationRow({ operation, node, lane, picked }: { operation: Operation; node: PipelineNode | undefined; lane: LaneFigures | undefined; picked: boolean }) {
  const figures = node?.figures;
  const load = lane?.queues.filter((queue) => queue.stage === operation.name).reduce((sum, queue) => sum + queue.load, 0);
  return (
    <tr class={`pickable ${picked ? "picked" : ""}`} onClick={() => go("operations", operation.name)}>
      <th scope="row">
        <a href={hashOf("operations", operation.name)} aria-current={picked ? "true" : undefined}>{operation.name}</a>{" "}
        {!operation.in_effect && <span class="tag tag-open">from the next batch on</span>}
      </th>
      <td class="number">{operation.version}</td>
      <td>{timeText(operation.since).slice(0, 19)} <span class="tag">{operation.by}</span></td>
      <td>{fieldText(operation.operation?.reads)}</td>
      <td class="mono">{fieldText(operation.operation?.function)}</td>
      <td class="number">{rate(figures?.rate)}</td>
      <td class="number">{compact(figures?.read)}</td>
      <td class="number">{compact(figures?.written)}</td>
      <td class="number">{figures?.dead ? <a href={hashOf("dead", null, { stage: operation.name })} onClick={(event) => event.stopPropagation()}>{compact(figures.dead)}</a> : compact(figures?.dead)}</td>
      <td class="number">{compact(figures?.lag)}</td>
      <td class="number">{load === undefined ? "–" : loadText(load)}</td>
    </tr>
  );
}

function fieldText(value: unknown): string {
  return Array.isArray(value) ? value.join(", ") : typeof value === "string" ? value : "–";
}

// ---------------------------------------------------------------------------------------------------- one operation

function OperationView({ operation, allowed, onChange }: { operation: Operation; allowed: boolean | null; onChange: () => void }) {
  /** The version whose code is in the editor, which stays while it is edited; null: the newest. */
  const edited = useSignal<number | null>(null);
  const report = useSignal<string | null>(null);
  const trouble = useSignal<string | null>(null);
  const path = place("operations", operation.name);
  const about = useLoaded((abort) => get<{ history: OperationVersion[] }>(path, {}, abort), [operation.version]);
  const versions = about.value.value?.history ?? [];
  const change = async (what: string, send: () => Promise<{ version: number; takes_effect: string }>) => {
    report.value = trouble.value = null;
    try {
      const made = await send();
      report.value = `${operation.name} is ${what}: version ${made.version}, which takes effect ${made.takes_effect}.`;
      edited.value = null;
      onChange();
    } catch (error) {
      trouble.value = messageOf(error);
    }
  };
  return (
    <>
      {allowed === false && (
        <p class="banner waiting" role="status">
          This server was started without a token, so it runs no code that a browser sends. Start it with --token-file, or use `hayase ops` on its machine.
        </p>
      )}
      <div class="result" role="status">{report.value && <p class="good">{report.value}</p>}</div>
      <Trouble text={trouble.value} />
      <div class="halves">
        <EditorPanel
          operation={operation}
          version={edited.value ?? operation.version}
          allowed={allowed !== false}
          onEdit={(version) => (edited.value = version)}
          onUpdate={(source) => change("updated", () => patch(path, JSON.stringify({ source })))}
        />
        <VersionsPanel
          name={operation.name}
          newest={operation.version}
          versions={versions}
          trouble={about.value.trouble}
          allowed={allowed !== false}
          onEdit={(version) => (edited.value = version)}
          onRollback={(version) => change(`rolled back to version ${version}`, () => post(`${path}/rollback`, JSON.stringify({ to: version })))}
        />
      </div>
    </>
  );
}

function useSources(name: string, version: number | null) {
  return useLoaded(
    (abort) => (version === null ? Promise.resolve(null) : get<OperationSources>(place("operations", name, "versions", String(version)), {}, abort)),
    [],
    null,
    `${name} ${version}`,
  );
}

// ---------------------------------------------------------------------------------------------------- editor

const COUNTS = [5, 20, 100];

function EditorPanel(props: { operation: Operation; version: number; allowed: boolean; onEdit: (version: number | null) => void; onUpdate: (source: string) => Promise<void> }) {
  const { operation, version } = props;
  const sources = useSources(operation.name, version);
  const file = sources.value.value?.files[0];
  const original = file?.text ?? null;
  const text = useSignal<string | null>(null);
  const count = useSignal(20);
  const trial = useSignal<Trial | null>(null);
  const trouble = useSignal<string | null>(null);
  const asked = useSignal<string | null>(null);
  const discarded = useSignal(0);
  const busy = useSignal<string | null>(null);
  useEffect(() => {
    text.value = trial.value = trouble.value = null;
  }, [version, operation.name]);
  const source = text.value ?? original;
  const lines = useMemo(() => (source === null || original === null ? [] : diffLines(original, source)), [source, original]);
  const { added, removed } = changedCounts(lines);
  const discard = () => {
    text.value = null;
    discarded.value++;
    props.onEdit(null);
  };
  const edit = (changed: string) => {
    text.value = changed;
    props.onEdit(version);
  };
  const attempt = async () => {
    trial.value = trouble.value = null;
    busy.value = "Trying …";
    try {
      trial.value = await post<Trial>(place("operations", operation.name, "trial"), JSON.stringify({ source, windows: count.value }));
    } catch (error) {
      trouble.value = messageOf(error);
    }
    busy.value = null;
  };
  const update = async () => {
    busy.value = "Updating …";
    await props.onUpdate(source!);
    busy.value = null;
  };
  const local = (sources.value.value?.files.length ?? 0) > 1;
  return (
    <Panel
      title={<>Code <span class="quiet mono">{file?.path}</span></>}
      aside={
        <>
          <span class="quiet">of version {version}{version === operation.version ? ", the present one" : `; version ${operation.version} is the present one`}</span>
          {added + removed > 0 && <span class="tag tag-open">edited: +{added} −{removed}</span>}
          {(text.value !== null && text.value !== original || version !== operation.version) && <button onClick={discard}>Discard</button>}
        </>
      }
    >
      <Trouble text={sources.value.trouble} />
      {sources.value.value !== null && original === null && <p class="empty">The code of this version is not in the home; its module is installed.</p>}
      {original !== null && <PythonEditor key={`${version} ${discarded.value}`} text={original} label={`Code of ${operation.name}`} onText={edit} />}
      {local && <p class="quiet">It imports modules beside it. An update over HTTP is one module: use `hayase ops update --from-file` for such code.</p>}
      <div class="actions">
        <button disabled={!props.allowed || busy.value !== null || source === null} onClick={() => void attempt()}>Try on the newest records</button>
        <label>
          windows{" "}
          <select value={String(count.value)} onChange={(event) => (count.value = Number(event.currentTarget.value))}>
            {COUNTS.map((each) => <option key={each} value={String(each)}>{each}</option>)}
          </select>
        </label>
        <button class="primary" disabled={!props.allowed || busy.value !== null || source === null} onClick={() => (asked.value = source)}>Update</button>
        <span class="quiet" role="status">{busy.value ?? "Ctrl+] indents, Tab leaves the editor"}</span>
      </div>
      <Trouble text={trouble.value} />
      {trial.value && <TrialView trial={trial.value} />}
      {asked.value !== null && (
        <Confirmation title={`Update ${operation.name}?`} action={`Update ${operation.name}`} onConfirm={() => void update()} onClose={() => (asked.value = null)}>
          <p>The code in the editor{added + removed > 0 ? `, with ${plural(added, "added line")} and ${plural(removed, "removed line")},` : ", unchanged,"} becomes the new version of {operation.name}.</p>
          <p>It is checked on the newest records first, and refused if it fails for half of them. It takes effect at the next batch; windows in progress finish under the version before. Records that were processed are not processed again.</p>
          <p>The pipeline file stays as it is; the change holds until the file says something else of {operation.name}.</p>
        </Confirmation>
      )}
    </Panel>
  );
}

/** The editor begins with `text`, and then says what it holds. */
function PythonEditor({ text, label, onText }: { text: string; label: string; onText: (text: string) => void }) {
  const host = useRef<HTMLDivElement>(null);
  const trouble = useSignal<string | null>(null);
  useEffect(() => {
    let gone = false;
    let close = () => {};
    import("../python_editor").then(
      ({ openPythonEditor }) => {
        if (!gone && host.current !== null) close = openPythonEditor(host.current, text, label, onText);
      },
      (error: unknown) => (trouble.value = `the editor could not be loaded: ${messageOf(error)}`),
    );
    return () => {
      gone = true;
      close();
    };
  }, []);
  return (
    <>
      <Trouble text={trouble.value} />
      <div ref={host} class="code-editor" />
    </>
  );
}

function TrialView({ trial }: { trial: Trial }) {
  const picked = useSignal<TriedWindow | null>(trial.windows.find((window) => window.failure !== null) ?? null);
  const shown = trial.windows.includes(picked.value!) ? picked.value : null;
  const summary = `${plural(trial.tried, "window")} tried: ${whole(trial.tried - trial.failed)} gave results, ${whole(trial.failed)} failed.`;
  const verdict = trial.tried === 0 ? "There are no complete windows to try it on." : trial.passes ? "An update would pass its check." : "An update would be refused: half of them or more fail.";
  return (
    <div class="result" role="status">
      <p class={trial.passes ? "good" : "warn"}>{summary} {trial.untried > 0 && `There was no time for ${whole(trial.untried)} more. `}{verdict}</p>
      <p class="quiet">Nothing was written.</p>
      {trial.windows.length > 0 && (
        <LongTable
          label="Windows that were tried"
          columns={[
            { name: "outcome", width: "5rem", value: (window: TriedWindow) => <button class="link" onClick={() => (picked.value = window)}>{window.failure === null ? "✓ result" : "✗ failed"}</button> },
            { name: "gives", value: (window) => window.failure === null ? <code>{rowsText(window.results, window.more_results).slice(0, 160)}</code> : <span class="warn">{window.failure.reason}</span> },
            { name: "for", value: (window) => <code title={rowsText(window.records, window.more_records)}>{rowsText(window.records, window.more_records).slice(0, 160)}</code> },
            { name: "time", number: true, value: (window) => duration(window.seconds) },
          ]}
          rows={trial.windows}
          keyOf={(_, at) => at}
          onPick={(window) => (picked.value = window)}
          picked={(window) => window === shown}
        />
      )}
      {shown && (
        <>
          <h3>{shown.failure === null ? "A window and its results" : `It failed: ${shown.failure.kind}`}</h3>
          <Code label="Records of the window" text={shown.records.map(compactJson).join("\n") + moreText(shown.more_records)} />
          {shown.failure === null
            ? <Code label="Results of the window" text={(shown.results.map(compactJson).join("\n") || "no results") + moreText(shown.more_results)} />
            : <Code label="How it failed" text={shown.failure.traceback || shown.failure.reason} />}
        </>
      )}
    </div>
  );
}

function rowsText(rows: TriedWindow["records"], more: number): string {
  return rows.map(compactJson).join(" ") + (more ? ` and ${whole(more)} more` : rows.length ? "" : "nothing");
}

function moreText(more: number): string {
  return more ? `\n… and ${whole(more)} more` : "";
}

// ---------------------------------------------------------------------------------------------------- versions

function VersionsPanel(props: {
  name: string;
  newest: number;
  versions: OperationVersion[];
  trouble: string | null;
  allowed: boolean;
  onEdit: (version: number) => void;
  onRollback: (version: number) => Promise<void>;
}) {
  const versions = [...props.versions].reverse();
  const from = useSignal<number | null>(null);
  const to = useSignal<number | null>(null);
  const asked = useSignal<number | null>(null);
  const numbers = versions.map((each) => each.version);
  const after = numbers.find((each) => each === to.value) ?? numbers[0] ?? null;
  const before = numbers.find((each) => each === from.value) ?? numbers[1] ?? numbers[0] ?? null;
  useEffect(() => {
    from.value = to.value = null;
  }, [props.newest]);
  return (
    <Panel title="Versions" aside={<span class="quiet">{plural(versions.length, "version")}; numbers are those of the pipeline's definition</span>}>
      <Trouble text={props.trouble} />
      <LongTable
        label="Versions"
        columns={[
          { name: "version", number: true, width: "4rem", value: (each: OperationVersion) => each.version },
          { name: "since", value: (each) => timeText(each.since).slice(0, 19) },
          { name: "by", value: (each) => <span class="tag">{each.by}</span> },
          { name: "what changed", value: (each) => each.changed.join(", ") || "–" },
          {
            name: "use",
            value: (each) => each.version === props.newest ? <span class="quiet">present</span> : (
              <>
                <button class="link" disabled={each.operation === null} aria-label={`Edit the code of version ${each.version}`} onClick={() => props.onEdit(each.version)}>edit</button>{" "}
                <button class="link" disabled={!props.allowed || each.operation === null} aria-label={`Roll back to version ${each.version}`} onClick={() => (asked.value = each.version)}>roll back</button>
              </>
            ),
          },
        ]}
        rows={versions}
        keyOf={(each) => each.version}
      />
      {after !== null && before !== null && (
        <>
          <div class="actions">
            <VersionChoice label="Differences from version" value={before} versions={versions} onPick={(version) => (from.value = version)} />
            <VersionChoice label="to version" value={after} versions={versions} onPick={(version) => (to.value = version)} />
          </div>
          <Differences name={props.name} before={before} after={after} />
        </>
      )}
      {asked.value !== null && (
        <Confirmation
          title={`Roll ${props.name} back to version ${asked.value}?`}
          action={`Roll back to version ${asked.value}`}
          onConfirm={() => void props.onRollback(asked.peek()!)}
          onClose={() => (asked.value = null)}
        >
          <p>{props.name} becomes what it was in version {asked.value}, with the code and the options of then. That is a new version too, so it can be taken back in the same way.</p>
          <p>It takes effect at the next batch; windows in progress finish under the version before. Results that were written stay.</p>
        </Confirmation>
      )}
    </Panel>
  );
}

function VersionChoice(props: { label: string; value: number; versions: OperationVersion[]; onPick: (version: number) => void }) {
  return (
    <label>
      {props.label}{" "}
      <select value={String(props.value)} onChange={(event) => props.onPick(Number(event.currentTarget.value))}>
        {props.versions.map((each) => <option key={each.version} value={String(each.version)}>{each.version}</option>)}
      </select>
    </label>
  );
}

function Differences({ name, before, after }: { name: string; before: number; after: number }) {
  const one = useSources(name, before);
  const other = useSources(name, after);
  const [old, now] = [one.value.value, other.value.value];
  const lines = useMemo(() => (old === null || now === null ? null : diffLines(versionText(old), versionText(now))), [old, now]);
  if (lines === null) return <Trouble text={one.value.trouble ?? other.value.trouble} />;
  const { added, removed } = changedCounts(lines);
  if (added + removed === 0) return <p class="empty">{before === after ? "This is one and the same version." : "They do not differ."}</p>;
  return (
    <>
      <p class="quiet">{plural(added, "line")} added, {plural(removed, "line")} removed</p>
      <pre class="code diff" tabIndex={0} role="region" aria-label={`Differences from version ${before} to version ${after}`}>
        {hunksOf(lines).map((hunk) => (
          <span key={hunk.head}>
            <span class="diff-head">{hunk.head}{"\n"}</span>
            {hunk.lines.map((line, at) => <DiffRow key={at} line={line} />)}
          </span>
        ))}
      </pre>
    </>
  );
}

function DiffRow({ line }: { line: DiffLine }) {
  const text = `${line.mark}${line.text}\n`;
  if (line.mark === "+") return <ins>{text}</ins>;
  if (line.mark === "-") return <del>{text}</del>;
  return <span>{text}</span>;
}
