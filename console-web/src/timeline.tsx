/** The timeline of lifetimes: rows as bars over event time, how many there are above them, and a cursor for an instant. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Lifetime, Lifetimes } from "./api";
import { cellText } from "./exact_json";
import { axisLabel, compact, isoText, timeText } from "./format";
import { type Lanes, lanesOf } from "./lifetime_lanes";
import { colour, theme } from "./theme";
import { type Range, panned, ticks, within, zoomed } from "./timeline_view";

const DENSITY = 46;
const AXIS = 22;
const LABELS = 108;
const TALLEST = 22;

export interface TimelineProps {
  data: Lifetimes;
  range: Range;
  bounds: Range;
  cursor: number | null;
  by: string | null;
  isStream: boolean;
  onCursor: (at: number | null) => void;
  onRange: (range: Range) => void;
  onAll: () => void;
}

export function TimelineView(props: TimelineProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const size = useSignal({ width: 800, height: 340 });
  const hover = useSignal<{ x: number; y: number; row: Lifetime } | null>(null);
  const lanes = useMemo(() => lanesOf(props.data.rows, props.by, props.isStream), [props.data, props.by, props.isStream]);
  const drag = useRef<{ kind: "cursor" | "pan"; x: number; range: Range } | null>(null);
  const left = props.by === null ? 0 : LABELS;
  const plot = size.value.width - left;
  void theme.value; // painted again when it changes

  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (box.current) size.value = { width: box.current.clientWidth, height: box.current.clientHeight };
    });
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (canvas.current) paint(canvas.current, size.value.width, size.value.height, props, lanes);
  });

  const instantAt = (x: number) => props.range.start + ((x - left) / plot) * (props.range.end - props.range.start);
  const place = (event: MouseEvent) => {
    const frame = canvas.current!.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  const moveCursor = (at: number) => props.onCursor(Math.round(Math.min(Math.max(at, props.bounds.start), props.bounds.end - 1)));

  const onDown = (event: PointerEvent) => {
    const { x, y } = place(event);
    if (x < left || event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    drag.current = { kind: y < DENSITY || y > size.value.height - AXIS ? "pan" : "cursor", x, range: props.range };
    if (drag.current.kind === "cursor") moveCursor(instantAt(x));
  };
  const onMove = (event: PointerEvent) => {
    const { x, y } = place(event);
    const held = drag.current;
    if (held === null) {
      const row = rowAt(x, y, size.value.height, left, plot, props, lanes);
      hover.value = row === null ? null : { x, y, row };
    } else if (held.kind === "cursor") moveCursor(instantAt(x));
    else props.onRange(panned(held.range, ((held.x - x) / plot) * (held.range.end - held.range.start), props.bounds));
  };
  const onWheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const span = props.range.end - props.range.start;
    if (event.ctrlKey || event.metaKey) props.onRange(zoomed(props.range, Math.exp(event.deltaY / 300), instantAt(place(event).x), props.bounds));
    else props.onRange(panned(props.range, (event.deltaX / plot) * span, props.bounds));
  };
  useEffect(() => {
    const element = canvas.current!;
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  });
  const onKey = (event: KeyboardEvent) => {
    const span = props.range.end - props.range.start;
    const at = props.cursor ?? props.bounds.end - 1;
    const step = span / (event.shiftKey ? 20 : 200);
    if (event.key === "ArrowLeft") moveCursor(at - step);
    else if (event.key === "ArrowRight") moveCursor(at + step);
    else if (event.key === "+" || event.key === "=") props.onRange(zoomed(props.range, 0.5, at, props.bounds));
    else if (event.key === "-") props.onRange(zoomed(props.range, 2, at, props.bounds));
    else if (event.key === "Home") props.onAll();
    else if (event.key === "End") props.onCursor(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = props.cursor ?? props.bounds.end - 1;
  return (
    <div
      class="timeline"
      ref={box}
      tabIndex={0}
      role="slider"
      aria-label="Time cursor"
      aria-valuemin={0}
      aria-valuemax={1000}
      aria-valuenow={Math.round(((shown - props.bounds.start) / Math.max(1, props.bounds.end - props.bounds.start)) * 1000)}
      aria-valuetext={props.cursor === null ? "the present" : timeText(isoText(props.cursor))}
      onKeyDown={onKey}
    >
      <canvas ref={canvas} onPointerDown={onDown} onPointerMove={onMove} onPointerUp={() => (drag.current = null)} onPointerLeave={() => (hover.value = null)} />
      {hover.value && <Tip at={hover.value} width={size.value.width} />}
    </div>
  );
}

function Tip({ at, width }: { at: { x: number; y: number; row: Lifetime }; width: number }) {
  const { row } = at;
  const right = at.x > width / 2;
  return (
    <div class="tip" style={{ top: `${at.y + 14}px`, ...(right ? { right: `${width - at.x + 8}px` } : { left: `${at.x + 8}px` }) }}>
      <table>
        <tbody>
          {Object.entries(row.row).slice(0, 12).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{cellText(value).slice(0, 80)}</td>
            </tr>
          ))}
          <tr class="rule">
            <th scope="row">from</th>
            <td>{timeText(isoText(row.from_us))}</td>
          </tr>
          <tr>
            <th scope="row">to</th>
            <td>{row.to_us === null ? "not known yet" : timeText(isoText(row.to_us))}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

/** The height of a line: so that all fit if they can, and at least a pixel and a half. */
function laneHeight(height: number, count: number): number {
  return Math.max(1.5, Math.min(TALLEST, (height - DENSITY - AXIS - 8) / Math.max(1, count)));
}

function rowAt(x: number, y: number, height: number, left: number, plot: number, props: TimelineProps, lanes: Lanes): Lifetime | null {
  const tall = laneHeight(height, lanes.count);
  const lane = Math.floor((y - DENSITY - 4) / tall);
  const span = props.range.end - props.range.start;
  const spare = (3 / plot) * span;
  const at = props.range.start + ((x - left) / plot) * span;
  if (x < left || y > height - AXIS) return null;
  const found = props.data.rows.findIndex(
    (row, number) => lanes.lanes[number] === lane && row.from_us - spare <= at && (props.isStream ? row.from_us + spare >= at : (row.to_us ?? Infinity) + spare >= at),
  );
  return found < 0 ? null : props.data.rows[found]!;
}

// ---------------------------------------------------------------------------------------------------- painting

function paint(canvas: HTMLCanvasElement, width: number, height: number, props: TimelineProps, lanes: Lanes): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  const left = props.by === null ? 0 : LABELS;
  const { start, end } = props.range;
  const xOf = (us: number) => left + ((us - start) / (end - start)) * (width - left);
  paintDensity(pen, left, width, props, xOf);
  paintGroups(pen, left, width, height, lanes);
  paintBars(pen, left, width, height, props, lanes, xOf);
  paintAxis(pen, left, width, height, props.range, xOf);
  paintCursor(pen, height, props, xOf);
}

function paintDensity(pen: CanvasRenderingContext2D, left: number, width: number, props: TimelineProps, xOf: (us: number) => number): void {
  const { density, start_us, end_us } = props.data;
  const top = Math.max(1, ...density);
  if (start_us === null || end_us === null) return;
  const base = DENSITY - 6;
  pen.fillStyle = colour("--area");
  pen.beginPath();
  pen.moveTo(Math.max(left, xOf(start_us)), base);
  density.forEach((count, at) => {
    const y = base - (count / top) * (base - 14);
    pen.lineTo(Math.max(left, xOf(start_us + (at / density.length) * (end_us - start_us))), y);
    pen.lineTo(Math.max(left, xOf(start_us + ((at + 1) / density.length) * (end_us - start_us))), y);
  });
  pen.lineTo(Math.max(left, xOf(end_us)), base);
  pen.fill();
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "left";
  pen.fillText(`${compact(top)} ${props.isStream ? "records" : "rows"} at most`, left + 4, 11);
  pen.strokeStyle = colour("--line");
  pen.strokeRect(left - 0.5, base + 0.5, width, 0);
}

function paintGroups(pen: CanvasRenderingContext2D, left: number, width: number, height: number, lanes: Lanes): void {
  const tall = laneHeight(height, lanes.count);
  const bottom = height - AXIS;
  pen.fillStyle = colour("--stripe");
  lanes.groups.forEach((group, at) => {
    const y = DENSITY + 4 + group.first * tall;
    const next = lanes.groups[at + 1]?.first ?? lanes.count;
    if (at % 2 && y < bottom) pen.fillRect(0, y, width, Math.min((next - group.first) * tall, bottom - y));
  });
  let last = -Infinity;
  pen.fillStyle = colour("--text");
  pen.textAlign = "left";
  for (const group of lanes.groups) {
    const y = DENSITY + 4 + group.first * tall + Math.min(tall / 2 + 4, 14);
    if (y < last + 11 || y > bottom - 2) continue;
    last = y;
    pen.fillText(cut(pen, group.label, left - 10), 4, y);
  }
}

function cut(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let short = text.slice(0, 40);
  while (short.length > 1 && pen.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return `${short}…`;
}

function paintBars(pen: CanvasRenderingContext2D, left: number, width: number, height: number, props: TimelineProps, lanes: Lanes, xOf: (us: number) => number): void {
  const tall = laneHeight(height, lanes.count);
  const inner = Math.max(1, tall - (tall > 6 ? 3 : tall > 3 ? 1 : 0));
  const [plain, held, open] = [colour("--bar"), colour("--bar-at"), colour("--bar-open")];
  pen.save();
  pen.beginPath();
  pen.rect(left, DENSITY, width - left, height - DENSITY - AXIS);
  pen.clip();
  props.data.rows.forEach((row, at) => {
    const y = DENSITY + 4 + lanes.lanes[at]! * tall;
    if (y > height - AXIS) return;
    const holds = props.cursor !== null && row.from_us <= props.cursor && (row.to_us === null || row.to_us > props.cursor);
    const x = xOf(row.from_us);
    pen.fillStyle = holds && !props.isStream ? held : row.to_us === null && !props.isStream ? open : plain;
    if (props.isStream) pen.fillRect(x - 1, y, 2.5, inner);
    else pen.fillRect(x, y, Math.max(1.2, (row.to_us === null ? width + 4 : xOf(row.to_us)) - x - 0.6), inner);
  });
  pen.restore();
}

function paintAxis(pen: CanvasRenderingContext2D, left: number, width: number, height: number, range: Range, xOf: (us: number) => number): void {
  const { step, at } = ticks(range, (width - left) / 96);
  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "center";
  pen.strokeRect(left, height - AXIS + 0.5, width, 0);
  for (const tick of at) {
    const x = Math.round(xOf(tick)) + 0.5;
    pen.strokeRect(x, height - AXIS, 0, 4);
    if (x > left + 26 && x < width - 26) pen.fillText(axisLabel(tick, step), x, height - 6);
  }
}

function paintCursor(pen: CanvasRenderingContext2D, height: number, props: TimelineProps, xOf: (us: number) => number): void {
  const at = props.cursor;
  if (at === null) return;
  const { start } = within(props.range, props.range);
  if (at < start || at > props.range.end) return;
  const x = Math.round(xOf(at)) + 0.5;
  pen.strokeStyle = pen.fillStyle = colour("--cursor");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, 12);
  pen.lineTo(x, height - AXIS);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x - 6, 4);
  pen.lineTo(x + 6, 4);
  pen.lineTo(x, 13);
  pen.fill();
}
