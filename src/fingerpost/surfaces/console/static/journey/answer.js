// The answer to a request, first on its page and on Ask. A call that waits is decided here.

import { Bidi, Button, Code, Field, Problem, formatDuration, html, useEffect, useRef, useState, escapeInvisible } from "../ui.js";
import { Sources } from "./sections.js";
import { CostFacts, OutcomeBadge, getDuration } from "./view.js";

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
  const question = outcome === "asked" ? (journey.outcome.question?.text ?? null) : null;
  const text = question ?? dropSourceLine(answer);
  const result = text ? null : findResult(journey);
  const failure = outcome === "failed" ? findFailure(journey) : null;
  return html`<section ref=${panel} class="panel stack answer" aria-label="Answer" aria-live="polite" aria-busy=${running ? "true" : "false"}>
    <div class="row"><h2>${question ? "Question" : "Answer"}</h2><${OutcomeBadge} outcome=${outcome} state=${state} />
      <span class="faint">${[describeAuthor(answer), describeDuration(journey, line, running)].filter(Boolean).join(" · ")}</span>${actions ? html`<span class="push">${actions}</span>` : null}</div>
    ${text ? html`<${Bidi} text=${text} block=${true} class="answer-text" />` : null}
    ${failure ? html`<p>Error of <${Code}>${failure.tool}<//>: <${Bidi} text=${failure.detail} /></p>` : null}
    ${result ? html`<${Bidi} text=${result} block=${true} class="result-text" />` : null}
    ${!text && !result && running ? html`<p class="faint row"><span class="spinner" aria-hidden="true"></span> Working…</p>` : null}
    ${!text && !result && !running && !pendingId ? html`<p class="faint">${describeMissing(journey, outcome)}</p>` : null}
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

/** Returns the answer without its last line, if that only names the sources: they are shown as links. */
function dropSourceLine(answer) {
  if (!answer?.sources?.length) return answer?.text;
  const [, text, named] = /^(.*?)\n+(?:Sources?|מקור|מקורות): ([^\n]+)\s*$/s.exec(answer.text) ?? [null, answer.text, null];
  return named?.split(", ").every((tool) => answer.sources.includes(tool)) ? text : answer.text;
}

/** Returns {tool, detail} of the last attempt, if it failed with a message. */
function findFailure(journey) {
  const last = journey.calls.at(-1)?.attempts.at(-1);
  return last?.made?.error && last.made.detail ? { tool: last.tool, detail: last.made.detail } : null;
}

const describeAuthor = (answer) => (answer?.text && answer.by ? (answer.by === NO_MODEL ? "no model used" : `by ${escapeInvisible(answer.by)}`) : "");

function describeDuration(journey, line, running) {
  const milliseconds = running ? null : getDuration(journey, line);
  return milliseconds === null ? "" : formatDuration(milliseconds);
}

/** A form for the reply to a question. `onReply(text)` sends it. */
export function Reply({ question, busy = false, onReply }) {
  const [answer, setAnswer] = useState("");
  const onSubmit = (event) => {
    event.preventDefault();
    if (answer.trim()) onReply(answer.trim());
  };
  const missing = question.missing ?? [];
  const [first, ...others] = missing;
  const isConfirmation = !others.length && first?.name === "tool" && first.options.length === 1;
  const options = isConfirmation ? ["yes", "no"] : missing.flatMap((one) => one.options);
  return html`<form class="stack" onSubmit=${onSubmit}>
    <${Field} label="Your answer">
      ${(props) =>
        others.length
          ? html`<textarea ...${props} dir="auto" rows=${missing.length} required value=${answer} placeholder=${missing.map((one) => `${escapeInvisible(one.name)}: …`).join("\n")} onInput=${(event) => setAnswer(event.target.value)}></textarea>`
          : html`<input ...${props} dir="auto" required value=${answer} onInput=${(event) => setAnswer(event.target.value)} />`}
    <//>
    ${options.length ? html`<div class="row">${options.slice(0, 12).map((option) => html`<button key=${option} type="button" class="chip" disabled=${busy} onClick=${() => onReply(option)}>${escapeInvisible(option)}</button>`)}</div>` : null}
    <div class="row"><${Button} type="submit" tone="main" busy=${busy} disabled=${!answer.trim()}>Answer<//></div>
  </form>`;
}

function describeMissing(journey, outcome) {
  if (outcome === "narrowed") return describeOffered(journey);
  if (!journey.request.bare) return "There is no answer.";
  if (outcome === "dry_run") return "Dry run: the arguments are valid. Nothing was called.";
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
