// Short news in the corner, told to screen readers too.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { createStore } from "../store.js";
import { visible } from "./text.js";

const shown = createStore([]);
const SECONDS = { bad: 10, warn: 8 };
let next = 0;

/** Says `text` for some seconds. tone: good, warn, bad, info. */
export function toast(text, tone = "info") {
  const one = { id: next++, text: visible(text), tone };
  shown.set([...shown.get().slice(-3), one]);
  setTimeout(() => drop(one.id), (SECONDS[tone] ?? 5) * 1000);
}

const drop = (id) => shown.set(shown.get().filter((one) => one.id !== id));

/** Where toasts appear: once, in the shell. */
export function Toast() {
  const [all, setAll] = useState(shown.get());
  useEffect(() => {
    setAll(shown.get()); // what was said since the first drawing
    return shown.subscribe(setAll);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map(
      (one) => html`<div key=${one.id} class="toast ${one.tone}">
        <span dir="auto">${one.text}</span>
        <button type="button" class="icon-button" aria-label="Dismiss" onClick=${() => drop(one.id)}>×</button>
      </div>`,
    )}
  </div>`;
}
