// Text as it is: other people's words, with what cannot be seen made visible.

import { html, useState } from "../vendor/htm-preact.js";

// Controls (but for tab and line ends), bidi overrides and isolates, invisible spaces and tags.
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** `text` with control characters, terminal escapes and text-direction tricks spelled out. */
export function visible(text) {
  return String(text ?? "").replace(UNSEEN, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "␡";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// Everything that draws nothing or moves other text: for what a person decides about, joiners and marks too.
const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;

/** `text` with everything spelled out that cannot be seen, line ends too: "␊" and a new line. */
export function spelledOut(text) {
  return String(text ?? "").replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    if (code === 0x0a) return "␊\n";
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "␡";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Words in any script, each running in its own direction. `block`: a paragraph that keeps its lines. */
export function Bidi({ text, block = false, class: name = "" }) {
  return block
    ? html`<p dir="auto" class="prose ${name}">${visible(text)}</p>`
    : html`<bdi dir="auto" class=${name}>${visible(text)}</bdi>`;
}

/** A name or a number from the machine: left to right whatever is around it. */
export const Code = ({ children }) => html`<code dir="ltr">${visible(children)}</code>`;

const LONG_TEXT = 20_000;

/** A value as JSON. Long ones are folded, and very long ones cut until somebody wants the rest. */
export function Json({ value, label = "JSON", open }) {
  const [whole, setWhole] = useState(false);
  const text = visible(JSON.stringify(value, null, 2) ?? "undefined");
  const cut = !whole && text.length > LONG_TEXT;
  const body = html`<pre class="json" dir="ltr" tabindex="0" aria-label=${label}>${cut ? `${text.slice(0, LONG_TEXT)}…` : text}</pre>
    ${cut ? html`<button type="button" class="button quiet" onClick=${() => setWhole(true)}>Show the other ${text.length - LONG_TEXT} characters</button>` : null}`;
  const lines = text.split("\n").length;
  if (open === undefined && lines <= 14) return html`<div class="json-box">${body}</div>`;
  return html`<details class="json-box" open=${open ?? false}><summary>${label} · ${lines} lines</summary>${body}</details>`;
}
