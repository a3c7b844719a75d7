/** Dead letters: groups of them, the letters of a group, and one letter with its record, an edit of it, and what became of it. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type DeadGroup, type Letter, type Settled, get, place, post } from "../api";
import { prettyJson } from "../exact_json";
import { plural, timeText, whole } from "../format";
import { alike, editOf, faultyColumns, recordOf } from "../letter_edit";
import { pipeline, version } from "../live";
import { messageOf, useLoaded } from "../loading";
import { Code, LongTable, Panel, Trouble } from "../parts";
import { go, route } from "../route";

export function DeadPage() {
  const { name, search } = route.value;
  const stage = search.get("stage");
  const picked = useSignal<DeadGroup | null>(null);
  const settled = useSignal(false);
  const done = useSignal(0);
  const count = pipeline.value?.dead_open;
  const groups = useLoaded((abort) => get<{ open: number; groups: DeadGroup[] }>("/dead/groups", { stage }, abort), [done.value], count, stage);
  const all = groups.value.value?.groups ?? [];
  const group = all.find((each) => picked.value !== null && sameGroup(each, picked.value)) ?? (settled.value ? null : (all[0] ?? null));
  const number = name !== null && /^\d+$/.test(name) ? Number(name) : null;
  return (
    <div class="stack">
      <Panel
        title="Dead letters"
        aside={
          <>
            {stage !== null && (
              <button onClick={() => go("dead")}>
                only of {stage} ✕
              </button>
            )}
            <label class="check">
              <input type="checkbox" checked={settled.value} onChange={(event) => { settled.value = event.currentTarget.checked; picked.value = null; }} /> all letters, settled ones too
            </label>
            <span class="quiet">{groups.value.value && `${plural(groups.value.value.open, "open letter")} in ${plural(all.length, "group")}`}</span>
          </>
        }
      >
        <Trouble text={groups.value.trouble} />
        <LongTable
          label="Groups of dead letters"
          columns={[
            { name: "letters", number: true, width: "5rem", value: (each: DeadGroup) => whole(each.letters) },
            { name: "stage", value: (each: DeadGroup) => <button class="link" onClick={() => (picked.value = each)}>{each.stage}</button> },
            { name: "stream", value: (each: DeadGroup) => each.stream },
            { name: "kind", value: (each: DeadGroup) => <span class="tag">{each.kind}</span> },
            { name: "newest reason", value: (each: DeadGroup) => <span title={each.reason}>{each.reason}</span> },
            { name: "until", value: (each: DeadGroup) => timeText(each.until).slice(0, 19) },
          ]}
          rows={all}
          keyOf={(each) => `${each.stage} ${each.stream} ${each.kind} ${each.first}`}
          onPick={(each) => { picked.value = each; settled.value = false; }}
          picked={(each) => each === group}
          empty={groups.value.value === null ? "" : "No letter is open: every record was processed."}
        />
      </Panel>
      <div class="halves">
        <LettersPanel group={group} stage={stage} settled={settled.value} number={number} done={done.value} onDone={() => done.value++} />
        {number !== null && (
          <LetterPanel
            key={number}
            number={number}
            onDone={() => done.value++}
            onLetter={(letter) => (picked.value ??= all.find((each) => each.stage === letter.stage && each.stream === letter.stream && each.kind === letter.kind && alike(each.reason) === alike(letter.reason)) ?? null)}
          />
        )}
      </div>
    </div>
  );
}

function sameGroup(one: DeadGroup, other: DeadGroup): boolean {
  return one.stage === other.stage && one.stream === other.stream && one.kind === other.kind && alike(one.reason) === alike(other.reason);
}

function LettersPanel(props: { group: DeadGroup | null; stage: string | null; settled: boolean; number: number | null; done: number; onDone: () => void }) {
  const { group, settled, stage } = props;
  const subject = group === null ? "all" : `${group.stage} ${group.stream} ${group.kind} ${alike(group.reason)}`;
  const parameters = group === null ? { stage } : { stage: group.stage, stream: group.stream, kind: group.kind };
  const letters = useLoaded(
    (abort) => (group === null && !settled ? Promise.resolve({ letters: [] }) : get<{ letters: Letter[] }>("/dead", { ...parameters, settled, limit: 1000 }, abort)),
    [settled, props.done],
    `${group?.letters} ${group?.last}`,
    `${subject} ${settled}`,
  );
  const shown = [...(letters.value.value?.letters ?? [])].reverse().filter((each) => group === null || alike(each.reason) === alike(group.reason));
  const open = shown.filter((each) => each.state === "open").map((each) => each.letter);
  return (
    <Panel title={settled ? "Letters" : "Open letters"} aside={<span class="quiet">{plural(shown.length, "letter")}{shown.length >= 1000 ? ", the newest" : ""}</span>}>
      <Trouble text={letters.value.trouble} />
      <LongTable
        label="Letters"
        columns={[
          { name: "letter", number: true, width: "5rem", value: (each: Letter) => <button class="link" onClick={() => openLetter(each, stage)}>{each.letter}</button> },
          { name: "refused", value: (each: Letter) => timeText(each.time).slice(0, 19) },
          ...(settled ? [{ name: "state", value: (each: Letter) => <span class={`tag tag-${each.state}`}>{each.state}</span> }] : []),
          { name: "record", value: (each: Letter) => <code title={each.record}>{each.record.slice(0, 200)}</code> },
        ]}
        rows={shown}
        keyOf={(each) => each.letter}
        onPick={(each) => openLetter(each, stage)}
        picked={(each) => each.letter === props.number}
        empty={letters.value.value === null ? "" : "none"}
      />
      {open.length > 0 && <Settling letters={open} late={group?.kind === "late"} label={`the ${plural(open.length, "letter")} shown`} fields={() => ({ fields: {} })} onDone={props.onDone} />}
    </Panel>
  );
}

function openLetter(letter: Letter, stage: string | null): void {
  go("dead", String(letter.letter), stage === null ? {} : { stage });
}

// ---------------------------------------------------------------------------------------------------- one letter

function LetterPanel({ number, onDone, onLetter }: { number: number; onDone: () => void; onLetter: (letter: Letter) => void }) {
  const done = useSignal(0);
  const loaded = useLoaded((abort) => get<Letter>(place("dead", String(number)), {}, abort), [done.value], version.value);
  const letter = loaded.value.value;
  const text = useSignal<string | null>(null);
  useEffect(() => {
    if (letter !== null) onLetter(letter);
  }, [letter]);
  if (letter === null) return <Panel title={`Letter ${number}`}><Trouble text={loaded.value.trouble} /></Panel>;
  const record = recordOf(letter.record);
  const original = record === null ? letter.record : prettyJson(record);
  const [head = "", ...trace] = letter.reason.split("\n");
  const finished = () => {
    done.value++;
    onDone();
  };
  return (
    <Panel
      title={<>Letter {letter.letter} <span class={`tag tag-${letter.state}`}>{letter.state}</span></>}
      aside={<span class="quiet">{letter.stage} ← {letter.stream}{letter.offset === null ? "" : ` at ${whole(letter.offset)}`} · {plural(letter.attempts, "attempt")}</span>}
    >
      <p class="reason"><span class="tag">{letter.kind}</span> {head}</p>
      {trace.length > 0 && <Code text={trace.join("\n").trimEnd()} label="Traceback" />}
      <MarkedRecord text={original} columns={faultyColumns(letter.reason)} lacking={record === null ? [] : faultyColumns(letter.reason).filter((name) => !(name in record))} />
      {letter.state === "open" ? (
        <>
          <label class="above">
            Record to replay
            <textarea class="mono" rows={Math.min(14, original.split("\n").length + 1)} spellcheck={false} value={text.value ?? original} onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
          <Settling
            letters={[letter.letter]}
            late={letter.kind === "late"}
            label="it"
            fields={() => (text.value === null || text.value === original ? { fields: {} } : editOf(letter.record, text.value))}
            onDone={finished}
          />
        </>
      ) : (
        <Fate letter={letter} />
      )}
      <Trouble text={loaded.value.trouble} />
    </Panel>
  );
}

function MarkedRecord({ text, columns, lacking }: { text: string; columns: string[]; lacking: string[] }) {
  const isFaulty = (line: string) => columns.some((name) => line.startsWith(`  ${JSON.stringify(name)}:`));
  return (
    <pre class="code record" tabIndex={0} role="region" aria-label="Record">
      {text.split("\n").map((line, at) => (
        <span key={at} class={isFaulty(line) ? "faulty" : ""}>
          {isFaulty(line) ? <mark>{line}</mark> : line}
          {isFaulty(line) ? "   ◀ here" : ""}
          {"\n"}
        </span>
      ))}
      {lacking.map((name) => (
        <span key={name} class="faulty">{`   ◀ no "${name}"\n`}</span>
      ))}
    </pre>
  );
}

function Fate({ letter }: { letter: Letter }) {
  return (
    <div class="result" role="status">
      <p>
        {letter.state === "dropped" ? "Dropped" : letter.appended === null || letter.appended === undefined ? "Given to its stage once more" : `Appended to its stream, at offset ${whole(letter.appended)}`}
        {letter.settled_at ? `, ${timeText(letter.settled_at).slice(0, 19)}.` : "."}
      </p>
      {letter.again !== null && letter.again !== undefined && (
        <p class="warn">
          It was refused again: <a href={`#/dead/${letter.again}`}>letter {letter.again}</a>.
        </p>
      )}
      {letter.replayed && <Code text={letter.replayed} label="Record that was replayed" />}
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------- settling

type Fields = { fields: Record<string, unknown> } | { wrong: string };

function Settling({ letters, late, label, fields, onDone }: { letters: number[]; late: boolean; label: string; fields: () => Fields; onDone: () => void }) {
  const report = useSignal<{ dry: boolean; what: string; report: Settled } | null>(null);
  const trouble = useSignal<string | null>(null);
  const dropping = useSignal(false);
  const busy = useSignal(false);
  const send = async (what: "replay" | "drop", dry: boolean) => {
    report.value = trouble.value = null;
    dropping.value = false;
    const edit = what === "replay" ? fields() : { fields: {} };
    if ("wrong" in edit) {
      trouble.value = edit.wrong;
      return;
    }
    busy.value = true;
    const more = what === "replay" && late ? { late: true } : {};
    try {
      const answer = await post<Settled>(`/dead/${what}`, JSON.stringify({ letters: letters.slice(0, 1000), dry_run: dry, ...more, ...edit.fields }));
      report.value = { dry, what, report: answer };
      if (!dry) onDone();
    } catch (error) {
      trouble.value = messageOf(error);
    }
    busy.value = false;
  };
  return (
    <>
      <div class="actions">
        <button disabled={busy.value} onClick={() => void send("replay", true)}>Try to replay {label}</button>
        <button class="primary" disabled={busy.value} onClick={() => void send("replay", false)}>Replay {label}</button>
        {dropping.value ? (
          <button class="danger" disabled={busy.value} onClick={() => void send("drop", false)}>Really drop {label}</button>
        ) : (
          <button disabled={busy.value} onClick={() => (dropping.value = true)}>Drop {label}</button>
        )}
      </div>
      <Trouble text={trouble.value} />
      {report.value && <Report {...report.value} />}
    </>
  );
}

function Report({ dry, what, report }: { dry: boolean; what: string; report: Settled }) {
  const verb = what === "drop" ? "dropped" : "replayed";
  const lines = [
    `${plural(report.settled, "letter")} ${dry ? "would be" : report.settled === 1 ? "was" : "were"} ${verb}${report.appended ? `, ${whole(report.appended)} of them appended to their stream` : ""}.`,
    ...(report.again ? [`${whole(report.again)} will be refused again by the stage as it is now.`] : []),
    ...(report.unchanged && !report.again ? [`The stage is as it was when it refused ${whole(report.unchanged)} of them.`] : []),
    ...(report.late ? [`${whole(report.late)} stay open because they were late.`] : []),
    ...(report.before ? [`${whole(report.before)} had been settled before.`] : []),
    ...report.left.map((each) => `${plural(each.letters, "letter")} would stay open: ${each.reason}`),
    ...report.refusals.map((each) => `letter ${each.letter}: ${each.reason}`),
  ];
  const bad = report.settled === 0 || report.again > 0 || report.left.length > 0;
  return (
    <div class="result" role="status">
      {lines.map((line) => (
        <p key={line} class={bad ? "warn" : "good"}>{line}</p>
      ))}
    </div>
  );
}
