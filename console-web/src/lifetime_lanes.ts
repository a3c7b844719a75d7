/** On which line of a timeline each row is drawn: rows of one value together, rows of the same time below each other. */

import type { Lifetime } from "./api";
import { cellText } from "./exact_json";

export interface Lanes {
  /** The line of each row, in the order of the rows. */
  lanes: number[];
  /** How many lines there are. */
  count: number;
  /** The values by which rows are grouped, each with its first line; empty if they are not. */
  groups: { label: string; first: number }[];
}

const MOST_GROUPS = 200;

/** Rows in the order of their starts, grouped by a column or packed into as few lines as possible; instants have no length. */
export function lanesOf(rows: Lifetime[], by: string | null, instants = false): Lanes {
  if (by === null) {
    const { lanes, count } = packed(rows.map((_, at) => at), rows, instants);
    return { lanes, count, groups: [] };
  }
  const members = new Map<string, number[]>();
  rows.forEach((each, at) => {
    const label = cellText(each.row[by]);
    const known = members.get(label);
    if (known) known.push(at);
    else members.set(label, [at]);
  });
  const lanes = new Array<number>(rows.length).fill(0);
  const groups: { label: string; first: number }[] = [];
  let count = 0;
  for (const label of [...members.keys()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }))) {
    const inside = members.get(label)!;
    const own = packed(inside, rows, instants);
    inside.forEach((at, number) => (lanes[at] = count + own.lanes[number]!));
    groups.push({ label, first: count });
    count += own.count;
  }
  return { lanes, count, groups };
}

function packed(places: number[], rows: Lifetime[], instants: boolean): { lanes: number[]; count: number } {
  const ends: number[] = [];
  const lanes = places.map((at) => {
    const { from_us, to_us } = rows[at]!;
    let lane = ends.findIndex((end) => end <= from_us);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = instants ? from_us + 1 : (to_us ?? Infinity);
    return lane;
  });
  return { lanes, count: ends.length };
}

/** The column by which a timeline is grouped at first: one with several values, but not a value for almost every row. */
export function groupColumn(rows: Lifetime[], names: string[]): string | null {
  for (const name of names) {
    const values = new Set(rows.map((each) => cellText(each.row[name])));
    const texts = rows.some((each) => typeof each.row[name] === "string");
    if (texts && values.size > 1 && values.size <= Math.min(MOST_GROUPS, rows.length * 0.7)) return name;
  }
  const [first] = names;
  if (first === undefined || rows.length === 0) return null;
  const values = new Set(rows.map((each) => cellText(each.row[first])));
  return values.size > 1 && values.size <= Math.min(40, rows.length * 0.5) ? first : null;
}
