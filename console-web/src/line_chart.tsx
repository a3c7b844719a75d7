/** Lines over the last hour, told apart by dashes and colours, with a legend. */

export interface Series {
  name: string;
  /** Oldest first; the last one is the newest sample. */
  values: number[];
}

const DASHES = ["", "7 3", "2 3", "10 3 2 3", "5 5", "1 4"];
const COLOURS = ["--link", "--mark-operation", "--good", "--mark-job", "--bad", "--quiet"];
const WIDTH = 560;
const HEIGHT = 130;
const LEFT = 44;
const LEAST = 12;

export interface Scale {
  count: number;
  top: number;
}

/** How many samples the axis has, and its greatest value: rounded up to 1, 2 or 5. */
export function scaleOf(series: Series[], top?: number): Scale {
  const count = Math.max(LEAST, ...series.map((each) => each.values.length));
  const greatest = Math.max(0, ...series.flatMap((each) => each.values));
  if (top !== undefined) return { count, top };
  if (greatest === 0) return { count, top: 1 };
  const unit = 10 ** Math.floor(Math.log10(greatest));
  return { count, top: Number(([1, 2, 5, 10].find((step) => step * unit >= greatest * 0.999)! * unit).toPrecision(6)) };
}

export function pointsOf(values: number[], { count, top }: Scale, width: number, height: number): string {
  const step = width / (count - 1);
  return values.map((value, at) => `${((count - values.length + at) * step).toFixed(1)},${(height - (Math.min(value, top) / top) * height).toFixed(1)}`).join(" ");
}

export function LineChart(props: { title: string; series: Series[]; seconds: number; top?: number; text: (value: number) => string }) {
  const scale = scaleOf(props.series, props.top);
  const minutes = Math.round(((scale.count - 1) * props.seconds) / 60);
  const width = WIDTH - LEFT - 4;
  const now = props.series.map((each) => `${each.name} ${props.text(each.values.at(-1) ?? 0)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 30}`} role="img" aria-label={`${props.title}, the last ${minutes} minutes; now: ${now || "nothing"}`}>
        <g transform={`translate(${LEFT} 8)`}>
          {[0, 0.5, 1].map((part) => (
            <g key={part} class="chart-grid">
              <line x1={0} x2={width} y1={HEIGHT * (1 - part)} y2={HEIGHT * (1 - part)} />
              <text x={-6} y={HEIGHT * (1 - part) + 4} text-anchor="end">{props.text(scale.top * part)}</text>
            </g>
          ))}
          {props.series.map((each, at) => (
            <polyline key={each.name} points={pointsOf(each.values, scale, width, HEIGHT)} style={lineStyle(at)} />
          ))}
          <g class="chart-grid">
            <text x={0} y={HEIGHT + 17}>{minutes} min ago</text>
            <text x={width} y={HEIGHT + 17} text-anchor="end">now</text>
          </g>
        </g>
      </svg>
      <ul class="legend">
        {props.series.map((each, at) => (
          <li key={each.name}>
            <svg width="30" height="8" aria-hidden="true"><polyline points="0,4 30,4" style={lineStyle(at)} /></svg> {each.name} <span class="quiet">{props.text(each.values.at(-1) ?? 0)}</span>
          </li>
        ))}
      </ul>
    </figure>
  );
}

function lineStyle(at: number) {
  return { stroke: `var(${COLOURS[at % COLOURS.length]})`, strokeDasharray: DASHES[at % DASHES.length] || "none" };
}
