/** Numbers, durations and times as short text. */

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number in at most six characters. */
export function compact(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  if (count > 0 && count < 9.95 && !Number.isInteger(count)) return count.toFixed(1);
  if (count < 99_999.5) return NUMBER.format(count);
  for (const [unit, scale] of [["k", 1e3], ["M", 1e6], ["G", 1e9]] as const) {
    if (count < 999.5 * scale) return `${Number((count / scale).toPrecision(3))}${unit}`;
  }
  return `${Number((count / 1e12).toPrecision(3))}T`;
}

export function rate(perSecond: number | null | undefined): string {
  return perSecond === null || perSecond === undefined ? "–" : `${compact(perSecond)}/s`;
}

export function whole(count: number): string {
  return NUMBER.format(count);
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  for (const [unit, scale] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]] as const) {
    if (count < 999.5 * scale) return `${Number((count / scale).toPrecision(3))} ${unit}`;
  }
  return `${Number((count / 1e12).toPrecision(3))} TB`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86_400) return `${Number((seconds / 3600).toFixed(1))} h`;
  return `${Number((seconds / 86_400).toFixed(1))} days`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/** An instant in microseconds as ISO text in UTC, with the digits that it needs. */
export function isoText(us: number): string {
  const second = Math.floor(us / 1e6);
  const rest = us - second * 1e6;
  const head = new Date(second * 1000).toISOString().slice(0, 19);
  const digits = rest === 0 ? "" : `.${String(rest).padStart(6, "0").replace(/0+$/, "")}`;
  return `${head}${digits}Z`;
}

/** The microseconds of an ISO text in UTC; null if it is none. */
export function microseconds(text: string): number | null {
  const match = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d:\d\d)?$/.exec(text.trim());
  if (match === null) return null;
  const ms = Date.parse(`${match[1]}T${match[2] ?? "00:00"}${match[4] ?? "Z"}`);
  if (Number.isNaN(ms)) return null;
  return ms * 1000 + Number((match[3] ?? "").slice(0, 6).padEnd(6, "0"));
}

/** A time without the date and the zone if it is short of a day from another one; else without the zone. */
export function timeText(text: string | null | undefined): string {
  return text === null || text === undefined ? "–" : text.replace("T", " ").replace(/Z$/, "");
}

export function clockText(text: string | null | undefined): string {
  return text === null || text === undefined ? "–" : timeText(text).slice(11, 19) || timeText(text);
}

/** Labels of an axis for instants that are `step` microseconds apart. */
export function axisLabel(us: number, step: number): string {
  const text = isoText(us);
  if (step >= 86_400e6) return text.slice(0, 10);
  if (step >= 60e6) return us % 86_400e6 === 0 ? text.slice(5, 10) : text.slice(11, 16);
  if (step >= 1e6) return text.slice(11, 19);
  const [whole = "", part = ""] = text.slice(14).replace("Z", "").split(".");
  return `${whole}.${part.padEnd(step >= 1e3 ? 3 : 6, "0")}`;
}
