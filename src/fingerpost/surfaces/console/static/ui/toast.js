// Short messages in the corner, also read by screen readers.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { createStore } from "../store.js";
import { escapeInvisible } from "./text.js";

const toasts = createStore([]);
const SECONDS = { bad: 10, warn: 8 };
let next = 0;

/** Shows `text` for some seconds. tone: good, warn, bad, info. */
export function toast(text, tone = "info") {
  const one = { id: next++, text: escapeInvisible(text), tone };
  toasts.set([...toasts.get().slice(-3), one]);
  setTimeout(() => dismiss(one.id), (SECONDS[tone] ?? 5) * 1000);
}

const dismiss = (id) => toasts.set(toasts.get().filter((one) => one.id !== id));

/** The container of all toasts. Used once, in the shell. */
export function Toast() {
  const [all, setAll] = useState(toasts.get());
  useEffect(() => {
    setAll(toasts.get()); // toasts added since the first render
    return toasts.subscribe(setAll);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map(
      (one) => html`<div key=${one.id} class="toast ${one.tone}">
        <span dir="auto">${one.text}</span>
        <button type="button" class="icon-button" aria-label="Dismiss" onClick=${() => dismiss(one.id)}>×</button>
      </div>`,
    )}
  </div>`;
}
