// Attempts, model calls and waits on one axis of time.

import { duration, html, visible } from "../ui.js";

const WORDS = { narrow: "narrowing", model: "a model", attempt: "a tool", wait: "waiting", person: "a person" };
const percent = (share) => `${(share * 100).toFixed(2)}%`;

export function TimeAxis({ time }) {
  if (!time.bars.length) return html`<p class="faint">Nothing that took time has happened yet.</p>`;
  const kinds = [...new Set(time.bars.map((bar) => bar.kind))];
  return html`<div class="axis">
    <ul class="legend" aria-label="Colours">
      ${kinds.map((kind) => html`<li key=${kind}><span class="swatch bar-${kind}" aria-hidden="true"></span>${WORDS[kind]}</li>`)}
      <li class="push">${duration(time.milliseconds)} in all</li>
    </ul>
    <ol class="lanes">
      ${time.bars.map((bar, index) => html`<li key=${index} class="lane"><${Lane} bar=${bar} gaps=${time.gaps} /></li>`)}
    </ol>
  </div>`;
}

function Lane({ bar, gaps }) {
  const inline = { insetInlineStart: percent(bar.begin), inlineSize: `max(3px, ${percent(bar.end - bar.begin)})` };
  const took = bar.tone === "open" ? `${duration(bar.milliseconds)} so far` : duration(bar.milliseconds);
  return html`<span class="lane-name" dir="auto" title=${visible(bar.label)}>${visible(bar.label)}</span>
    <span class="lane-track" aria-hidden="true">
      ${gaps.map((gap, index) => html`<span key=${index} class="gap" style=${{ insetInlineStart: percent(gap.begin), inlineSize: percent(gap.end - gap.begin) }} title="nothing was done for ${duration(gap.milliseconds)}"></span>`)}
      <span class="lane-bar bar-${bar.kind} ${bar.tone}" style=${inline} title="from ${duration(bar.after)} on, ${took}"></span>
    </span>
    <span class="lane-took">${took}${bar.text ? html`<span class="lane-text" dir="auto">${visible(bar.text)}</span>` : null}</span>`;
}
