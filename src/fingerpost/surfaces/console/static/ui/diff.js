// The difference between two texts or values, line by line.

import { html } from "../vendor/htm-preact.js";
import { escapeInvisible } from "./text.js";

const MAX_LINES = 1500;

/** Compares lines of `before` and `after` by their longest common subsequence: {sign: " " | "-" | "+", text}. */
export function diffLines(before, after) {
  const oldLines = splitLines(before);
  const newLines = splitLines(after);
  if (oldLines.length * newLines.length > MAX_LINES * MAX_LINES) return [...addSign("-", oldLines), ...addSign("+", newLines)];
  const length = computeCommonLengths(oldLines, newLines);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < oldLines.length && j < newLines.length) {
    if (oldLines[i] === newLines[j]) lines.push({ sign: " ", text: oldLines[i++] }), j++;
    else if (length[i + 1][j] >= length[i][j + 1]) lines.push({ sign: "-", text: oldLines[i++] });
    else lines.push({ sign: "+", text: newLines[j++] });
  }
  return [...lines, ...addSign("-", oldLines.slice(i)), ...addSign("+", newLines.slice(j))];
}

function computeCommonLengths(oldLines, newLines) {
  const length = Array.from({ length: oldLines.length + 1 }, () => new Uint32Array(newLines.length + 1));
  for (let i = oldLines.length - 1; i >= 0; i--)
    for (let j = newLines.length - 1; j >= 0; j--)
      length[i][j] = oldLines[i] === newLines[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  return length;
}

const addSign = (sign, lines) => lines.map((text) => ({ sign, text }));
const splitLines = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "")).split("\n");

/** The difference of two values. `lines` (a unified diff from the server) replaces the comparison. */
export function Diff({ before, after, lines, label = "What changed" }) {
  const rows = lines ? lines.map(parseDiffLine) : diffLines(before, after);
  return html`<div class="diff" role="region" aria-label=${label} tabindex="0">
    ${rows.map(
      ({ sign, text }) => html`<div class="diff-line ${CLASSES[sign]}">
        <span class="diff-sign" aria-hidden="true">${sign}</span>
        ${SPOKEN_SIGNS[sign] ? html`<span class="unseen">${SPOKEN_SIGNS[sign]}: </span>` : null}
        <span dir="auto">${escapeInvisible(text) || " "}</span>
      </div>`,
    )}
  </div>`;
}

const CLASSES = { "+": "added", "-": "removed", " ": "", "@": "place" };
const SPOKEN_SIGNS = { "+": "added", "-": "removed" };

function parseDiffLine(line) {
  const sign = line[0] in CLASSES ? line[0] : " ";
  return { sign, text: sign === "@" ? line : line.slice(line[0] === sign ? 1 : 0) };
}
