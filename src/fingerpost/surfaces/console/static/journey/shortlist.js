// The candidates of a narrowing: which were offered, and why the others were not.

import { Badge, Bidi, html, formatNumber, useState, escapeInvisible } from "../ui.js";
import { buildScoreBars, getSignalColour, getSignalLabel, listSignals } from "../journey.js";
import { ToolLink } from "./sections.js";

const MIN_ROWS = 8;

export function Shortlist({ shortlist, tokens = null, cards = {} }) {
  const [all, setAll] = useState(false);
  const bars = buildScoreBars(shortlist);
  const offered = bars.rows.filter((row) => row.offered);
  const others = bars.rows.filter((row) => !row.offered);
  const shownRows = all ? bars.rows : [...offered, ...others.slice(0, Math.max(0, MIN_ROWS - offered.length))];
  return html`<h3>${offered.length ? "Offered" : "No tool offered"} <span class="faint">${offered.length} of ${formatNumber(shortlist.considered)} tools considered${shortlist.dense ? "" : ", compared by words alone"}${shortlist.cached ? ", cached" : ""}</span></h3>
    <p class="faint">${offered.length && shortlist.fit !== undefined ? `${Math.round(100 * shortlist.fit)} % likely that one of these fits. ` : ""}${tokens && offered.length ? `Their definitions take ${formatNumber(tokens.offered)} tokens; all would take ${formatNumber(tokens.all)}.` : ""}</p>
    ${(shortlist.failed_scorers ?? []).map((failure) => html`<p key=${failure.scorer} class="faint">The scorer ${escapeInvisible(failure.scorer)} was left out: it ${escapeInvisible(failure.reason)}.</p>`)}
    <${Signals} rows=${shownRows} />
    <ol class="candidates">
      ${shownRows.map((row) => html`<${Candidate} key=${`${row.need}-${row.tool}`} row=${row} bars=${bars} card=${cards[row.tool]} needs=${shortlist.needs} />`)}
    </ol>
    ${shownRows.length < bars.rows.length ? html`<button type="button" class="button quiet" onClick=${() => setAll(true)}>Show ${bars.rows.length - shownRows.length} more that were not offered</button>` : null}
    <${Hidden} hidden=${shortlist.hidden} />`;
}

const getColour = (signal) => `var(--series-${getSignalColour(signal)})`;

function Signals({ rows }) {
  const { signals, subtracts } = listSignals(rows);
  return html`<ul class="legend" aria-label="Signals">
  ${signals.map((signal) => html`<li key=${signal}><span class="swatch" style=${{ background: getColour(signal) }} aria-hidden="true"></span>${escapeInvisible(getSignalLabel(signal))}</li>`)}
  ${subtracts ? html`<li><span class="swatch subtracted" aria-hidden="true"></span>subtracted</li>` : null}
</ul>`;
}

const formatShare = (share) => `${(100 * Math.max(0, Math.min(1, share))).toFixed(2)}%`;

/** What each signal added, in its colour. What others took away is hatched at the end. */
function ScoreBar({ row, max }) {
  const gains = row.parts.filter((part) => part.points > 0);
  const losses = row.parts.filter((part) => part.points < 0);
  const partsText = row.parts.map((part) => `${escapeInvisible(getSignalLabel(part.signal))} ${formatPoints(part.points)}`).join(", ");
  const left = Math.max(0, row.gains - row.losses);
  return html`<div class="candidate-bar" role="img" aria-label="score ${row.score.toFixed(2)}: ${partsText}">
    ${gains.map((part) => html`<span key=${part.signal} title="${escapeInvisible(getSignalLabel(part.signal))} ${formatPoints(part.points)}${part.note ? ` · ${escapeInvisible(part.note)}` : ""}" style=${{ inlineSize: formatShare(part.points / max), background: getColour(part.signal) }}></span>`)}
    ${losses.length
      ? html`<span class="subtracted" title="subtracted: ${losses.map((part) => `${escapeInvisible(getSignalLabel(part.signal))} ${formatPoints(part.points)}`).join(", ")}" style=${{ insetInlineStart: formatShare(left / max), inlineSize: formatShare((row.gains - left) / max) }}></span>`
      : null}
  </div>`;
}

function Candidate({ row, bars, card, needs }) {
  return html`<li class="candidate ${row.offered ? "offered" : "lost"}">
    <div class="candidate-name">
      <${ToolLink} tool=${row.tool} />
      ${row.offered ? html` <${Badge} tone="good">offered<//>` : null}
      ${needs.length > 1 ? html` <${Badge} title=${escapeInvisible(needs[row.need])}>part ${row.need + 1}<//>` : null}
      ${row.confidence ? html` <${Badge} title="How well it fits the request">${escapeInvisible(row.confidence)} confidence<//>` : null}
      ${row.latency ? html` <${Badge} title="How long it usually takes">${escapeInvisible(row.latency.replace("_", " "))}<//>` : null}
      ${card?.effect ? html` <${Badge}>${card.effect === "destroy" ? "destructive" : escapeInvisible(card.effect)}<//>` : null}
    </div>
    <${ScoreBar} row=${row} max=${bars.max} />
    <span class="candidate-score">${row.score.toFixed(2)}</span>
    <div class="candidate-why">
      ${row.lost ? html`<${Bidi} text=${row.lost} class="faint" />` : null}
      <details>
        <summary>Why this score</summary>
        ${card?.description ? html`<${Bidi} text=${card.description} block=${true} class="faint clamp" />` : null}
        <ul class="parts">
          ${row.parts.map((part) => html`<li><span class="swatch ${part.points < 0 ? "subtracted" : ""}" style=${part.points < 0 ? undefined : { background: getColour(part.signal) }} aria-hidden="true"></span>${escapeInvisible(getSignalLabel(part.signal))} <span class="mono">${formatPoints(part.points)}</span> <${Bidi} text=${part.note} class="faint" /></li>`)}
        </ul>
      </details>
    </div>
  </li>`;
}

const formatPoints = (points) => `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(2)}`;

function Hidden({ hidden }) {
  if (!hidden.length) return null;
  return html`<details><summary>${hidden.length} ${hidden.length === 1 ? "tool is" : "tools are"} hidden by a rule</summary>
    <ul class="parts">
      ${hidden.map((one) => html`<li key=${one.tool}><${ToolLink} tool=${one.tool} /> <span class="faint" dir="auto">${escapeInvisible(one.rule)}${one.reason ? `: ${escapeInvisible(one.reason)}` : ""}</span></li>`)}
    </ul>
  </details>`;
}
