// Small components that pages are built from.

import { html, useEffect, useRef } from "../vendor/htm-preact.js";
import { Bidi, Code } from "./text.js";

/** A page. Its heading gets the focus when it opens, so that a screen reader announces it. */
export function Page({ title, actions, children, class: name = "" }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Fingerpost`;
  }, [title]);
  useEffect(() => {
    if (document.body.dataset.moved === "yes") heading.current?.focus({ preventScroll: true });
  }, []);
  return html`<div class="page ${name}">
    <header class="page-head">
      <h1 ref=${heading} tabindex="-1" dir="auto">${title}</h1>
      ${actions ? html`<div class="page-actions">${actions}</div>` : null}
    </header>
    ${children}
  </div>`;
}

/**
 * A table of records. columns: [{key, title, render?(row), align?: "end", class?}].
 * `onRow(row)` or `rowHref(row)` makes rows openable; on narrow screens each row becomes a card.
 */
export function Table({ columns, rows, empty, onRow, rowHref, label, rowKey = (row, index) => row.id ?? row.key ?? row.name ?? index }) {
  if (!rows.length && empty) return empty;
  const isOpenable = onRow || rowHref;
  const open = (row) => (rowHref ? (location.hash = rowHref(row)) : onRow(row));
  const onClick = (row) => (event) => {
    if (!event.target.closest("a, button, input, select, label, summary") && !String(getSelection())) open(row);
  };
  const onKeyDown = (row) => (event) => {
    if (event.key === "Enter" && event.target === event.currentTarget) open(row);
  };
  return html`<div class="table-box">
    <table role="table" aria-label=${label}>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((column) => html`<th role="columnheader" scope="col" class=${getCellClass(column)}>${column.title}</th>`)}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row, index) => html`<tr
            role="row"
            key=${rowKey(row, index)}
            class=${isOpenable ? "opens" : ""}
            tabindex=${isOpenable && !rowHref ? 0 : undefined}
            onClick=${isOpenable ? onClick(row) : undefined}
            onKeyDown=${isOpenable && !rowHref ? onKeyDown(row) : undefined}
          >
            ${columns.map((column, place) => html`<td role="cell" class=${getCellClass(column)} data-label=${column.title}>${renderCell(column, row, place === 0 && rowHref)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

const getCellClass = (column) => `${column.align === "end" ? "end" : ""} ${column.class ?? ""}`;

function renderCell(column, row, href) {
  const content = column.render ? column.render(row) : (row[column.key] ?? "–");
  return href ? html`<a class="row-link" href=${href(row)}>${content}</a>` : content;
}

/** tone: good, warn, bad, info, plain. */
export const Badge = ({ tone = "plain", title, children }) => html`<span class="badge ${tone}" title=${title}>${children}</span>`;

/** tone: plain, main, bad, quiet. While `busy` it cannot be pressed again. */
export function Button({ onClick, tone = "plain", busy = false, disabled = false, type = "button", title, children, ...more }) {
  return html`<button
    type=${type}
    class="button ${tone}"
    onClick=${onClick}
    disabled=${busy || disabled}
    aria-busy=${busy ? "true" : undefined}
    title=${title}
    ...${more}
  >
    ${busy ? html`<span class="spinner" aria-hidden="true"></span>` : null}${children}
  </button>`;
}

/** A filter that is on or off. */
export const Chip = ({ on, onClick, children }) =>
  html`<button type="button" class="chip" aria-pressed=${on ? "true" : "false"} onClick=${onClick}>${children}</button>`;

let fieldCount = 0;

/** A labelled input. `children`: one control, or a function that gets its props {id, "aria-describedby", …}. */
export function Field({ label, hint, error, children }) {
  const id = useRef(`field-${fieldCount++}`).current;
  const describedBy = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const controlProps = { id, "aria-describedby": describedBy, "aria-invalid": error ? "true" : undefined };
  const child = Array.isArray(children) ? children[0] : children;
  if (typeof child === "object" && child?.props) Object.assign(child.props, { ...controlProps, ...child.props });
  return html`<div class="field ${error ? "wrong" : ""}">
    <label for=${child?.props?.id ?? id}>${label}</label>
    ${typeof child === "function" ? child(controlProps) : children}
    ${hint ? html`<p class="hint" id="${id}-hint">${hint}</p>` : null}
    ${error ? html`<p class="error" id="${id}-error">${error}</p>` : null}
  </div>`;
}

/** Shown instead of an empty list: what would be here, and how to get it. */
export const Empty = ({ title, children, action }) => html`<section class="empty">
  <svg class="empty-post" viewBox="0 0 48 48" aria-hidden="true">
    <path d="M24 6v38M10 12h22l6 5-6 5H10zM38 27H20l-5 4 5 4h18z" />
  </svg>
  <h2>${title}</h2>
  <div class="empty-text">${children}</div>
  ${action ? html`<div class="empty-action">${action}</div>` : null}
</section>`;

/** A share as a bar. The number is also given as text. */
export function Bar({ value, max = 1, tone = "info", label }) {
  const share = max > 0 ? Math.max(0, Math.min(1, value / max)) : 0;
  return html`<span class="bar ${tone}" role="img" aria-label=${label ?? `${value} of ${max}`} title=${label}>
    <span class="bar-fill" style=${{ inlineSize: `${(share * 100).toFixed(1)}%` }}></span>
  </span>`;
}

/** tabs: [{id, title, badge?}]. The arrow keys change the tab. */
export function Tabs({ tabs, current, onChange, label = "Sections" }) {
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = tabs.findIndex((tab) => tab.id === current);
    const next = tabs[(place + step + tabs.length) % tabs.length];
    onChange(next.id);
    event.currentTarget.querySelector(`[data-tab="${CSS.escape(next.id)}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map(
      (tab) => html`<button
        type="button"
        role="tab"
        class="tab"
        data-tab=${tab.id}
        aria-selected=${tab.id === current ? "true" : "false"}
        tabindex=${tab.id === current ? 0 : -1}
        onClick=${() => onChange(tab.id)}
      >
        ${tab.title}${tab.badge ? html` <span class="count">${tab.badge}</span>` : null}
      </button>`,
    )}
  </div>`;
}

/** Grey lines while something loads. */
export const Skeleton = ({ lines = 3 }) => html`<div class="skeleton" role="status" aria-label="Loading">
  ${Array.from({ length: lines }, (_, index) => html`<span key=${index} class="skeleton-line"></span>`)}
</div>`;

/** Names and values: rows of [name, content]. Empty values are omitted. */
export const Facts = ({ rows }) => html`<dl class="facts">
  ${rows
    .filter(([, content]) => content !== null && content !== undefined && content !== "")
    .map(([name, content]) => html`<div class="fact"><dt>${name}</dt><dd>${content}</dd></div>`)}
</dl>`;

/** What a scan found in text of a server: severity, reason, the words it rests on, and where they stand. */
export function Findings({ title, findings }) {
  if (!findings.length) return null;
  return html`<section>
    <h2>${title}</h2>
    <ul>
      ${findings.map(
        (found) => html`<li>
          <${Badge} tone=${found.severity === "serious" ? "bad" : "warn"}>${found.severity}<//> It ${found.reason}: <${Bidi} text=${found.words} />
          ${" "}<span class="faint">(<${Code}>${found.where}<//>)</span>
        </li>`,
      )}
    </ul>
  </section>`;
}
