/** Edits of dead letters: where a record is faulty, which letters are alike, and how a changed record is sent. */

import { type Json, Exact, compactJson, parseJson } from "./exact_json";

/** The columns that a reason names, of those that the record has or lacks. */
export function faultyColumns(reason: string): string[] {
  const head = reason.split("\n")[0]!;
  const named = [...head.matchAll(/(?:column|field) "((?:[^"\\]|\\.)+)"/g)].map((match) => match[1]!);
  const paths = [...head.matchAll(/(?:^|[\s(,])\.([A-Za-z_]\w*)/g)].map((match) => match[1]!);
  return [...new Set([...named, ...paths])];
}

/** The part of a reason in which similar ones agree: without numbers and quoted values. */
export function alike(reason: string): string {
  return reason
    .split("\n")[0]!
    .replace(/not "[^"]*"/g, "not _")
    .replace(/'[^']*'/g, "_")
    .replace(/[0-9]+/g, "0");
}

export function isRecord(value: Json): value is Record<string, Json> {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Exact);
}

export function recordOf(text: string): Record<string, Json> | null {
  try {
    const value = parseJson(text);
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

/** The fields of a replay that turn the record of a letter into the edited one; an error in words if that is no record. */
export function editOf(before: string, after: string): { fields: Record<string, unknown> } | { wrong: string } {
  let edited: Json;
  try {
    edited = parseJson(after);
  } catch (error) {
    return { wrong: `this is not JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
  if (!isRecord(edited)) return { wrong: "a record is a JSON object" };
  const original = recordOf(before);
  if (original === null || Object.keys(original).some((name) => !(name in edited))) return { fields: { edit: compactJson(edited) } };
  const changed = Object.entries(edited).filter(([name, value]) => !(name in original) || compactJson(original[name]!) !== compactJson(value));
  return { fields: changed.length ? { set: Object.fromEntries(changed) } : {} };
}
