// SVG charts: stacked bars, lines, a calibration curve, ranked bars.
//
// Every chart is accessible in three ways: as a drawing, by pointer or arrow keys (the value at the cursor
// is shown as text), and as a table. Colours come from pages.css. Series do not differ by colour alone:
// lines have dashes and marks, stacks have a fixed order.
import { Name, html, formatNumber, useEffect, useRef, useState } from "./ui.js";

const MARGIN = { top: 10, right: 12, bottom: 24, left: 48 };
const HEIGHT = 190;
const MIN_WIDTH = 240;
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "12 4"];

const formatDecimal = (value) => String(Number(value.toFixed(Math.abs(value) < 10 ? 1 : 0)));

/** Formats a share between 0 and 1 in percent. */
export function formatPercent(value) {
  return value === null || value === undefined ? "–" : `${formatDecimal(value * 100)} %`;
}

/** Returns about five round axis marks from 0 to at least `max`. `whole`: integers only. */
export function computeTicks(max, whole = false) {
  if (!(max > 0)) return [0, 1];
  const rough = Math.max(max / 4, whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough && (!whole || Number.isInteger(size)));
  const marks = [];
  for (let index = 0; (index - 1) * step < max; index += 1) marks.push(Number((index * step).toPrecision(12)));
  return marks;
}

const DAY = 86_400;

/** Returns the label of a bucket: the time of day, or the date if buckets are days. */
export function formatBucketTime(at, step, span) {
  const when = new Date(at);
  if (step >= DAY) return when.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const time = when.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
  if (span <= DAY + step) return time;
  return `${when.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

/** Returns the width of an element, updated on resize. */
function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return Math.max(width, MIN_WIDTH);
}

/** The frame of a chart: title, choices, legend, drawing, and the same figures as a table. */
export function Chart({ title, note, choice, series = [], legend = series.length > 1, table, empty, children }) {
  if (empty) {
    return html`<figure class="chart">
      <figcaption>${title}</figcaption>
      <p class="chart-empty">${empty}</p>
    </figure>`;
  }
  return html`<figure class="chart">
    <figcaption>${title}${note && html`<span class="chart-note">${note}</span>`}${choice}</figcaption>
    ${legend ? html`<${Legend} series=${series} />` : null} ${children}
    ${table && html`<${DataTable} title=${title} ...${table} />`}
  </figure>`;
}

function Legend({ series }) {
  return html`<ul class="chart-legend">
    ${series.map(
      (one) => html`<li key=${one.name}>
        <svg width=${one.line ? 22 : 14} height="10" aria-hidden="true">
          ${one.line
            ? html`<path class=${`stroke-${one.colour}`} d="M1 5H21" stroke-dasharray=${one.dash} fill="none" />`
            : html`<rect class=${`fill-${one.colour}`} width="14" height="10" rx="2" />`}
        </svg>
        ${one.label}
      </li>`,
    )}
  </ul>`;
}

function DataTable({ title, head, rows }) {
  return html`<details class="chart-table">
    <summary>As a table</summary>
    <div class="chart-scroll" tabindex="0" role="region" aria-label=${`${title}, as a table`}>
      <table>
        <thead>
          <tr>
            ${head.map((cell, index) => html`<th key=${index} scope="col">${cell}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row, rowIndex) => html`<tr key=${rowIndex}>
              ${row.map((cell, index) =>
                index === 0 ? html`<th key=${index} scope="row">${cell}</th>` : html`<td key=${index}>${cell}</td>`,
              )}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

/** A drawing with a cursor. It has `count` positions; `read(index)` returns the text at one. */
function ExplorablePlot({ label, count, height = HEIGHT, getX, read, draw }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [at, setAt] = useState(null);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const active = at === null ? null : Math.min(at, count - 1);

  const handlePointer = (event) => {
    const x = event.clientX - box.current.getBoundingClientRect().left - MARGIN.left;
    setAt(findNearest(x, count, (index) => getX(index, inner)));
  };
  const handleKey = (event) => {
    const to = getNextIndex(event.key, active, count);
    if (to === undefined) return;
    event.preventDefault();
    setAt(to);
  };
  return html`<div class="chart-walk">
    <div
      class="chart-plot"
      ref=${box}
      tabindex="0"
      role="group"
      aria-label=${`${label}. Arrow keys walk through it.`}
      onPointerMove=${handlePointer}
      onPointerLeave=${() => setAt(null)}
      onKeyDown=${handleKey}
      onFocus=${(event) => event.target.matches(":focus-visible") && active === null && setAt(count - 1)}
      onBlur=${() => setAt(null)}
    >
      <svg width=${width} height=${height} aria-hidden="true">
        <g transform=${`translate(${MARGIN.left} ${MARGIN.top})`}>${draw(inner, active)}</g>
      </svg>
    </div>
    <p class="chart-said" aria-live="polite">${active === null ? "\u00a0" : read(active)}</p>
  </div>`;
}

/** Returns the index of the position closest to `x`. */
export function findNearest(x, count, getX) {
  let best = 0;
  for (let index = 1; index < count; index += 1) {
    if (Math.abs(getX(index) - x) < Math.abs(getX(best) - x)) best = index;
  }
  return best;
}

/** Returns the next index for a key: undefined for other keys, null to leave the chart. */
export function getNextIndex(key, active, count) {
  const last = count - 1;
  switch (key) {
    case "ArrowRight":
      return active === null ? 0 : Math.min(active + 1, last);
    case "ArrowLeft":
      return active === null ? last : Math.max(active - 1, 0);
    case "Home":
      return 0;
    case "End":
      return last;
    case "Escape":
      return null;
    default:
      return undefined;
  }
}

function YAxis({ marks, inner, format }) {
  const top = marks[marks.length - 1];
  return marks.map((mark) => {
    const y = inner.height * (1 - mark / top);
    return html`<g key=${mark} transform=${`translate(0 ${y})`}>
      <path class="chart-grid" d=${`M0 0H${inner.width}`} />
      <text class="chart-label" x="-6" y="4" text-anchor="end">${mark === 0 ? "0" : format(mark)}</text>
    </g>`;
  });
}

/** Labels below the chart, as many as fit. */
function XAxis({ labels, getX, inner }) {
  const longest = Math.max(...labels.map((label) => label.length), 1);
  const room = Math.max(1, Math.floor(inner.width / (longest * 6.2 + 30)));
  const every = Math.max(1, Math.ceil(labels.length / room));
  return labels.map(
    (label, index) =>
      index % every === 0 &&
      html`<text
        key=${index}
        class="chart-label"
        x=${getX(index)}
        y=${inner.height + 17}
        text-anchor=${getTextAnchor(getX(index), inner.width)}
      >
        ${label}
      </text>`,
  );
}

const getTextAnchor = (x, width) => (x < 16 ? "start" : x > width - 16 ? "end" : "middle");

/**
 * Counts over time by kind.
 * `labels` and `rows` have the same length; a row is {series name: number}; `series`: [{name, label}].
 */
export function StackedBars({ title, note, legend, labels, rows, series, format = formatNumber, empty }) {
  const coloured = series.map((one, index) => ({ colour: index + 1, ...one }));
  const sums = rows.map((row) => coloured.reduce((sum, one) => sum + (row[one.name] || 0), 0));
  const nothing = sums.every((sum) => sum === 0);
  const marks = computeTicks(Math.max(...sums, 0), true);
  const top = marks[marks.length - 1];
  const slot = (inner) => inner.width / labels.length;
  const read = (index) =>
    `${labels[index]}: ${
      coloured
        .filter((one) => rows[index][one.name])
        .map((one) => `${one.label} ${format(rows[index][one.name])}`)
        .join(", ") || "nothing"
    }`;
  const table = {
    head: ["When", ...coloured.map((one) => one.label)],
    rows: rows.map((row, index) => [labels[index], ...coloured.map((one) => format(row[one.name] || 0))]),
  };
  return html`<${Chart} title=${title} note=${note} legend=${legend} series=${coloured} table=${table} empty=${nothing && empty}>
    <${ExplorablePlot}
      label=${title}
      count=${labels.length}
      getX=${(index, inner) => (index + 0.5) * slot(inner)}
      read=${read}
      draw=${(inner, active) => {
        const wide = Math.max(1, Math.min(slot(inner) * 0.76, 34));
        const x = (index) => (index + 0.5) * slot(inner);
        return html`<${YAxis} marks=${marks} inner=${inner} format=${format} />
          ${active !== null &&
          html`<rect class="chart-here" x=${x(active) - slot(inner) / 2} width=${slot(inner)} height=${inner.height} />`}
          ${rows.map((row, index) => {
            let under = 0;
            return coloured.map((one) => {
              const value = row[one.name] || 0;
              if (!value) return null;
              const tall = (inner.height * value) / top;
              under += tall;
              return html`<rect
                key=${`${index}-${one.name}`}
                class=${`fill-${one.colour}`}
                x=${x(index) - wide / 2}
                y=${inner.height - under}
                width=${wide}
                height=${Math.max(tall - (tall > 3 ? 1 : 0), 0.5)}
              />`;
            });
          })}
          <${XAxis} labels=${labels} getX=${x} inner=${inner} />`;
      }}
    />
  <//>`;
}

/** Values over time, one line for each series; a row without a value leaves a gap. */
export function Lines({ title, note, choice, labels, rows, series, format = formatNumber, empty }) {
  const coloured = series.map((one, index) => ({
    colour: index + 1,
    dash: DASHES[((one.colour ?? index + 1) - 1) % DASHES.length],
    line: true,
    ...one,
  }));
  const getValue = (row, one) => (typeof row[one.name] === "number" ? row[one.name] : null);
  const values = rows.flatMap((row) => coloured.map((one) => getValue(row, one))).filter((value) => value !== null);
  const marks = computeTicks(Math.max(...values, 0));
  const top = marks[marks.length - 1];
  const read = (index) =>
    `${labels[index]}: ${
      coloured
        .filter((one) => getValue(rows[index], one) !== null)
        .map((one) => `${one.label} ${format(rows[index][one.name])}`)
        .join(", ") || "nothing"
    }`;
  const place = (index, inner) => (labels.length === 1 ? inner.width / 2 : (index / (labels.length - 1)) * inner.width);
  const table = {
    head: ["When", ...coloured.map((one) => one.label)],
    rows: rows.map((row, index) => [labels[index], ...coloured.map((one) => format(getValue(row, one)))]),
  };
  return html`<${Chart} title=${title} note=${note} choice=${choice} series=${coloured} table=${table} empty=${!values.length && empty}>
    <${ExplorablePlot}
      label=${title}
      count=${labels.length}
      getX=${place}
      read=${read}
      draw=${(inner, active) => {
        const y = (value) => inner.height * (1 - value / top);
        return html`<${YAxis} marks=${marks} inner=${inner} format=${format} />
          ${active !== null && html`<path class="chart-cursor" d=${`M${place(active, inner)} 0V${inner.height}`} />`}
          ${coloured.map(
            (one) => html`<g key=${one.name}>
              <path
                class=${`chart-line stroke-${one.colour}`}
                stroke-dasharray=${one.dash}
                d=${buildPath(rows.map((row, index) => {
                  const value = getValue(row, one);
                  return value === null ? null : [place(index, inner), y(value)];
                }))}
              />
              ${rows.map((row, index) => {
                const value = getValue(row, one);
                const alone = value !== null && getValue(rows[index - 1] || {}, one) === null;
                return (
                  value !== null &&
                  (alone || index === active || rows.length <= 24) &&
                  html`<circle
                    key=${index}
                    class=${`fill-${one.colour}`}
                    cx=${place(index, inner)}
                    cy=${y(value)}
                    r=${index === active ? 4 : 2.2}
                  />`
                );
              })}
            </g>`,
          )}
          <${XAxis} labels=${labels} getX=${(index) => place(index, inner)} inner=${inner} />`;
      }}
    />
  <//>`;
}

/** Returns an SVG path through points. null starts a new segment. */
export function buildPath(points) {
  let pen = false;
  const parts = [];
  for (const point of points) {
    if (point === null) {
      pen = false;
      continue;
    }
    parts.push(`${pen ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`);
    pen = true;
  }
  return parts.join("");
}

/** Claimed confidence against accuracy. On the diagonal both are equal. Larger dots are more cases. */
export function Curve({ title, note, points, empty }) {
  const max = Math.max(...points.map((point) => point.count), 1);
  const read = (index) => {
    const { claimed, right, count } = points[index];
    return `claimed ${formatPercent(claimed)}, right in ${formatPercent(right)} of ${formatNumber(count)} cases`;
  };
  const table = {
    head: ["Claimed", "Right", "Cases"],
    rows: points.map((point) => [formatPercent(point.claimed), formatPercent(point.right), formatNumber(point.count)]),
  };
  return html`<${Chart} title=${title} note=${note} table=${table} empty=${!points.length && empty}>
    <${ExplorablePlot}
      label=${title}
      count=${points.length}
      height=${240}
      getX=${(index, inner) => points[index].claimed * inner.width}
      read=${read}
      draw=${(inner, active) => {
        const at = (point) => [point.claimed * inner.width, (1 - point.right) * inner.height];
        return html`<${YAxis} marks=${[0, 0.25, 0.5, 0.75, 1]} inner=${inner} format=${formatPercent} />
          <path class="chart-diagonal" d=${`M0 ${inner.height}L${inner.width} 0`} />
          <path class="chart-line stroke-1" d=${buildPath(points.map(at))} />
          ${points.map((point, index) => {
            const [x, y] = at(point);
            const size = 3 + 6 * Math.sqrt(point.count / max);
            return html`<circle
              key=${index}
              class=${index === active ? "fill-2" : "fill-1"}
              cx=${x}
              cy=${y}
              r=${size}
            />`;
          })}
          <${XAxis}
            labels=${["0 %", "25 %", "50 %", "75 %", "100 %"]}
            getX=${(index) => (index / 4) * inner.width}
            inner=${inner}
          />`;
      }}
    />
  <//>`;
}

/** Items in order of size: label, bar, number. Needs no separate table. */
export function RankedBars({ title, note, items, format = formatNumber, empty }) {
  const max = Math.max(...items.map((item) => item.value), 0);
  return html`<${Chart} title=${title} note=${note} empty=${!items.length && empty}>
    <ol class="ranked">
      ${items.map(
        (item) => html`<li key=${item.label}>
          <span class="ranked-label">
            ${item.href ? html`<a href=${item.href}><${Name} text=${item.label} /></a>` : html`<${Name} text=${item.label} />`}
          </span>
          <span class="ranked-bar" aria-hidden="true">
            <span style=${{ inlineSize: `${max ? (100 * item.value) / max : 0}%` }}></span>
          </span>
          <span class="ranked-value">
            ${format(item.value)}${item.note && html`<span class="chart-note">${item.note}</span>`}
          </span>
        </li>`,
      )}
    </ol>
  <//>`;
}
