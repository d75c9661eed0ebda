// Untrusted text, with invisible characters escaped.

import { html, useState } from "../vendor/htm-preact.js";

// Controls (except tab and line ends), bidi overrides and isolates, invisible spaces and tags.
const INVISIBLE =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** Returns `text` with control characters, terminal escapes and bidi controls escaped. */
export function escapeInvisible(text) {
  return String(text ?? "").replace(INVISIBLE, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "␡";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// All characters that are invisible or move other text, including joiners and marks. For text a person decides about.
const ALL_INVISIBLE =
  /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;

/** Returns `text` with all invisible characters escaped. A line end becomes "␊" and a new line. */
export function escapeAllInvisible(text) {
  return String(text ?? "").replace(ALL_INVISIBLE, (character) => {
    const code = character.codePointAt(0);
    if (code === 0x0a) return "␊\n";
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "␡";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Text of any script and direction. `block`: a paragraph that keeps its line breaks. */
export function Bidi({ text, block = false, class: name = "" }) {
  return block
    ? html`<p dir="auto" class="prose ${name}">${escapeInvisible(text)}</p>`
    : html`<bdi dir="auto" class=${name}>${escapeInvisible(text)}</bdi>`;
}

/** A name with places where a line may end: after _ / - . and :, never inside a word. */
export function Name({ text }) {
  const parts = escapeInvisible(text).split(/(?<=[_/.:-])(?=[^_/.:-])/);
  return parts.map((part, place) => (place ? [html`<wbr />`, part] : part));
}

/** A technical name or number, always left to right. */
export const Code = ({ children }) => html`<code dir="ltr"><${Name} text=${Array.isArray(children) ? children.join("") : children} /></code>`;

const LONG_TEXT = 20_000;

/** A value as JSON. Long values are collapsed; very long ones are cut until the user asks for the rest. */
export function Json({ value, label = "JSON", open }) {
  const [whole, setWhole] = useState(false);
  const text = escapeInvisible(JSON.stringify(value, null, 2) ?? "undefined");
  const cut = !whole && text.length > LONG_TEXT;
  const body = html`<pre class="json" dir="ltr" tabindex="0" aria-label=${label}>${cut ? `${text.slice(0, LONG_TEXT)}…` : text}</pre>
    ${cut ? html`<button type="button" class="button quiet" onClick=${() => setWhole(true)}>Show the other ${text.length - LONG_TEXT} characters</button>` : null}`;
  const lines = text.split("\n").length;
  if (open === undefined && lines <= 14) return html`<div class="json-box">${body}</div>`;
  return html`<details class="json-box" open=${open ?? false}><summary>${label} · ${lines} lines</summary>${body}</details>`;
}
