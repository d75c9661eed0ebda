// Attempts, model calls and waits on one time axis.

import { formatDuration, html, escapeInvisible } from "../ui.js";

const KIND_LABELS = { narrow: "finding tools", model: "model", attempt: "tool", wait: "queue", person: "waiting for approval" };
const formatShare = (share) => `${(share * 100).toFixed(2)}%`;

/** `milliseconds`: the request's duration, as everywhere else; null while it runs. */
export function TimeAxis({ time, milliseconds = null }) {
  if (!time.bars.length) return html`<p class="faint">Nothing has been timed yet.</p>`;
  const kinds = [...new Set(time.bars.map((bar) => bar.kind))];
  return html`<div class="axis">
    <ul class="legend" aria-label="Colours">
      ${kinds.map((kind) => html`<li key=${kind}><span class="swatch bar-${kind}" aria-hidden="true"></span>${KIND_LABELS[kind]}</li>`)}
      <li class="push">${milliseconds === null ? `${formatDuration(time.milliseconds)} so far` : `took ${formatDuration(milliseconds)}`}</li>
    </ul>
    <ol class="lanes">
      ${time.bars.map((bar, index) => html`<li key=${index} class="lane"><${Lane} bar=${bar} gaps=${time.gaps} /></li>`)}
    </ol>
  </div>`;
}

function Lane({ bar, gaps }) {
  const inline = { insetInlineStart: formatShare(bar.begin), inlineSize: `max(3px, ${formatShare(bar.end - bar.begin)})` };
  const durationText = bar.tone === "open" ? `${formatDuration(bar.milliseconds)} so far` : formatDuration(bar.milliseconds);
  return html`<span class="lane-name" dir="auto" title=${escapeInvisible(bar.label)}>${escapeInvisible(bar.label)}</span>
    <span class="lane-track" aria-hidden="true">
      ${gaps.map((gap, index) => html`<span key=${index} class="gap" style=${{ insetInlineStart: formatShare(gap.begin), inlineSize: formatShare(gap.end - gap.begin) }} title="idle for ${formatDuration(gap.milliseconds)}"></span>`)}
      <span class="lane-bar bar-${bar.kind} ${bar.tone}" style=${inline} title="starts at ${formatDuration(bar.after)}, takes ${durationText}"></span>
    </span>
    <span class="lane-took">${durationText}</span>
    ${bar.text ? html`<span class="lane-text" dir="auto">${escapeInvisible(bar.text)}</span>` : null}`;
}
