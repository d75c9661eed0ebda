// Where one tool stood for a request: its place, what each signal gave or took, and who was before it.
import { Badge, Bidi, html, number } from "../ui.js";
import { Shortlist } from "../journey/shortlist.js";

/** What to say of tool `of` in a narrowing: {tone, badge, words}. */
export function standingOf(narrowing, of) {
  const { candidates, hidden, considered } = narrowing.shortlist;
  const place = candidates.findIndex((candidate) => candidate.tool === of);
  const barred = hidden.find((one) => one.tool === of);
  if (barred) return { tone: "bad", badge: "hidden", words: `By ${barred.rule}${barred.reason ? `: ${barred.reason}` : ""}.` };
  if (place < 0) return unranked(narrowing, considered);
  const { offered, lost } = candidates[place];
  const placed = `Place ${place + 1} of ${number(considered)} tools considered.`;
  if (offered) return { tone: "good", badge: "offered", words: placed };
  return { tone: "warn", badge: "not offered", words: `${lost ? `${capital(lost)}. ` : ""}${placed}` };
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function unranked({ need }, considered) {
  if (need.verdict === "none") {
    return { tone: "info", badge: "not offered", words: "No tool is offered for this: the model alone would do." };
  }
  const words = `It was not among the ${number(considered)} tools considered: its server is down, or it is switched off or held back.`;
  return { tone: "warn", badge: "not offered", words };
}

export function Standing({ narrowing, of }) {
  const { tone, badge, words } = standingOf(narrowing, of);
  const { need, shortlist } = narrowing;
  return html`<div class="stood">
    <p role="status"><${Badge} tone=${tone}>${badge}<//> <${Bidi} text=${words} /></p>
    ${need.reasons.length ? html`<p class="faint">Is a tool needed? <${Bidi} text=${need.reasons.join("; ")} /></p>` : null}
    ${shortlist.candidates.length ? html`<${Shortlist} shortlist=${withFirst(shortlist, of)} cards=${narrowing.cards} />` : null}
  </div>`;
}

/** The shortlist with the tool in question right behind the offered ones, however far behind it stood. */
function withFirst(shortlist, of) {
  const rank = (candidate) => (candidate.offered ? 0 : candidate.tool === of ? 1 : 2);
  return { ...shortlist, candidates: shortlist.candidates.toSorted((one, other) => rank(one) - rank(other)) };
}
