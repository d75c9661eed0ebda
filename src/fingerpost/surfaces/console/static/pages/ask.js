// Ask: route a request without running it, or run it.

import { post, send } from "../api.js";
import { followPacket } from "../follow.js";
import { buildJourney, buildNarrowingSections } from "../journey.js";
import { Sources, Section } from "../journey/sections.js";
import { Shortlist } from "../journey/shortlist.js";
import { Journey, OutcomeBadge, CostFacts } from "../journey/view.js";
import { Bidi, Button, Field, Page, Problem, html, useEffect, useMemo, useReducer, useRef, useState, escapeInvisible } from "../ui.js";

const EXAMPLES = [
  { text: "What time is it in Tokyo right now?", hint: "one tool that only reads" },
  { text: "What does notes/retries.md say about writes?", hint: "a note of the example workspace" },
  { text: "Which files mention retry?", hint: "a search in the example workspace" },
  { text: "hello", hint: "no tool is needed" },
  { text: "מה השעה עכשיו בטוקיו?", hint: "the time in Tokyo, in Hebrew" },
  { text: 'Create a file "hello.txt" with the content "Hello from Fingerpost"', hint: "writes, so a person is asked first" },
  { text: "Run the tests", hint: "a command: shown, and not run until commands are switched on" },
];

const MODES = {
  auto: "auto: as suits the request",
  staged: "staged: select, review, answer",
  single: "single: one decision",
  simple: "simple: an agent",
  react: "react: an agent that thinks aloud",
  keyless: "keyless: no model at all",
};

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
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim()) ask(text);
  };
  return html`<${Page} title="Ask">
    <section class="panel stack">
      <${Field} label="Request">
        <textarea ref=${box} data-search="" rows="3" dir="auto" maxlength="20000" placeholder="What should be done?" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown}></textarea>
      <//>
      <${RequestOptions} options=${options} change=${(next) => setOptions({ ...options, ...next })} me=${me} />
      <div class="row">
        <${Button} tone="main" busy=${run.busy === "ask"} disabled=${!text.trim() || run.busy} onClick=${() => ask(text)} title="Ctrl+Enter">Run<//>
        <${Button} busy=${run.busy === "route"} disabled=${!text.trim() || run.busy} onClick=${() => start.route({ request: text, ...options })} title="Shows which tools would be offered; nothing is called">Route only<//>
        ${run.busy === "ask" ? html`<${Button} tone="quiet" onClick=${start.stop}>Stop<//>` : null}
        ${me.keyless ? html`<span class="faint">No model is set up: requests are answered without one.</span>` : null}
      </div>
      <${Examples} onPick=${example} busy=${Boolean(run.busy)} />
    </section>
    <${Outcome} run=${run} start=${start} me=${me} />
  <//>`;
}

function Examples({ onPick, busy }) {
  return html`<div class="examples" role="group" aria-label="Examples">
    <span class="faint">Try</span>
    ${EXAMPLES.map((example) => html`<button key=${example.text} type="button" class="chip" dir="auto" title=${example.hint} disabled=${busy} onClick=${() => onPick(example.text)}>${example.text}</button>`)}
  </div>`;
}

function RequestOptions({ options, change, me }) {
  const modes = me.modes ?? Object.keys(MODES);
  return html`<div class="wishes">
    <${Field} label="Mode">
      <select value=${options.mode} onChange=${(event) => change({ mode: event.target.value })}>
        <option value="">as set up</option>
        ${modes.map((mode) => html`<option key=${mode} value=${mode}>${MODES[mode] ?? mode}</option>`)}
      </select>
    <//>
    ${me.profiles?.length
      ? html`<${Field} label="Profile">
          <select value=${options.profile} onChange=${(event) => change({ profile: event.target.value })}>
            ${me.profile_required ? null : html`<option value="">${me.default_profile ? `as usual: ${escapeInvisible(me.default_profile)}` : "none"}</option>`}
            ${me.profiles.map((profile) => html`<option key=${profile} value=${profile}>${escapeInvisible(profile)}</option>`)}
          </select>
        <//>`
      : null}
    <${Field} label="Persona">
      <input dir="auto" maxlength="2000" placeholder="who the assistant is" value=${options.persona} onInput=${(event) => change({ persona: event.target.value })} />
    <//>
    <label class="switch"><input type="checkbox" checked=${options.dryRun} onChange=${(event) => change({ dryRun: event.target.checked })} /> Dry run: call nothing</label>
  </div>`;
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
    dispatch({ type: "done", result: { error: { title: "Stopped", detail: "The request was given up. What had already run has run." } } });
  }
}

const INTERRUPTED_ERROR = { title: "The answer broke off", detail: "The connection ended before the answer was complete. See Live for what became of it." };

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
  const outcome = ended && ended !== "waiting" ? ended : (run.route?.outcome ?? null);
  const answer = (ended && ended !== "waiting" && journey.outcome.answer?.text) || run.route?.answer || run.text;
  const sources = journey.outcome.answer?.sources ?? run.route?.sources ?? [];
  return html`<section class="panel stack answer" aria-live="polite" aria-busy=${run.busy ? "true" : "false"}>
      <div class="row"><h2>Answer</h2><${OutcomeBadge} outcome=${outcome} state="running" />
        ${run.route ? html`<a class="push" href=${`#/live/${encodeURIComponent(run.route.packet_id)}`}>Open in Live</a>` : null}</div>
      ${answer ? html`<${Bidi} text=${answer} block=${true} class="answer-text" />` : html`<p class="faint"><span class="spinner" aria-hidden="true"></span> On its way…</p>`}
      <${Sources} sources=${sources} />
      <${Directives} directives=${run.route?.directives ?? []} />
      ${outcome === "asked" && run.route?.question ? html`<${Reply} run=${run} start=${start} />` : null}
      ${run.route ? html`<${CostFacts} journey=${journey} line=${null} />` : null}
    </section>
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

const RunJourney = ({ run, me }) => (run.events.length ? html`<${Journey} events=${run.events} running=${run.busy === "ask"} me=${me} withAnswer=${false} />` : null);

function Reply({ run, start }) {
  const [answer, setAnswer] = useState("");
  const { question } = run.route;
  const onSubmit = (event) => {
    event.preventDefault();
    if (answer.trim()) start.reply(run, answer.trim());
  };
  const options = question.missing.flatMap((one) => one.options);
  return html`<form class="stack" onSubmit=${onSubmit}>
    <${Field} label="Your answer" hint=${question.missing.map((one) => `${escapeInvisible(one.name)}: ${escapeInvisible(one.description)}`).join(" · ")}>
      <input dir="auto" required value=${answer} onInput=${(event) => setAnswer(event.target.value)} />
    <//>
    ${options.length ? html`<div class="row">${options.slice(0, 12).map((option) => html`<button key=${option} type="button" class="chip" onClick=${() => start.reply(run, option)}>${escapeInvisible(option)}</button>`)}</div>` : null}
    <div class="row"><${Button} type="submit" tone="main" disabled=${!answer.trim()}>Answer<//></div>
  </form>`;
}

/** The result of a dry run: need and shortlist. */
function NarrowingResult({ narrowing }) {
  const sections = buildNarrowingSections(narrowing);
  return html`<ol class="steps" aria-label="Where it would go">
    ${sections.map(
      (section) => html`<li key=${section.type} class="step step-${section.type}">
        ${section.type === "shortlist"
          ? html`<section class="panel"><${Shortlist} shortlist=${section.shortlist} cards=${narrowing.cards ?? {}} /></section>`
          : html`<${Section} section=${section} />`}
      </li>`,
    )}
  </ol>`;
}
