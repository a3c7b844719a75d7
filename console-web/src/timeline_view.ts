/** The range of event time that a timeline shows: zooming, panning, and the ticks of its axis. Times are microseconds. */

export interface Range {
  start: number;
  end: number;
}

const LEAST = 10;

/** The range made smaller (factor below 1) or larger, with the instant `at` where it was. */
export function zoomed(range: Range, factor: number, at: number, bounds: Range): Range {
  const span = Math.max(LEAST, (range.end - range.start) * factor);
  const part = (at - range.start) / (range.end - range.start);
  return within({ start: at - part * span, end: at + (1 - part) * span }, bounds);
}

export function panned(range: Range, by: number, bounds: Range): Range {
  return within({ start: range.start + by, end: range.end + by }, bounds);
}

/** The range moved into the bounds, and cut if it is longer than they are. */
export function within(range: Range, bounds: Range): Range {
  const span = Math.min(range.end - range.start, bounds.end - bounds.start);
  const start = Math.min(Math.max(range.start, bounds.start), bounds.end - span);
  return { start: Math.round(start), end: Math.round(start + span) };
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].flatMap((step) => [step])
  .concat([1, 2, 5, 10, 20, 50, 100, 200, 500].map((step) => step * 1e3))
  .concat([1, 2, 5, 10, 15, 30].map((step) => step * 1e6))
  .concat([1, 2, 5, 10, 15, 30].map((step) => step * 60e6))
  .concat([1, 2, 3, 6, 12].map((step) => step * 3600e6))
  .concat([1, 2, 7, 14, 30, 91, 365, 3650].map((step) => step * 86_400e6));

/** Round instants for at most `most` labels, and the step between them. */
export function ticks(range: Range, most: number): { step: number; at: number[] } {
  const least = (range.end - range.start) / Math.max(1, most);
  const step = STEPS.find((each) => each >= least) ?? STEPS.at(-1)!;
  const at: number[] = [];
  for (let tick = Math.ceil(range.start / step) * step; tick < range.end; tick += step) at.push(tick);
  return { step, at };
}
