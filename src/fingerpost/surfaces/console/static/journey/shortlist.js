// Who was considered, who was offered, and why the others lost.

import { Badge, Bidi, html, number, useState, visible } from "../ui.js";
import { scoreBars } from "../journey.js";
import { ToolLink } from "./sections.js";

const FEW = 8;
const COLOURS = 8;

export function Shortlist({ shortlist, tokens = null, cards = {} }) {
  const [all, setAll] = useState(false);
  const bars = scoreBars(shortlist);
  const offered = bars.rows.filter((row) => row.offered);
  const others = bars.rows.filter((row) => !row.offered);
  const shown = all ? bars.rows : [...offered, ...others.slice(0, Math.max(0, FEW - offered.length))];
  return html`<h3>Shortlist <span class="faint">${offered.length} offered of ${number(shortlist.considered)} considered${shortlist.dense ? "" : ", by words alone"}${shortlist.cached ? ", remembered" : ""}</span></h3>
    ${tokens ? html`<p class="faint">Their definitions take ${number(tokens.offered)} tokens; all would take ${number(tokens.all)}.</p>` : null}
    <${Signals} signals=${bars.signals} />
    <ol class="candidates">
      ${shown.map((row) => html`<${Candidate} key=${`${row.need}-${row.tool}`} row=${row} bars=${bars} card=${cards[row.tool]} needs=${shortlist.needs} />`)}
    </ol>
    ${shown.length < bars.rows.length ? html`<button type="button" class="button quiet" onClick=${() => setAll(true)}>Show ${bars.rows.length - shown.length} more that lost</button>` : null}
    <${Hidden} hidden=${shortlist.hidden} />`;
}

const colour = (bars, signal) => `var(--series-${(bars.indexOf(signal) % COLOURS) + 1})`;

const Signals = ({ signals }) => html`<ul class="legend" aria-label="Signals">
  ${signals.map((signal) => html`<li key=${signal}><span class="swatch" style=${{ background: colour(signals, signal) }} aria-hidden="true"></span>${visible(signal)}</li>`)}
</ul>`;

function Candidate({ row, bars, card, needs }) {
  const gains = row.parts.filter((part) => part.points > 0);
  const told = row.parts.map((part) => `${part.signal} ${signed(part.points)}`).join(", ");
  return html`<li class="candidate ${row.offered ? "offered" : "lost"}">
    <div class="candidate-name">
      <${ToolLink} tool=${row.tool} />
      ${row.offered ? html` <${Badge} tone="good">offered<//>` : null}
      ${needs.length > 1 ? html` <${Badge} title=${visible(needs[row.need])}>part ${row.need + 1}<//>` : null}
      ${row.confidence ? html` <${Badge} title="How sure we are that it suits">${visible(row.confidence)} confidence<//>` : null}
      ${row.latency ? html` <${Badge} title="How long it usually takes">${visible(row.latency.replace("_", " "))}<//>` : null}
      ${card?.effect ? html` <${Badge}>${visible(card.effect)}<//>` : null}
    </div>
    <div class="candidate-bar" role="img" aria-label="score ${row.score.toFixed(2)}: ${told}">
      ${gains.map((part) => html`<span key=${part.signal} title="${part.signal} ${signed(part.points)}${part.note ? ` · ${visible(part.note)}` : ""}" style=${{ inlineSize: `${((part.points / bars.max) * 100).toFixed(2)}%`, background: colour(bars.signals, part.signal) }}></span>`)}
    </div>
    <span class="candidate-score">${row.score.toFixed(2)}</span>
    <div class="candidate-why">
      ${row.lost ? html`<${Bidi} text=${row.lost} class="faint" />` : null}
      <details>
        <summary>Why it stands here</summary>
        ${card?.description ? html`<${Bidi} text=${card.description} block=${true} class="faint clamp" />` : null}
        <ul class="parts">
          ${row.parts.map((part) => html`<li><span class="swatch" style=${{ background: colour(bars.signals, part.signal) }} aria-hidden="true"></span>${visible(part.signal)} <span class="mono">${signed(part.points)}</span> <${Bidi} text=${part.note} class="faint" /></li>`)}
        </ul>
      </details>
    </div>
  </li>`;
}

const signed = (points) => `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(2)}`;

function Hidden({ hidden }) {
  if (!hidden.length) return null;
  return html`<details><summary>${hidden.length} ${hidden.length === 1 ? "tool was" : "tools were"} hidden by a rule</summary>
    <ul class="parts">
      ${hidden.map((one) => html`<li key=${one.tool}><${ToolLink} tool=${one.tool} /> <span class="faint" dir="auto">${visible(one.rule)}${one.reason ? `: ${visible(one.reason)}` : ""}</span></li>`)}
    </ul>
  </details>`;
}
