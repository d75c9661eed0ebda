// One section of a journey.

import { Badge, Bar, Bidi, Code, Facts, Json, formatDuration, html, formatNumber, escapeInvisible } from "../ui.js";
import { CallSection } from "./call.js";
import { Shortlist } from "./shortlist.js";

const COMPONENTS = {
  need: Need,
  servers: Servers,
  shortlist: ({ section }) => html`<${Shortlist} shortlist=${section.shortlist} tokens=${section.tokens} />`,
  widened: WidenedSection,
  selection: SelectionSection,
  review: ReviewSection,
  thought: Thought,
  plan: ({ section }) => html`<h3>Next steps</h3><${Bidi} text=${section.text} block=${true} />`,
  call: ({ section }) => html`<${CallSection} call=${section.call} />`,
  question: ({ section }) => html`<h3>Question</h3><${Bidi} text=${section.question.text} block=${true} />`,
  note: Note,
  subagent: Subagent,
};

export function Section({ section }) {
  const Kind = COMPONENTS[section.type];
  return html`<section class="panel"><${Kind} section=${section} /></section>`;
}

const NEED_BADGES = { tool: ["info", "yes"], none: ["plain", "no"], unclear: ["warn", "unclear"] };

function Need({ section }) {
  const { need, signals } = section;
  const [tone, words] = NEED_BADGES[need.verdict];
  return html`<h3>Tool needed? <${Badge} tone=${tone}>${words}<//> <span class="faint">chance that one is: ${Math.round(100 * need.score)} %</span></h3>
    ${need.reasons.length ? html`<ul class="reasons">${dropRepeated(need.reasons).map((reason) => html`<li><${Bidi} text=${reason} /></li>`)}</ul>` : null}
    <${Facts} rows=${buildSignalRows(signals)} />`;
}

/** Drops reasons that say the same: without the words of the request, or about the same words again. */
function dropRepeated(reasons) {
  const getQuote = (reason) => /\("(.+)"\)$/.exec(reason)?.[1];
  return reasons.filter(
    (reason, place) =>
      !reasons.some((other) => other.startsWith(`${reason} (`)) &&
      !(getQuote(reason) && reasons.slice(0, place).some((earlier) => getQuote(earlier) === getQuote(reason))),
  );
}

const TOPICS = { time_place: "time and place", official_data: "official data" };
export const describeTopic = (category) => TOPICS[category] ?? category.replaceAll("_", " ");

const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

function describeLanguage(code) {
  try {
    return LANGUAGES.of(code);
  } catch {
    return code;
  }
}

const ENTITIES = { quoted: "quoted text", email: "e-mail address", url: "URL", id: "id" };

function buildSignalRows(signals) {
  return [
    ["Language", signals.language === "und" ? null : describeLanguage(signals.language)],
    ["In English", signals.gloss ? html`<${Bidi} text=${signals.gloss} />` : null],
    ["Topic", signals.intents.slice(0, 3).map((intent) => describeTopic(intent.category)).join(", ")],
    ["Names", signals.mentions.map((mention) => escapeInvisible(mention.name)).join(", ")],
    ["Contains", signals.entities.length ? signals.entities.map((entity) => html`<span class="entity">${ENTITIES[entity.kind] ?? entity.kind} <${Bidi} text=${entity.text} /></span> `) : null],
    ["Urgent", signals.urgent ? "yes" : null],
  ];
}

/** A number from 0 to 1 as a bar with its value. */
export function Share({ value, label, tone = "info" }) {
  return html`<div class="share">
    <span class="share-label">${label}</span>
    <${Bar} value=${value} max=${1} tone=${tone} label="${label}: ${value.toFixed(2)}" />
    <span class="share-value">${value.toFixed(2)}</span>
  </div>`;
}

const CHOICE_SOURCES = { scores: "chosen by their scores", model: "chosen by a model", off: "all of them: there are few" };

function Servers({ section }) {
  const { servers, left_out: left, by, reasoning, widened = [] } = section.choice;
  return html`<h3>Servers <span class="faint">${CHOICE_SOURCES[by] ?? escapeInvisible(by)}</span></h3>
    <p class="row"><span class="faint">Searched</span> ${servers.map((server) => html`<${Badge} tone="good" title=${widened.includes(server) ? "added for a later request" : null}><bdi>${escapeInvisible(server)}</bdi><//>`)}
      ${left.length ? html`<span class="faint">Left out</span> ${left.map((server) => html`<${Badge}><bdi>${escapeInvisible(server)}</bdi><//>`)}` : null}</p>
    ${reasoning ? html`<${Bidi} text=${reasoning} block=${true} class="faint" />` : null}`;
}

function WidenedSection({ section }) {
  return html`<h3>More tools offered <span class="faint">${section.tools.length} now</span></h3>
    <${Bidi} text=${section.reason} block=${true} />`;
}

function SelectionSection({ section }) {
  const { selection, alternatives, beside } = section;
  if (!selection) return html`<h3>Selection <${Badge}>no tool<//></h3><p>The model chose none of the offered tools.</p>`;
  return html`<h3>Selected tool</h3>
    ${[selection, ...beside].map((one) => html`<${Choice} choice=${one} />`)}
    ${alternatives.length
      ? html`<details><summary>${alternatives.length} ${alternatives.length === 1 ? "alternative" : "alternatives"}</summary>
          ${alternatives.map((one) => html`<${Choice} choice=${one} />`)}</details>`
      : null}`;
}

function Choice({ choice }) {
  return html`<div class="choice">
    <p class="row"><${ToolLink} tool=${choice.tool} /></p>
    ${choice.reasoning ? html`<${Bidi} text=${choice.reasoning} block=${true} />` : null}
    ${choice.confidence < 1 ? html`<${Share} value=${choice.confidence} label="Confidence of the model" />` : null}
    ${Object.keys(choice.arguments).length ? html`<${Json} value=${choice.arguments} label="Arguments" />` : null}
  </div>`;
}

/** A tool's key as a link to its page. */
export function ToolLink({ tool }) {
  const slash = tool.indexOf("/");
  if (slash < 0) return html`<${Code}>${tool}<//>`;
  const href = `#/tools/${encodeURIComponent(tool.slice(0, slash))}/${encodeURIComponent(tool.slice(slash + 1))}`;
  return html`<a href=${href}><${Code}>${tool}<//></a>`;
}

const VERDICT_BADGES = { go: ["good", "confident enough to call"], ask: ["warn", "a person decides"], decline: ["plain", "not called"] };

function ReviewSection({ section }) {
  const { review, confidence } = section;
  const [tone, words] = confidence ? VERDICT_BADGES[confidence.verdict] : ["plain", ""];
  return html`<h3>${review ? "Review" : "Confidence"} ${words ? html`<${Badge} tone=${tone}>${words}<//>` : null}
      ${review ? html` <${Badge} tone=${review.failed ? "plain" : review.approved ? "good" : "warn"}>${review.failed ? "review failed" : review.approved ? "agrees" : "disagrees"}<//>` : null}</h3>
    ${review?.reasoning ? html`<${Bidi} text=${review.reasoning} block=${true} />` : null}
    ${confidence ? html`<${Confidence} confidence=${confidence} tone=${tone} />` : null}`;
}

function Confidence({ confidence, tone }) {
  return html`<div class="shares">
      <${Share} value=${confidence.claim} label="Confidence of the selecting model" />
      <${Share} value=${confidence.review} label="Second opinion" />
      <${Share} value=${confidence.margin} label="Margin to the next tool" />
      <${Share} value=${confidence.score} label=${confidence.calibrated ? "Confidence, calibrated" : "Confidence"} tone=${tone} />
    </div>
    <${Bidi} text=${confidence.reason} block=${true} class="faint" />`;
}

function Thought({ section }) {
  return html`<h3>Thought <span class="faint">turn ${section.turn}</span></h3><${Bidi} text=${section.text} block=${true} />`;
}

/** A request made on behalf of this one. Its journey is a separate page. */
function Subagent({ section }) {
  const { child, request, ended } = section;
  const [tone, words] = ended ? (SUBAGENT_BADGES[ended.outcome] ?? ["bad", ended.outcome.replaceAll("_", " ")]) : ["info", "running"];
  return html`<h3>Subagent <${Badge} tone=${tone}>${words}<//></h3>
    <${Bidi} text=${request} block=${true} />
    <${Facts} rows=${[["Journey", html`<${PacketLink} packet=${child} />`], ["Took", ended ? formatDuration(ended.milliseconds) : null], ["Tokens", ended?.tokens ? formatNumber(ended.tokens) : null]]} />`;
}

const SUBAGENT_BADGES = { answered: ["good", "answered"], waiting: ["warn", "needs approval"], asked: ["info", "asks a question"], declined: ["plain", "declined"] };

/** A request's id as a link to its journey. */
export function PacketLink({ packet }) {
  return html`<a href=${`#/live/${encodeURIComponent(packet)}`}><${Code}>${packet}<//></a>`;
}

export function Sources({ sources }) {
  if (!sources.length) return null;
  return html`<p class="row sources"><span class="faint">${sources.length === 1 ? "Source" : "Sources"}</span> ${sources.map((tool) => html`<${ToolLink} tool=${tool} />`)}</p>`;
}

function Note({ section }) {
  return html`<h3><${Badge} tone=${section.tone}>${section.title}<//></h3><${Bidi} text=${section.text} block=${true} />`;
}
