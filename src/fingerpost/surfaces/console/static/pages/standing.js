// The rank of one tool for a request: its position, the points of each signal, and the tools before it.
import { Badge, Bidi, html, formatNumber } from "../ui.js";
import { Shortlist } from "../journey/shortlist.js";

/** Describes the rank of tool `of` in a narrowing: {tone, badge, words}. */
export function describeRank(narrowing, of) {
  const { candidates, hidden, considered } = narrowing.shortlist;
  const rank = candidates.findIndex((candidate) => candidate.tool === of);
  const hiddenTool = hidden.find((one) => one.tool === of);
  if (hiddenTool) return { tone: "bad", badge: "hidden", words: `Hidden by ${hiddenTool.rule}${hiddenTool.reason ? `: ${hiddenTool.reason}` : ""}.` };
  if (rank < 0) return describeUnranked(narrowing, considered);
  const { offered, lost } = candidates[rank];
  const rankText = `Rank ${rank + 1} of ${formatNumber(considered)} tools considered.`;
  if (offered) return { tone: "good", badge: "offered", words: rankText };
  return { tone: "warn", badge: "not offered", words: `${lost ? `${capitalize(lost)}. ` : ""}${rankText}` };
}

const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function describeUnranked({ need }, considered) {
  if (need.verdict === "none") {
    return { tone: "info", badge: "not offered", words: "No tool needed, so none is offered." };
  }
  const words = `It was not among the ${formatNumber(considered)} tools considered: its server is down, it is switched off, or it is quarantined.`;
  return { tone: "warn", badge: "not offered", words };
}

export function ToolRank({ narrowing, of }) {
  const { tone, badge, words } = describeRank(narrowing, of);
  const { need, shortlist } = narrowing;
  return html`<div class="stood">
    <p role="status"><${Badge} tone=${tone}>${badge}<//> <${Bidi} text=${words} /></p>
    ${need.reasons.length ? html`<p class="faint">Tool needed? <${Bidi} text=${need.reasons.join("; ")} /></p>` : null}
    ${shortlist.candidates.length ? html`<${Shortlist} shortlist=${moveToolUp(shortlist, of)} cards=${narrowing.cards} />` : null}
  </div>`;
}

/** Returns the shortlist with the tool `of` directly after the offered ones. */
function moveToolUp(shortlist, of) {
  const rank = (candidate) => (candidate.offered ? 0 : candidate.tool === of ? 1 : 2);
  return { ...shortlist, candidates: shortlist.candidates.toSorted((one, other) => rank(one) - rank(other)) };
}
