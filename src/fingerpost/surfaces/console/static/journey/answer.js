// The answer to a request, first on its page and on Ask. A call that waits is decided here.

import { Bidi, Problem, html, useEffect, useRef, useState, escapeInvisible } from "../ui.js";
import { Sources } from "./sections.js";
import { CostFacts, OutcomeBadge } from "./view.js";

export const NO_MODEL = "no model";

/**
 * `answer`: {text, by, sources} or null; `outcome` and `state` as in the list of requests.
 * `reveal`: scroll here when the request begins, on screens that do not show both.
 */
export function AnswerPanel({ journey, answer, outcome, state = "running", line = null, me, running = false, reveal = false, nextStep = "", onChanged, actions = null, children = null }) {
  const panel = useRef(null);
  useEffect(() => {
    const box = panel.current?.getBoundingClientRect();
    if (reveal && box && box.top > innerHeight * 0.6) panel.current.scrollIntoView({ block: "start", behavior: "smooth" });
  }, [reveal, running]);
  const pendingId = findPendingId(journey);
  const result = answer?.text ? null : findResult(journey);
  return html`<section ref=${panel} class="panel stack answer" aria-label="Answer" aria-live="polite" aria-busy=${running ? "true" : "false"}>
    <div class="row"><h2>Answer</h2><${OutcomeBadge} outcome=${outcome} state=${state} />
      ${describeAuthor(answer)}${actions ? html`<span class="push">${actions}</span>` : null}</div>
    ${answer?.text ? html`<${Bidi} text=${answer.text} block=${true} class="answer-text" />` : null}
    ${result ? html`<${Bidi} text=${result} block=${true} class="result-text" />` : null}
    ${!answer?.text && !result && running ? html`<p class="faint row"><span class="spinner" aria-hidden="true"></span> Working…</p>` : null}
    ${!answer?.text && !result && !running && !pendingId ? html`<p class="faint">${describeMissing(journey, outcome)}</p>` : null}
    ${nextStep ? html`<p class="next-step"><${Bidi} text=${nextStep} /></p>` : null}
    ${pendingId ? html`<${Decide} key=${pendingId} id=${pendingId} me=${me} onDone=${onChanged} />` : null}
    <${Sources} sources=${answer?.sources ?? []} />
    ${children}
    ${running ? null : html`<${CostFacts} journey=${journey} line=${line} />`}
  </section>`;
}

/** Returns the id of the newest call that still waits for a decision. */
export function findPendingId(journey) {
  const waiting = journey.calls.findLast(({ approval }) => approval && !approval.decided && !approval.settled);
  return waiting?.approval.pending_id ?? null;
}

/** Returns the result of a direct call, as far as it is recorded. */
function findResult(journey) {
  return journey.request.bare ? (journey.calls[0]?.finished?.detail || null) : null;
}

const describeAuthor = (answer) =>
  answer?.text && answer.by ? html`<span class="faint">${answer.by === NO_MODEL ? "no model used" : `by ${escapeInvisible(answer.by)}`}</span>` : null;

function describeMissing(journey, outcome) {
  if (outcome === "narrowed") return describeOffered(journey);
  if (!journey.request.bare) return "There is no answer.";
  if (outcome === "succeeded") return "The call succeeded. Its result was given to the caller and is not kept here.";
  return outcome === "approved" ? "Approved. It runs when the caller makes the same call again." : "The call has no result.";
}

/** Describes what a request found that was only routed. */
function describeOffered(journey) {
  const section = journey.sections.find((one) => one.type === "shortlist");
  const offered = section?.shortlist.candidates.filter((candidate) => candidate.offered).map((candidate) => candidate.tool) ?? [];
  if (!offered.length) return "Route only: no tool was offered, and nothing was called.";
  return `Route only: ${offered.length === 1 ? "one tool was" : `${offered.length} tools were`} offered (${offered.join(", ")}), and nothing was called.`;
}

/** The approval in short form. Its module is loaded on first use. */
export function Decide({ id, me, onDone }) {
  const [{ Card, error }, setLoaded] = useState({ Card: null, error: null });
  useEffect(() => {
    import("../pages/approvals.js").then(
      (module) => setLoaded({ Card: module.ApprovalCard, error: null }),
      (cause) => setLoaded({ Card: null, error: cause }),
    );
  }, []);
  if (error) return html`<${Problem} error=${error} />`;
  return Card ? html`<${Card} id=${id} me=${me} short=${true} onDone=${onDone} />` : null;
}
