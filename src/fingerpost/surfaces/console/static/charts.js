// Small charts of our own, drawn as SVG: stacked bars, lines, a calibration curve, ranked bars.
//
// Every chart can be read in three ways: by looking, by walking through it with pointer or arrow keys
// (what is under the cursor is said in a line of text), and as a table. Colours come from pages.css; no
// series is told apart by colour alone: lines have dashes and marks, stacks keep one order.
import { html, number, useEffect, useRef, useState } from "./ui.js";

const MARGIN = { top: 10, right: 12, bottom: 24, left: 48 };
const HEIGHT = 190;
const SMALLEST = 240;
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "12 4"];

// ---- numbers and times -------------------------------------------------------------------------------

const trim = (value) => String(Number(value.toFixed(Math.abs(value) < 10 ? 1 : 0)));

/** A share between 0 and 1 in percent. */
export function percent(value) {
  return value === null || value === undefined ? "–" : `${trim(value * 100)} %`;
}

/** Round steps from 0 to at least `most`, about five of them. `whole`: nothing between 1 and 2. */
export function ticks(most, whole = false) {
  if (!(most > 0)) return [0, 1];
  const rough = Math.max(most / 4, whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough && (!whole || Number.isInteger(size)));
  const marks = [];
  for (let index = 0; (index - 1) * step < most; index += 1) marks.push(Number((index * step).toPrecision(12)));
  return marks;
}

const DAY = 86_400;

/** What stands below a bucket: the time of day, or the date where buckets are days. */
export function momentOf(at, step, span) {
  const when = new Date(at);
  if (step >= DAY) return when.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const time = when.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
  if (span <= DAY + step) return time;
  return `${when.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

// ---- what every chart shares -------------------------------------------------------------------------

/** The width of an element, followed while the window changes. */
function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return Math.max(width, SMALLEST);
}

/** Title, what can be chosen, legend, the drawing, the same figures as a table. */
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
    ${table && html`<${AsTable} title=${title} ...${table} />`}
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

function AsTable({ title, head, rows }) {
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
            (row, number) => html`<tr key=${number}>
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

/** A drawing one can walk through: `count` places side by side, `read(index)` says what is at one. */
function Walkable({ label, count, height = HEIGHT, placeOf, read, draw }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [at, setAt] = useState(null);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const here = at === null ? null : Math.min(at, count - 1);

  const point = (event) => {
    const x = event.clientX - box.current.getBoundingClientRect().left - MARGIN.left;
    setAt(nearest(x, count, (index) => placeOf(index, inner)));
  };
  const walk = (event) => {
    const to = stepped(event.key, here, count);
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
      onPointerMove=${point}
      onPointerLeave=${() => setAt(null)}
      onKeyDown=${walk}
      onFocus=${(event) => event.target.matches(":focus-visible") && here === null && setAt(count - 1)}
      onBlur=${() => setAt(null)}
    >
      <svg width=${width} height=${height} aria-hidden="true">
        <g transform=${`translate(${MARGIN.left} ${MARGIN.top})`}>${draw(inner, here)}</g>
      </svg>
    </div>
    <p class="chart-said" aria-live="polite">${here === null ? "\u00a0" : read(here)}</p>
  </div>`;
}

/** The place closest to `x`. */
export function nearest(x, count, placeOf) {
  let best = 0;
  for (let index = 1; index < count; index += 1) {
    if (Math.abs(placeOf(index) - x) < Math.abs(placeOf(best) - x)) best = index;
  }
  return best;
}

/** Where a key leads to from `here`: undefined when the key is not ours, null when it leads out. */
export function stepped(key, here, count) {
  const last = count - 1;
  switch (key) {
    case "ArrowRight":
      return here === null ? 0 : Math.min(here + 1, last);
    case "ArrowLeft":
      return here === null ? last : Math.max(here - 1, 0);
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

function HeightAxis({ marks, inner, tell }) {
  const top = marks[marks.length - 1];
  return marks.map((mark) => {
    const y = inner.height * (1 - mark / top);
    return html`<g key=${mark} transform=${`translate(0 ${y})`}>
      <path class="chart-grid" d=${`M0 0H${inner.width}`} />
      <text class="chart-label" x="-6" y="4" text-anchor="end">${mark === 0 ? "0" : tell(mark)}</text>
    </g>`;
  });
}

/** Labels below, as many as have room. */
function WidthAxis({ labels, placeOf, inner }) {
  const longest = Math.max(...labels.map((label) => label.length), 1);
  const room = Math.max(1, Math.floor(inner.width / (longest * 6.2 + 30)));
  const every = Math.max(1, Math.ceil(labels.length / room));
  return labels.map(
    (label, index) =>
      index % every === 0 &&
      html`<text
        key=${index}
        class="chart-label"
        x=${placeOf(index)}
        y=${inner.height + 17}
        text-anchor=${anchor(placeOf(index), inner.width)}
      >
        ${label}
      </text>`,
  );
}

const anchor = (x, width) => (x < 16 ? "start" : x > width - 16 ? "end" : "middle");

// ---- the charts ----------------------------------------------------------------------------------------

/**
 * How many, over time, and of which kind.
 * `labels` and `rows` go side by side; a row is {series name: number}; `series`: [{name, label}].
 */
export function StackedBars({ title, note, legend, labels, rows, series, tell = number, empty }) {
  const coloured = series.map((one, index) => ({ colour: index + 1, ...one }));
  const sums = rows.map((row) => coloured.reduce((sum, one) => sum + (row[one.name] || 0), 0));
  const nothing = sums.every((sum) => sum === 0);
  const marks = ticks(Math.max(...sums, 0), true);
  const top = marks[marks.length - 1];
  const slot = (inner) => inner.width / labels.length;
  const read = (index) =>
    `${labels[index]}: ${
      coloured
        .filter((one) => rows[index][one.name])
        .map((one) => `${one.label} ${tell(rows[index][one.name])}`)
        .join(", ") || "nothing"
    }`;
  const table = {
    head: ["When", ...coloured.map((one) => one.label)],
    rows: rows.map((row, index) => [labels[index], ...coloured.map((one) => tell(row[one.name] || 0))]),
  };
  return html`<${Chart} title=${title} note=${note} legend=${legend} series=${coloured} table=${table} empty=${nothing && empty}>
    <${Walkable}
      label=${title}
      count=${labels.length}
      placeOf=${(index, inner) => (index + 0.5) * slot(inner)}
      read=${read}
      draw=${(inner, here) => {
        const wide = Math.max(1, Math.min(slot(inner) * 0.76, 34));
        const x = (index) => (index + 0.5) * slot(inner);
        return html`<${HeightAxis} marks=${marks} inner=${inner} tell=${tell} />
          ${here !== null &&
          html`<rect class="chart-here" x=${x(here) - slot(inner) / 2} width=${slot(inner)} height=${inner.height} />`}
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
          <${WidthAxis} labels=${labels} placeOf=${x} inner=${inner} />`;
      }}
    />
  <//>`;
}

/** Values over time, one line for each series; a row without a value leaves a gap. */
export function Lines({ title, note, choice, labels, rows, series, tell = number, empty }) {
  const coloured = series.map((one, index) => ({
    colour: index + 1,
    dash: DASHES[index % DASHES.length],
    line: true,
    ...one,
  }));
  const known = (row, one) => (typeof row[one.name] === "number" ? row[one.name] : null);
  const values = rows.flatMap((row) => coloured.map((one) => known(row, one))).filter((value) => value !== null);
  const marks = ticks(Math.max(...values, 0));
  const top = marks[marks.length - 1];
  const read = (index) =>
    `${labels[index]}: ${
      coloured
        .filter((one) => known(rows[index], one) !== null)
        .map((one) => `${one.label} ${tell(rows[index][one.name])}`)
        .join(", ") || "nothing"
    }`;
  const place = (index, inner) => (labels.length === 1 ? inner.width / 2 : (index / (labels.length - 1)) * inner.width);
  const table = {
    head: ["When", ...coloured.map((one) => one.label)],
    rows: rows.map((row, index) => [labels[index], ...coloured.map((one) => tell(known(row, one)))]),
  };
  return html`<${Chart} title=${title} note=${note} choice=${choice} series=${coloured} table=${table} empty=${!values.length && empty}>
    <${Walkable}
      label=${title}
      count=${labels.length}
      placeOf=${place}
      read=${read}
      draw=${(inner, here) => {
        const y = (value) => inner.height * (1 - value / top);
        return html`<${HeightAxis} marks=${marks} inner=${inner} tell=${tell} />
          ${here !== null && html`<path class="chart-cursor" d=${`M${place(here, inner)} 0V${inner.height}`} />`}
          ${coloured.map(
            (one) => html`<g key=${one.name}>
              <path
                class=${`chart-line stroke-${one.colour}`}
                stroke-dasharray=${one.dash}
                d=${pathOf(rows.map((row, index) => {
                  const value = known(row, one);
                  return value === null ? null : [place(index, inner), y(value)];
                }))}
              />
              ${rows.map((row, index) => {
                const value = known(row, one);
                const alone = value !== null && known(rows[index - 1] || {}, one) === null;
                return (
                  value !== null &&
                  (alone || index === here || rows.length <= 24) &&
                  html`<circle
                    key=${index}
                    class=${`fill-${one.colour}`}
                    cx=${place(index, inner)}
                    cy=${y(value)}
                    r=${index === here ? 4 : 2.2}
                  />`
                );
              })}
            </g>`,
          )}
          <${WidthAxis} labels=${labels} placeOf=${(index) => place(index, inner)} inner=${inner} />`;
      }}
    />
  <//>`;
}

/** A path through points; null lifts the pen. */
export function pathOf(points) {
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

/** Claimed against right: on the diagonal, what was claimed is what came true. Larger dots: more cases. */
export function Curve({ title, note, points, empty }) {
  const most = Math.max(...points.map((point) => point.count), 1);
  const read = (index) => {
    const { claimed, right, count } = points[index];
    return `claimed ${percent(claimed)}, right in ${percent(right)} of ${number(count)} cases`;
  };
  const table = {
    head: ["Claimed", "Right", "Cases"],
    rows: points.map((point) => [percent(point.claimed), percent(point.right), number(point.count)]),
  };
  return html`<${Chart} title=${title} note=${note} table=${table} empty=${!points.length && empty}>
    <${Walkable}
      label=${title}
      count=${points.length}
      height=${240}
      placeOf=${(index, inner) => points[index].claimed * inner.width}
      read=${read}
      draw=${(inner, here) => {
        const at = (point) => [point.claimed * inner.width, (1 - point.right) * inner.height];
        return html`<${HeightAxis} marks=${[0, 0.25, 0.5, 0.75, 1]} inner=${inner} tell=${percent} />
          <path class="chart-diagonal" d=${`M0 ${inner.height}L${inner.width} 0`} />
          <path class="chart-line stroke-1" d=${pathOf(points.map(at))} />
          ${points.map((point, index) => {
            const [x, y] = at(point);
            const size = 3 + 6 * Math.sqrt(point.count / most);
            return html`<circle
              key=${index}
              class=${index === here ? "fill-2" : "fill-1"}
              cx=${x}
              cy=${y}
              r=${size}
            />`;
          })}
          <${WidthAxis}
            labels=${["0 %", "25 %", "50 %", "75 %", "100 %"]}
            placeOf=${(index) => (index / 4) * inner.width}
            inner=${inner}
          />`;
      }}
    />
  <//>`;
}

/** Few things in order of size: words, a bar, the number. Readable without a table of its own. */
export function RankedBars({ title, note, items, tell = number, empty }) {
  const most = Math.max(...items.map((item) => item.value), 0);
  return html`<${Chart} title=${title} note=${note} empty=${!items.length && empty}>
    <ol class="ranked">
      ${items.map(
        (item) => html`<li key=${item.label}>
          <span class="ranked-label">
            ${item.href ? html`<a href=${item.href}>${item.label}</a>` : item.label}
          </span>
          <span class="ranked-bar" aria-hidden="true">
            <span style=${{ inlineSize: `${most ? (100 * item.value) / most : 0}%` }}></span>
          </span>
          <span class="ranked-value">
            ${tell(item.value)}${item.note && html`<span class="chart-note">${item.note}</span>`}
          </span>
        </li>`,
      )}
    </ol>
  <//>`;
}
