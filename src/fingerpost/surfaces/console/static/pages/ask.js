// Ask: route a request without running it, or run it.

import { post, send } from "../api.js";
import { followPacket } from "../follow.js";
import { buildJourney, buildNarrowingSections } from "../journey.js";
import { useExamples } from "../examples.js";
import { AnswerPanel, Reply } from "../journey/answer.js";
import { Section, ToolLink } from "../journey/sections.js";
import { Shortlist } from "../journey/shortlist.js";
import { Journey } from "../journey/view.js";
import { Badge, Bidi, Button, Field, Page, Problem, html, useEffect, useMemo, useReducer, useRef, useState, escapeInvisible } from "../ui.js";

const MODES = {
  auto: "auto: chosen for each request",
  staged: "staged: select, review, answer",
  single: "single: one model call selects",
  simple: "simple: an agent with tools",
  react: "react: an agent that reasons step by step",
  keyless: "keyless: no model",
};
const WIDE = "(min-width: 40rem)";

export default function Ask({ query, me }) {
  const [text, setText] = useState(query?.get("request") ?? "");
  const [options, setOptions] = useState({ mode: "", profile: me.profile_required ? me.profiles[0] : "", persona: "", dryRun: false });
  const [run, start] = useRun();
  const box = useRef(null);
  useEffect(() => {
    if (query?.get("request")) setText(query.get("request"));
  }, [query]);
  const ask = (words) => start.ask({ request: words, ...options });
  const example = (words) => {
    setText(words);
    ask(words);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // Shift+Enter: a new line
    event.preventDefault();
    if (text.trim() && !run.busy) ask(text);
  };
  return html`<${Page} title="Ask">
    <section class="panel stack">
      <${Field} label="Request">
        <textarea ref=${box} data-search="" rows="3" dir="auto" maxlength="20000" placeholder="Ask something, or say what to do" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown}></textarea>
      <//>
      <${RequestOptions} options=${options} change=${(next) => setOptions({ ...options, ...next })} me=${me} />
      <div class="row">
        <${Button} tone="main" busy=${run.busy === "ask"} disabled=${!text.trim() || run.busy} onClick=${() => ask(text)} title="Enter; Shift+Enter for a new line">Run<//>
        <${Button} busy=${run.busy === "route"} disabled=${!text.trim() || run.busy} onClick=${() => start.route({ request: text, ...options })} title="Shows which tools would be offered. Nothing is called.">Route only<//>
        ${run.busy === "ask" ? html`<${Button} tone="quiet" onClick=${start.stop}>Stop<//>` : null}
        ${me.keyless ? html`<span class="faint">No model is configured: you get the tool's own reply.</span>` : null}
      </div>
      <${Examples} onPick=${example} busy=${Boolean(run.busy)} />
    </section>
    <${Outcome} run=${run} start=${start} me=${me} />
  <//>`;
}

function Examples({ onPick, busy }) {
  const examples = useExamples();
  return html`<div class="examples" role="group" aria-label="Examples">
    <span class="faint">Try</span>
    ${examples.map((example) => html`<button key=${example.text} type="button" class="chip" dir="auto" title=${example.hint} disabled=${busy} onClick=${() => onPick(example.text)}>${example.text}</button>`)}
  </div>`;
}

function RequestOptions({ options, change, me }) {
  const modes = me.modes ?? Object.keys(MODES);
  return html`<details class="options" open=${matchMedia(WIDE).matches}><summary>Options</summary><div class="wishes">
    <${Field} label="Mode">
      <select value=${options.mode} onChange=${(event) => change({ mode: event.target.value })}>
        <option value="">default</option>
        ${modes.map((mode) => html`<option key=${mode} value=${mode}>${MODES[mode] ?? mode}</option>`)}
      </select>
    <//>
    ${me.profiles?.length
      ? html`<${Field} label="Profile">
          <select value=${options.profile} onChange=${(event) => change({ profile: event.target.value })}>
            ${me.profile_required ? null : html`<option value="">${me.default_profile ? `default: ${escapeInvisible(me.default_profile)}` : "none"}</option>`}
            ${me.profiles.map((profile) => html`<option key=${profile} value=${profile}>${escapeInvisible(profile)}</option>`)}
          </select>
        <//>`
      : null}
    <${Field} label="Persona">
      <input dir="auto" maxlength="2000" placeholder="optional: who the assistant is" value=${options.persona} onInput=${(event) => change({ persona: event.target.value })} />
    <//>
    <label class="switch"><input type="checkbox" checked=${options.dryRun} onChange=${(event) => change({ dryRun: event.target.checked })} /> Dry run: call nothing</label>
  </div></details>`;
}

// The state of a run

const INITIAL_RUN = { busy: null, asked: null, narrowing: null, events: [], text: "", route: null, error: null };

function reduceRun(run, action) {
  switch (action.type) {
    case "begin":
      return { ...INITIAL_RUN, busy: action.busy, asked: action.asked };
    case "events":
      return { ...run, events: [...run.events, ...action.events] };
    case "text":
      return { ...run, text: run.text + action.text };
    case "done":
      return { ...run, ...action.result, busy: null };
    default:
      return run;
  }
}

const newConversation = () => `console-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;

/** Returns [run, {ask, route, stop, reply}]. One run at a time; leaving the page ends it. */
function useRun() {
  const [run, dispatch] = useReducer(reduceRun, INITIAL_RUN);
  const control = useRef(null);
  const stopFollowing = useRef(() => {});
  const abort = () => {
    control.current?.abort();
    stopFollowing.current();
  };
  useEffect(() => abort, []);
  const start = useMemo(() => ({ ask, route, stop, reply }), []);
  return [run, start];

  function begin(busy, asked) {
    abort();
    control.current = new AbortController();
    dispatch({ type: "begin", busy, asked });
    return control.current.signal;
  }

  async function route(asked) {
    const signal = begin("route", asked);
    try {
      const narrowing = await post("/api/route", { request: asked.request, ...dropEmpty({ profile: asked.profile }) }, { signal });
      dispatch({ type: "done", result: { narrowing } });
    } catch (error) {
      if (!signal.aborted) dispatch({ type: "done", result: { error } });
    }
  }

  async function ask(wanted) {
    const asked = { conversation: newConversation(), ...wanted };
    const signal = begin("ask", asked);
    const batcher = createBatcher(dispatch);
    let ended = null;
    const handlers = { event: batcher.event, text: batcher.text, route: (route) => (ended = route), problem: batcher.failed };
    try {
      await send("/api/ask", buildBody(asked), handlers, { signal });
      batcher.flush();
      if (signal.aborted) return;
      dispatch({ type: "done", result: { route: ended, error: batcher.error() ?? (ended ? null : INTERRUPTED_ERROR) } });
      if (ended?.outcome === "waiting") followWaiting(ended.packet_id);
    } catch (error) {
      batcher.flush();
      if (!signal.aborted) dispatch({ type: "done", result: { error } });
    }
  }

  /** Shows the events after the decision about a waiting call, wherever it is made. */
  function followWaiting(packetId) {
    stopFollowing.current = followPacket(packetId, { onEvents: (events) => dispatch({ type: "events", events }) });
  }

  function reply({ asked, route }, answer) {
    return ask({ ...asked, request: answer, answers: route.packet_id });
  }

  function stop() {
    abort();
    dispatch({ type: "done", result: { error: { title: "Stopped", detail: "The request was cancelled. Calls that had already run are not undone." } } });
  }
}

const INTERRUPTED_ERROR = { title: "The connection ended early", detail: "The answer is incomplete. Live shows what happened to the request." };

function buildBody({ request, mode, profile, persona, dryRun, conversation, answers }) {
  return { request, ...dropEmpty({ mode, profile, persona: persona?.trim(), conversation, answers }), ...(dryRun ? { dry_run: true } : {}) };
}

const dropEmpty = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));

/** Collects events and text, and dispatches them once per frame. */
function createBatcher(dispatch) {
  let events = [];
  let text = "";
  let frame = 0;
  let error = null;
  const flush = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (events.length) dispatch({ type: "events", events });
    if (text) dispatch({ type: "text", text });
    events = [];
    text = "";
  };
  const scheduleFlush = () => (frame ||= requestAnimationFrame(flush));
  return {
    event: (event) => (events.push(event), scheduleFlush()),
    text: (piece) => ((text += piece.text), scheduleFlush()),
    failed: (problem) => (error = { title: problem.title, detail: problem.detail, hint: problem.hint }),
    error: () => error,
    flush,
  };
}

// The result

function Outcome({ run, start, me }) {
  const journey = useMemo(() => buildJourney(run.events), [run.events]);
  if (run.error) return html`<${Problem} error=${run.error} /><${RunJourney} run=${run} me=${me} />`;
  if (run.narrowing) return html`<${NarrowingResult} narrowing=${run.narrowing} />`;
  if (run.busy !== "ask" && !run.route) return null;
  const ended = journey.outcome.outcome;
  const isOver = ended && ended !== "waiting";
  const outcome = isOver ? ended : (run.route?.outcome ?? null);
  const given = isOver ? journey.outcome.answer : null;
  const answer = {
    text: outcome === "waiting" ? "" : given?.text || run.route?.answer || run.text,
    by: given?.by ?? run.route?.answered_by,
    sources: journey.outcome.answer?.sources ?? run.route?.sources ?? [],
  };
  const link = run.route ? html`<a href=${`#/live/${encodeURIComponent(run.route.packet_id)}`}>Open in Live</a>` : null;
  return html`<${AnswerPanel} journey=${journey} answer=${answer} outcome=${outcome} me=${me} running=${run.busy === "ask"} reveal=${true} actions=${link}>
      <${Directives} directives=${run.route?.directives ?? []} />
      ${outcome === "asked" && run.route?.question ? html`<${Reply} key=${run.events.length} question=${run.route.question} onReply=${(words) => start.reply(run, words)} />` : null}
    <//>
    <${RunJourney} run=${run} me=${me} />`;
}

/** Directives for a VR or AR client, in order. */
function Directives({ directives }) {
  if (!directives.length) return null;
  return html`<section class="stack" aria-label="Directives">
    <h3>Directives</h3>
    <ol>${directives.map((one) => html`<li key=${one.id}><code>${escapeInvisible(one.directive)}</code> ${one.target ? html`<${Bidi} text=${one.target} /> ` : null}<code>${escapeInvisible(JSON.stringify(one.parameters))}</code></li>`)}</ol>
  </section>`;
}

const RunJourney = ({ run, me }) => (run.events.length ? html`<${Journey} events=${run.events} running=${run.busy === "ask"} me=${me} />` : null);

/** The result of routing alone: what would be offered, then why. */
function NarrowingResult({ narrowing }) {
  const sections = buildNarrowingSections(narrowing);
  const offered = narrowing.shortlist.candidates.filter((candidate) => candidate.offered);
  const panel = useRef(null);
  useEffect(() => {
    if (panel.current.getBoundingClientRect().top > innerHeight * 0.6) panel.current.scrollIntoView({ block: "start" });
  }, [narrowing]);
  return html`<section ref=${panel} class="panel stack answer" aria-label="Answer" aria-live="polite">
    <div class="row"><h2>${offered.length ? "Offered tools" : "No tool offered"}</h2><${Badge} tone="info">route only<//></div>
    ${offered.length
      ? html`<p class="row">${offered.map((candidate) => html`<${ToolLink} key=${candidate.tool} tool=${candidate.tool} />`)}</p>
          <p class="faint">${Math.round(100 * narrowing.shortlist.fit)} % likely that one of these fits. Nothing was called.</p>`
      : html`<p>${narrowing.need.verdict === "none" ? `No tool needed (chance that one is: ${Math.round(100 * narrowing.need.score)} %).` : "No tool fits this request."} Nothing was called.</p>`}
  </section>
  <ol class="steps" aria-label="Why">
    ${sections.map(
      (section) => html`<li key=${section.type} class="step step-${section.type}">
        ${section.type === "shortlist"
          ? html`<section class="panel"><${Shortlist} shortlist=${section.shortlist} cards=${narrowing.cards ?? {}} /></section>`
          : html`<${Section} section=${section} />`}
      </li>`,
    )}
  </ol>`;
}
