/** JSON with all digits: numbers that a double cannot hold keep their text. */

export type Json = null | boolean | number | string | Exact | Json[] | { [name: string]: Json };

/** A number by its text, for one that would lose digits as a double. */
export class Exact {
  constructor(readonly text: string) {}

  toJSON(): unknown {
    const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;
    return raw === undefined ? Number(this.text) : raw(this.text);
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

const revive: Reviver = (_, value, context) =>
  typeof value === "number" && context?.source !== undefined ? exactNumber(value, context.source) : value;

/** A number that was read from a text: the text, if the number has lost digits of it. */
export function exactNumber(value: number, source: string): number | Exact {
  return isExact(value, source) ? value : new Exact(source);
}

function isExact(value: number, source: string): boolean {
  if (Number.isInteger(value) && /^-?\d+$/.test(source)) return Number.isSafeInteger(value);
  return source.replace(/[-.]|e.*$/gi, "").replace(/^0+/, "").length <= 15;
}

export function parseJson(text: string): Json {
  return JSON.parse(text, revive as never) as Json;
}

/** A value as a cell shows it: texts as they are, anything else as JSON. */
export function cellText(value: Json | undefined): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return value;
  if (value instanceof Exact) return value.text;
  if (typeof value === "number") return String(value);
  return compactJson(value);
}

export function compactJson(value: Json): string {
  if (value instanceof Exact) return value.text;
  if (Array.isArray(value)) return `[${value.map(compactJson).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    const parts = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${compactJson(each)}`);
    return `{${parts.join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** JSON on several lines, one for each member of the outermost object. */
export function prettyJson(value: Json): string {
  if (value === null || typeof value !== "object" || Array.isArray(value) || value instanceof Exact) return compactJson(value);
  const lines = Object.entries(value).map(([name, each]) => `  ${JSON.stringify(name)}: ${compactJson(each)}`);
  return lines.length ? `{\n${lines.join(",\n")}\n}` : "{}";
}
