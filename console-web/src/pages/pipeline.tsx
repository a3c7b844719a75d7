/** The pipeline: its graph with live figures, problems in words, all stages in a table, and one node in detail. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { type Pipeline, type PipelineEdge, type PipelineNode, type StageText, Refusal, get, place } from "../api";
import { connectorSummary, labelOf, movesTexts } from "../connector_text";
import { clockText, compact, duration, plural, rate, timeText, whole } from "../format";
import { type Drawing, NODE, draw, shapeOf } from "../graph_layout";
import { history, pipeline } from "../live";
import { Code, KindMark, Panel, Sparkline, Trouble } from "../parts";
import { go, hashOf, route } from "../route";
import { ConnectorDetail, ConnectorTable } from "./connectors";

export function PipelinePage() {
  const now = pipeline.value;
  if (now === null) return <p class="empty">waiting for the pipeline</p>;
  const picked = now.nodes.find((node) => node.name === route.value.name) ?? null;
  return (
    <div class="pipeline-page">
      <Problems now={now} />
      <div class={picked ? "split" : ""}>
        <div class="pipeline-main">
          <GraphView now={now} picked={picked} />
          <ConnectorTable nodes={now.nodes.filter((node) => node.connector !== null)} picked={picked} />
          <StageTable nodes={now.nodes.filter((node) => node.connector === null)} picked={picked} />
        </div>
        {picked?.connector && <ConnectorDetail node={picked} role={picked.connector.role} name={picked.connector.name} key={picked.name} />}
        {picked && !picked.connector && <Detail node={picked} key={picked.name} />}
      </div>
    </div>
  );
}

function Problems({ now }: { now: Pipeline }) {
  if (now.problems.length === 0) {
    return (
      <p class="problems none" role="status">
        <span aria-hidden="true">✓</span> No problems: every stage keeps up, and nothing was refused in the last minute.
      </p>
    );
  }
  return (
    <div class="problems" role="status">
      <ul aria-label="Problems">
        {now.problems.map((notice) => (
          <li key={notice.text} class={notice.severity}>
            <span class="badge">{notice.severity}</span>
            {notice.subject === null ? notice.text : <a href={hashOf("pipeline", notice.subject)}>{notice.text}</a>}
          </li>
        ))}
      </ul>
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------- graph

function GraphView({ now, picked }: { now: Pipeline; picked: PipelineNode | null }) {
  const shape = shapeOf(now.nodes, now.edges);
  const drawing = useMemo(() => draw(now.nodes, now.edges), [shape]);
  const fit = useSignal(true);
  const byName = new Map(now.nodes.map((node) => [node.name, node]));
  const edges = new Map(now.edges.map((edge) => [`${edge.source}\n${edge.target}`, edge]));
  return (
    <Panel
      class="graph-panel"
      title="Graph"
      aside={
        <label class="check">
          <input type="checkbox" checked={fit.value} onChange={(event) => (fit.value = event.currentTarget.checked)} /> fit to width
        </label>
      }
    >
      <div class="graph-scroll" tabIndex={0} role="region" aria-label="Graph of the pipeline">
        <Scaled drawing={drawing} fit={fit.value}>
          <svg class="edges" width={drawing.width} height={drawing.height} aria-hidden="true">
            {drawing.paths.map((path) => {
              const edge = edges.get(`${path.source}\n${path.target}`);
              if (edge === undefined) return null;
              const [above, below] = edgeTexts(edge);
              const near = picked !== null && (picked.name === edge.source || picked.name === edge.target);
              return (
                <g key={`${path.source} ${path.target}`} class={`edge ${edge.kind === "looks up" ? "lookup" : ""} ${edge.state ?? ""} ${isBehind(edge) ? "lagging" : ""} ${near ? "near" : ""}`}>
                  <path d={path.d} style={{ strokeWidth: `${edgeWidth(edge)}px` }} />
                  <text x={path.x} y={path.y - 6}>{above}</text>
                  {below && <text x={path.x} y={path.y + 15}>{below}</text>}
                </g>
              );
            })}
          </svg>
          {drawing.nodes.map((spot) => {
            const node = byName.get(spot.name);
            return node === undefined ? null : <NodeCard key={spot.name} node={node} x={spot.x} y={spot.y} picked={picked === node} />;
          })}
        </Scaled>
      </div>
    </Panel>
  );
}

export function Scaled({ drawing, fit, children }: { drawing: Drawing; fit: boolean; children: preact.ComponentChildren }) {
  const width = useSignal(0);
  const scale = useComputed(() => width.value);
  const watch = (element: HTMLDivElement | null) => {
    if (element === null) return;
    const observer = new ResizeObserver(() => (width.value = element.clientWidth));
    observer.observe(element);
  };
  const factor = fit && scale.value > 0 ? Math.min(1, Math.max(0.45, scale.value / drawing.width)) : 1;
  return (
    <div ref={watch} class="graph-frame" style={{ height: `${drawing.height * factor}px` }}>
      <div class="graph" style={{ width: `${drawing.width}px`, height: `${drawing.height}px`, transform: `scale(${factor})` }}>
        {children}
      </div>
    </div>
  );
}

/** Whether more records wait than a few seconds of work: while records come, some always do. */
function isBehind({ lag, rate }: { lag: number | null; rate: number | null }): boolean {
  return lag !== null && lag > 0 && lag > 4 * (rate ?? 0);
}

function edgeWidth(edge: PipelineEdge): number {
  return 1.4 + Math.min(3.5, Math.log10(1 + (edge.rate ?? 0)));
}

/** What stands above an edge, and below it. */
function edgeTexts(edge: PipelineEdge): [string, string] {
  if (edge.kind === "looks up") return ["looks up", ""];
  if (edge.kind === "moves") return movesTexts(edge);
  const parts = edge.rate ? [rate(edge.rate)] : [];
  if (edge.lag) parts.push(`${compact(edge.lag)} behind`);
  return [parts.join(" · "), ""];
}

function NodeCard({ node, x, y, picked }: { node: PipelineNode; x: number; y: number; picked: boolean }) {
  const figures = node.figures;
  const rates = history.value?.rates[node.name] ?? [];
  return (
    <a
      class={`node node-${node.kind} ${node.connector?.state ?? ""} ${picked ? "picked" : ""} ${isBehind(figures) && node.connector?.state !== "retrying" ? "lagging" : ""}`}
      href={hashOf("pipeline", picked ? null : node.name)}
      style={{ left: `${x}px`, top: `${y}px`, width: `${NODE.width}px`, height: `${NODE.height}px` }}
      aria-label={`${labelOf(node)}: ${summaryOf(node)}`}
    >
      <span class="node-head">
        <KindMark kind={node.kind} />
        <span class="node-name">{node.connector?.name ?? node.name}</span>
        {node.connector && <span class="tag">{node.connector.kind}</span>}
        {node.lane === "operations" && <span class="tag">own lane</span>}
        {node.shares.length > 0 && <span class="tag" title={`shares its scan with ${node.shares.join(", ")}`}>shared</span>}
        {node.every && <span class="tag">{node.every}</span>}
      </span>
      <span class="node-body">
        <span class="node-rate">{figures.rate === null ? "" : rate(figures.rate)}</span>
        <Sparkline values={rates} label={`records per second of ${labelOf(node)} in the last hour, at most ${compact(Math.max(0, ...rates))}`} />
      </span>
      <span class="node-foot">{summaryOf(node)}</span>
    </a>
  );
}

function summaryOf(node: PipelineNode): string {
  const figures = node.figures;
  if (node.connector) return connectorSummary(node.connector, figures.lag);
  if (node.kind === "stream") {
    const quiet = (figures.silent_seconds ?? 0) >= 10 ? `, silent ${duration(figures.silent_seconds)}` : "";
    return `${compact(figures.written)} records${quiet}`;
  }
  if (figures.read === null) return node.kind === "table" ? "loaded, not fed" : "not begun";
  const parts = [
    figures.lag ? `${compact(figures.lag)} behind` : "up to date",
    ...(figures.waiting ? [`${compact(figures.waiting)} wait`] : []),
    ...(figures.dead ? [`${compact(figures.dead)} dead`] : []),
  ];
  return parts.join(" · ");
}

// ---------------------------------------------------------------------------------------------------- table

function StageTable({ nodes, picked }: { nodes: PipelineNode[]; picked: PipelineNode | null }) {
  const read = history.value;
  return (
    <Panel title="Figures" aside={<span class="quiet">rates over the last seconds; lines over the last hour</span>}>
      <div class="wide" tabIndex={0} role="region" aria-label="Figures of streams, stages and tables">
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">node</th>
              <th scope="col" class="number">in</th>
              <th scope="col">last hour</th>
              <th scope="col" class="number">out</th>
              <th scope="col" class="number">behind</th>
              <th scope="col" class="number">wait</th>
              <th scope="col" class="number">dead</th>
              <th scope="col" class="number">batch</th>
              <th scope="col" class="number">complete up to</th>
              <th scope="col">lane</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => (
              <tr key={node.name} class={`pickable ${picked === node ? "picked" : ""}`} onClick={() => go("pipeline", picked === node ? null : node.name)}>
                <th scope="row">
                  <KindMark kind={node.kind} /> <a href={hashOf("pipeline", node.name)} onClick={(event) => event.stopPropagation()}>{node.name}</a>
                </th>
                <td class="number">{rate(node.figures.rate)}</td>
                <td>
                  <Sparkline values={read?.rates[node.name] ?? []} label={`records per second of ${node.name}`} height={18} />
                </td>
                <td class="number">{rate(node.figures.written_rate)}</td>
                <td class={`number ${isBehind(node.figures) ? "warn" : ""}`}>{compact(node.figures.lag)}</td>
                <td class="number">{compact(node.figures.waiting)}</td>
                <td class="number">
                  {node.figures.dead ? <a href={hashOf("dead", null, { stage: node.name })} onClick={(event) => event.stopPropagation()}>{compact(node.figures.dead)}</a> : compact(node.figures.dead)}
                </td>
                <td class="number">{duration(node.figures.batch_seconds)}</td>
                <td class="number" title={timeText(node.figures.clock)}>{clockText(node.figures.clock)}</td>
                <td>{node.lane ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

// ---------------------------------------------------------------------------------------------------- one node

function Detail({ node }: { node: PipelineNode }) {
  const text = useSignal<StageText | null>(null);
  const trouble = useSignal<string | null>(null);
  const definition = pipeline.value?.definition;
  useEffect(() => {
    get<StageText>(place("pipeline", "stages", node.name)).then(
      (answer) => (text.value = answer),
      (error: unknown) => (trouble.value = error instanceof Refusal ? error.message : String(error)),
    );
  }, [node.name, definition]);
  const { figures } = node;
  const declared = node.part_of ?? node.name;
  const rows: [string, string][] = [
    ["read", figures.read === null ? "–" : whole(figures.read)],
    ["written", figures.written === null ? "–" : whole(figures.written)],
    ["dead letters", figures.dead === null ? "–" : whole(figures.dead)],
    ["waiting for the clock", figures.waiting === null ? "–" : whole(figures.waiting)],
    ["behind", figures.lag === null ? "–" : plural(figures.lag, "record")],
    ["complete up to", timeText(figures.clock)],
    ["task time of a batch", duration(figures.batch_seconds)],
    ...(figures.missed === null ? [] : ([["missed firings", whole(figures.missed)]] as [string, string][])),
    ...(figures.silent_seconds === null ? [] : ([["last append", `${duration(figures.silent_seconds)} ago`]] as [string, string][])),
    ...(node.lane ? ([["lane", node.lane]] as [string, string][]) : []),
    ...(node.shares.length ? ([["shares its scan with", node.shares.join(", ")]] as [string, string][]) : []),
  ];
  return (
    <aside class="detail" aria-label={`${node.kind} ${node.name}`}>
      <Panel
        title={
          <>
            <KindMark kind={node.kind} /> {node.name} <span class="quiet">{node.part_of ? `part of ${node.part_of}` : node.kind}</span>
          </>
        }
        aside={
          <a class="button" href={hashOf("pipeline")} aria-label="Close the details">
            ✕
          </a>
        }
      >
        <p class="links">
          {node.kind === "query" && <a href={hashOf("queries", declared)}>Rows and timeline</a>}
          {(node.kind === "stream" || node.kind === "job" || node.kind === "operation") && <a href={hashOf("streams", declared)}>Records</a>}
          {node.kind === "table" && <a href={hashOf("tables", declared)}>Rows of the table</a>}
          {figures.dead ? <a href={hashOf("dead", null, { stage: node.name })}>Dead letters</a> : null}
        </p>
        <dl class="facts">
          {rows.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        <Trouble text={trouble.value} />
        {text.value && (
          <>
            <h3>Declared as</h3>
            <Code text={text.value.declaration.trimEnd()} label="Declaration" />
            {text.value.explain && (
              <>
                <h3>Explained</h3>
                <Code text={text.value.explain.trimEnd()} label="Explanation" />
              </>
            )}
          </>
        )}
      </Panel>
    </aside>
  );
}
