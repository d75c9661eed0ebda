// What changed between two texts or values, line by line.

import { html } from "../vendor/htm-preact.js";
import { visible } from "./text.js";

const MOST_LINES = 1500;

/** Lines of `before` and `after` as {sign: " " | "-" | "+", text}: the longest common part stays. */
export function diffLines(before, after) {
  const old = asLines(before);
  const fresh = asLines(after);
  if (old.length * fresh.length > MOST_LINES * MOST_LINES) return [...signed("-", old), ...signed("+", fresh)];
  const length = commonLengths(old, fresh);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < old.length && j < fresh.length) {
    if (old[i] === fresh[j]) lines.push({ sign: " ", text: old[i++] }), j++;
    else if (length[i + 1][j] >= length[i][j + 1]) lines.push({ sign: "-", text: old[i++] });
    else lines.push({ sign: "+", text: fresh[j++] });
  }
  return [...lines, ...signed("-", old.slice(i)), ...signed("+", fresh.slice(j))];
}

function commonLengths(old, fresh) {
  const length = Array.from({ length: old.length + 1 }, () => new Uint32Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = fresh.length - 1; j >= 0; j--)
      length[i][j] = old[i] === fresh[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  return length;
}

const signed = (sign, lines) => lines.map((text) => ({ sign, text }));
const asLines = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "")).split("\n");

/** Two values side by side in time. `lines` (of a unified diff, made by the server) wins over comparing. */
export function Diff({ before, after, lines, label = "What changed" }) {
  const rows = lines ? lines.map(parsed) : diffLines(before, after);
  return html`<div class="diff" role="region" aria-label=${label} tabindex="0">
    ${rows.map(
      ({ sign, text }) => html`<div class="diff-line ${CLASSES[sign]}">
        <span class="diff-sign" aria-hidden="true">${sign}</span>
        ${SPOKEN[sign] ? html`<span class="unseen">${SPOKEN[sign]}: </span>` : null}
        <span dir="auto">${visible(text) || " "}</span>
      </div>`,
    )}
  </div>`;
}

const CLASSES = { "+": "added", "-": "removed", " ": "", "@": "place" };
const SPOKEN = { "+": "added", "-": "removed" };

function parsed(line) {
  const sign = line[0] in CLASSES ? line[0] : " ";
  return { sign, text: sign === "@" ? line : line.slice(line[0] === sign ? 1 : 0) };
}
