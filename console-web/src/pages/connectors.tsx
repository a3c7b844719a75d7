/** Sources and outputs on the page of the pipeline: all of them in a table, and one in detail, with a button that pauses or resumes it. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type ConnectorStatus, type PipelineNode, type StageText, get, place, post } from "../api";
import { againText, labelOf } from "../connector_text";
import { compact, isoText, plural, rate, timeText, whole } from "../format";
import { history, pipeline } from "../live";
import { messageOf, useLoaded } from "../loading";
import { Code, ConnectorState, KindMark, Panel, Sparkline, Trouble } from "../parts";
import { go, hashOf } from "../route";

export function ConnectorTable({ nodes, picked }: { nodes: PipelineNode[]; picked: PipelineNode | null }) {
  if (nodes.length === 0) return null;
  return (
    <Panel title="Sources and outputs" aside={<span class="quiet">rates over the last seconds; lines over the last hour</span>}>
      <div class="wide" tabIndex={0} role="region" aria-label="Sources and outputs">
        <table class="connectors">
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col">state</th>
              <th scope="col" class="number">per second</th>
              <th scope="col">last hour</th>
              <th scope="col" class="number">moved</th>
              <th scope="col" class="number">waiting</th>
              <th scope="col">kind</th>
              <th scope="col">target</th>
              <th scope="col">last error</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => {
              const { connector, figures } = node;
              if (connector === null) return null;
              return (
                <tr key={node.name} class={`pickable ${picked === node ? "picked" : ""}`} onClick={() => go("pipeline", picked === node ? null : node.name)}>
                  <th scope="row">
                    <KindMark kind={node.kind} /> <a href={hashOf("pipeline", node.name)} onClick={(event) => event.stopPropagation()}>{connector.name}</a>
                  </th>
                  <td>
                    <ConnectorState state={connector.state} />
                  </td>
                  <td class="number">{compact(figures.rate)}</td>
                  <td>
                    <Sparkline values={history.value?.rates[node.name] ?? []} label={`moved per second by ${labelOf(node)}`} height={18} />
                  </td>
                  <td class="number">{compact(figures.written)}</td>
                  <td class="number">{compact(figures.lag)}</td>
                  <td>{connector.kind}</td>
                  <td class="cut" title={connector.target}>{connector.target}</td>
                  <td class={`cut ${connector.state === "retrying" ? "bad" : "quiet"}`} title={connector.last_error ?? undefined}>{connector.last_error ?? "–"}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

/** One source or output. Its positions are asked for while it is looked at: of many partitions they would make every event long. */
export function ConnectorDetail({ node, role, name }: { node: PipelineNode; role: string; name: string }) {
  const changes = useSignal(0);
  const said = useSignal<string | null>(null);
  const trouble = useSignal<string | null>(null);
  const busy = useSignal(false);
  const loaded = useLoaded<ConnectorStatus>((abort) => get(place(role, name), {}, abort), [changes.value], pipeline.value, node.name);
  const declared = useSignal<StageText | null>(null);
  const definition = pipeline.value?.definition;
  useEffect(() => {
    get<StageText>(place("pipeline", "stages", node.name)).then(
      (answer) => (declared.value = answer),
      (error: unknown) => (trouble.value = messageOf(error)),
    );
  }, [node.name, definition]);
  const status = loaded.value.value;
  const isPaused = (status?.state ?? node.connector?.state) === "paused";
  const set = async (action: "pause" | "resume") => {
    if (busy.value) return;
    busy.value = true;
    trouble.value = said.value = null;
    try {
      await post(`${place(role, name)}/${action}`, "");
      said.value = action === "pause" ? "It is paused until it is resumed, also over restarts. Nothing is lost." : "It goes on.";
    } catch (error) {
      trouble.value = messageOf(error);
    }
    changes.value += 1;
    busy.value = false;
  };
  return (
    <aside class="detail" aria-label={labelOf(node)}>
      <Panel
        title={
          <>
            <KindMark kind={node.kind} /> {name} <span class="quiet">{node.kind}</span>
          </>
        }
        aside={
          <a class="button" href={hashOf("pipeline")} aria-label="Close the details">
            ✕
          </a>
        }
      >
        <div class="actions">
          <button aria-busy={busy.value} onClick={() => void set(isPaused ? "resume" : "pause")}>
            {isPaused ? "Resume" : "Pause"}
          </button>
          {role === "sources" && <a class="button" href={hashOf("streams", name)}>Records</a>}
        </div>
        <p class="result" role="status">{said.value}</p>
        <Trouble text={trouble.value ?? loaded.value.trouble} />
        {status && <StatusFacts status={status} />}
        {declared.value && (
          <>
            <h3>Declared as</h3>
            <Code text={declared.value.declaration.trimEnd()} label="Declaration" />
          </>
        )}
      </Panel>
    </aside>
  );
}

function StatusFacts({ status }: { status: ConnectorStatus }) {
  const moved = status.role === "sources" ? "record" : "change";
  const positions = Object.entries(status.positions);
  const facts: [string, preact.ComponentChildren][] = [
    ["state", <ConnectorState state={status.state} />],
    ["kind", status.kind],
    ["target", status.target],
    ["moved", `${plural(status.records, moved)} since the pipeline started, ${rate(status.rate)}`],
    ["waiting", status.lag === null ? "–" : plural(status.lag, moved)],
    ["failures", status.failures === 0 ? "none since the pipeline started" : `${whole(status.failures)} since the pipeline started`],
    ...(status.since === null ? [] : ([["failing since", timeText(isoText(status.since)).slice(0, 19)]] as [string, string][])),
    ...(status.again === null || status.state !== "retrying" ? [] : ([["next attempt", againText(status.again, Date.now() * 1000)]] as [string, string][])),
    ...(status.failed === null ? [] : ([["last failure", timeText(isoText(status.failed)).slice(0, 19)]] as [string, string][])),
  ];
  return (
    <>
      <dl class="facts">
        {facts.map(([title, value]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {status.last_error && (
        <>
          <h3>Last error</h3>
          <p class={status.error ? "trouble" : "reason"}>{status.last_error}</p>
        </>
      )}
      <h3>Positions</h3>
      {positions.length === 0 ? (
        <p class="quiet">none yet</p>
      ) : (
        <div class="long" tabIndex={0} role="region" aria-label="Positions">
          <table>
            <thead>
              <tr>
                <th scope="col">{status.role === "sources" ? "partition" : "of the target"}</th>
                <th scope="col">position</th>
              </tr>
            </thead>
            <tbody>
              {positions.map(([partition, position]) => (
                <tr key={partition}>
                  <th scope="row">{partition}</th>
                  <td class="mono">{position}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
