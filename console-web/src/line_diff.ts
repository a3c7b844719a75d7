/** The difference of two texts, line by line (Myers: the shortest list of removed and added lines), in hunks with context. */

export interface DiffLine {
  mark: " " | "+" | "-";
  text: string;
  /** Line numbers, from 1; null where the line is not there. */
  before: number | null;
  after: number | null;
}

export interface Hunk {
  head: string;
  lines: DiffLine[];
}

/** With more differences than this, what lies between the first and the last one counts as replaced. */
const MOST_EDITS = 600;

export function diffLines(before: string, after: string): DiffLine[] {
  const one = linesOf(before);
  const other = linesOf(after);
  let first = 0;
  while (first < one.length && first < other.length && one[first] === other[first]) first++;
  let last = 0;
  while (last < one.length - first && last < other.length - first && one[one.length - 1 - last] === other[other.length - 1 - last]) last++;
  const marks = [
    ...Array<" ">(first).fill(" "),
    ...editScript(one.slice(first, one.length - last), other.slice(first, other.length - last)),
    ...Array<" ">(last).fill(" "),
  ];
  let at = 0;
  let place = 0;
  return marks.map((mark) => {
    if (mark === "-") return { mark, text: one[at]!, before: ++at, after: null };
    if (mark === "+") return { mark, text: other[place]!, before: null, after: ++place };
    return { mark, text: one[at]!, before: ++at, after: ++place };
  });
}

/** The lines of a text; a line end at its end begins no further line. */
function linesOf(text: string): string[] {
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

/** How to get from one list to the other: keep, remove and add lines, in order. */
function editScript(one: string[], other: string[]): DiffLine["mark"][] {
  const most = Math.min(one.length + other.length, MOST_EDITS);
  /** The farthest line of `one` on each diagonal, after each number of edits. */
  const trace: Map<number, number>[] = [];
  const reached = new Map<number, number>([[1, 0]]);
  for (let edits = 0; edits <= most; edits++) {
    trace.push(new Map(reached));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const down = diagonal === -edits || (diagonal !== edits && reached.get(diagonal - 1)! < reached.get(diagonal + 1)!);
      let x = down ? reached.get(diagonal + 1)! : reached.get(diagonal - 1)! + 1;
      while (x < one.length && x - diagonal < other.length && one[x] === other[x - diagonal]) x++;
      reached.set(diagonal, x);
      if (x >= one.length && x - diagonal >= other.length) return walkBack(trace, one.length, other.length);
    }
  }
  return [...Array<"-">(one.length).fill("-"), ...Array<"+">(other.length).fill("+")];
}

function walkBack(trace: Map<number, number>[], x: number, y: number): DiffLine["mark"][] {
  const marks: DiffLine["mark"][] = [];
  for (let edits = trace.length - 1; edits > 0; edits--) {
    const reached = trace[edits]!;
    const diagonal = x - y;
    const down = diagonal === -edits || (diagonal !== edits && reached.get(diagonal - 1)! < reached.get(diagonal + 1)!);
    const from = down ? diagonal + 1 : diagonal - 1;
    const startX = reached.get(from)!;
    const startY = startX - from;
    const keptX = down ? startX : startX + 1;
    for (; x > keptX; x--, y--) marks.push(" ");
    marks.push(down ? "+" : "-");
    x = startX;
    y = startY;
  }
  for (; x > 0; x--) marks.push(" ");
  return marks.reverse();
}

/** The changed lines with `context` lines around them; lines in between are left out. */
export function hunksOf(lines: DiffLine[], context = 3): Hunk[] {
  const near = lines.map(() => false);
  lines.forEach((line, at) => {
    if (line.mark !== " ") near.fill(true, Math.max(0, at - context), at + context + 1);
  });
  const hunks: Hunk[] = [];
  for (let at = 0; at < lines.length; at++) {
    if (!near[at]) continue;
    const begin = at;
    while (at < lines.length && near[at]) at++;
    const part = lines.slice(begin, at);
    const [before, after] = [part.filter((line) => line.before !== null), part.filter((line) => line.after !== null)];
    const range = (each: DiffLine[], start: number) => `${start},${each.length}`;
    hunks.push({ head: `@@ -${range(before, before[0]?.before ?? 0)} +${range(after, after[0]?.after ?? 0)} @@`, lines: part });
  }
  return hunks;
}

export function changedCounts(lines: DiffLine[]): { added: number; removed: number } {
  return { added: lines.filter((line) => line.mark === "+").length, removed: lines.filter((line) => line.mark === "-").length };
}
