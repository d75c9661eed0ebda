// Try a request: see where it would go, or let it run.

import { post, send } from "../api.js";
import { followPacket } from "../follow.js";
import { journeyOf, narrowingSections } from "../journey.js";
import { Sources, Section } from "../journey/sections.js";
import { Shortlist } from "../journey/shortlist.js";
import { Journey, OutcomeBadge, Spent } from "../journey/view.js";
import { Bidi, Button, Field, Page, Problem, html, useEffect, useMemo, useReducer, useRef, useState, visible } from "../ui.js";

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
  const [wish, setWish] = useState({ mode: "", profile: me.profile_required ? me.profiles[0] : "", persona: "", dryRun: false });
  const [run, start] = useRun();
  const box = useRef(null);
  useEffect(() => {
    if (query?.get("request")) setText(query.get("request"));
  }, [query]);
  const ask = (words) => start.ask({ request: words, ...wish });
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
      <${Wishes} wish=${wish} change=${(next) => setWish({ ...wish, ...next })} me=${me} />
      <div class="row">
        <${Button} tone="main" busy=${run.busy === "ask"} disabled=${!text.trim() || run.busy} onClick=${() => ask(text)} title="Ctrl+Enter">Run<//>
        <${Button} busy=${run.busy === "route"} disabled=${!text.trim() || run.busy} onClick=${() => start.route({ request: text, ...wish })} title="Shows which tools would be offered; nothing is called">Route only<//>
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

function Wishes({ wish, change, me }) {
  const modes = me.modes ?? Object.keys(MODES);
  return html`<div class="wishes">
    <${Field} label="Mode">
      <select value=${wish.mode} onChange=${(event) => change({ mode: event.target.value })}>
        <option value="">as set up</option>
        ${modes.map((mode) => html`<option key=${mode} value=${mode}>${MODES[mode] ?? mode}</option>`)}
      </select>
    <//>
    ${me.profiles?.length
      ? html`<${Field} label="Profile">
          <select value=${wish.profile} onChange=${(event) => change({ profile: event.target.value })}>
            ${me.profile_required ? null : html`<option value="">${me.default_profile ? `as usual: ${visible(me.default_profile)}` : "none"}</option>`}
            ${me.profiles.map((profile) => html`<option key=${profile} value=${profile}>${visible(profile)}</option>`)}
          </select>
        <//>`
      : null}
    <${Field} label="Persona">
      <input dir="auto" maxlength="2000" placeholder="who the assistant is" value=${wish.persona} onInput=${(event) => change({ persona: event.target.value })} />
    <//>
    <label class="switch"><input type="checkbox" checked=${wish.dryRun} onChange=${(event) => change({ dryRun: event.target.checked })} /> Dry run: call nothing</label>
  </div>`;
}

// A run: what was asked, what has come of it so far

const NOTHING = { busy: null, asked: null, narrowing: null, events: [], text: "", route: null, error: null };

function advance(run, news) {
  switch (news.type) {
    case "begin":
      return { ...NOTHING, busy: news.busy, asked: news.asked };
    case "events":
      return { ...run, events: [...run.events, ...news.events] };
    case "text":
      return { ...run, text: run.text + news.text };
    case "done":
      return { ...run, ...news.result, busy: null };
    default:
      return run;
  }
}

const newConversation = () => `console-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;

/** [run, {ask, route, stop, reply}]. One run at a time; leaving the page ends it. */
function useRun() {
  const [run, tell] = useReducer(advance, NOTHING);
  const control = useRef(null);
  const stopFollowing = useRef(() => {});
  const halt = () => {
    control.current?.abort();
    stopFollowing.current();
  };
  useEffect(() => halt, []);
  const start = useMemo(() => ({ ask, route, stop, reply }), []);
  return [run, start];

  function begin(busy, asked) {
    halt();
    control.current = new AbortController();
    tell({ type: "begin", busy, asked });
    return control.current.signal;
  }

  async function route(asked) {
    const signal = begin("route", asked);
    try {
      const narrowing = await post("/api/route", { request: asked.request, ...some({ profile: asked.profile }) }, { signal });
      tell({ type: "done", result: { narrowing } });
    } catch (error) {
      if (!signal.aborted) tell({ type: "done", result: { error } });
    }
  }

  async function ask(wanted) {
    const asked = { conversation: newConversation(), ...wanted };
    const signal = begin("ask", asked);
    const news = gathering(tell);
    let ended = null;
    const handlers = { event: news.event, text: news.text, route: (route) => (ended = route), problem: news.failed };
    try {
      await send("/api/ask", bodyOf(asked), handlers, { signal });
      news.flush();
      if (signal.aborted) return;
      tell({ type: "done", result: { route: ended, error: news.error() ?? (ended ? null : BROKEN) } });
      if (ended?.outcome === "waiting") followOn(ended.packet_id);
    } catch (error) {
      news.flush();
      if (!signal.aborted) tell({ type: "done", result: { error } });
    }
  }

  /** The call waits for a person. Whoever decides, here or elsewhere: the rest is shown when it comes. */
  function followOn(packetId) {
    stopFollowing.current = followPacket(packetId, { onEvents: (events) => tell({ type: "events", events }) });
  }

  function reply({ asked, route }, answer) {
    return ask({ ...asked, request: answer, answers: route.packet_id });
  }

  function stop() {
    halt();
    tell({ type: "done", result: { error: { title: "Stopped", detail: "The request was given up. What had already run has run." } } });
  }
}

const BROKEN = { title: "The answer broke off", detail: "The connection ended before the answer was complete. See Live for what became of it." };

function bodyOf({ request, mode, profile, persona, dryRun, conversation, answers }) {
  return { request, ...some({ mode, profile, persona: persona?.trim(), conversation, answers }), ...(dryRun ? { dry_run: true } : {}) };
}

const some = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));

/** Events and pieces of text, told to the page once per frame. */
function gathering(tell) {
  let events = [];
  let text = "";
  let frame = 0;
  let error = null;
  const flush = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (events.length) tell({ type: "events", events });
    if (text) tell({ type: "text", text });
    events = [];
    text = "";
  };
  const soon = () => (frame ||= requestAnimationFrame(flush));
  return {
    event: (event) => (events.push(event), soon()),
    text: (piece) => ((text += piece.text), soon()),
    failed: (problem) => (error = { title: problem.title, detail: problem.detail, hint: problem.hint }),
    error: () => error,
    flush,
  };
}

// What came of it

function Outcome({ run, start, me }) {
  const journey = useMemo(() => journeyOf(run.events), [run.events]);
  if (run.error) return html`<${Problem} error=${run.error} /><${Below} run=${run} me=${me} />`;
  if (run.narrowing) return html`<${Routed} narrowing=${run.narrowing} />`;
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
      ${run.route ? html`<${Spent} journey=${journey} line=${null} />` : null}
    </section>
    <${Below} run=${run} me=${me} />`;
}

/** What a VR or AR client would carry out, in order. */
function Directives({ directives }) {
  if (!directives.length) return null;
  return html`<section class="stack" aria-label="Directives">
    <h3>Directives</h3>
    <ol>${directives.map((one) => html`<li key=${one.id}><code>${visible(one.directive)}</code> ${one.target ? html`<${Bidi} text=${one.target} /> ` : null}<code>${visible(JSON.stringify(one.parameters))}</code></li>`)}</ol>
  </section>`;
}

const Below = ({ run, me }) => (run.events.length ? html`<${Journey} events=${run.events} running=${run.busy === "ask"} me=${me} withAnswer=${false} />` : null);

function Reply({ run, start }) {
  const [answer, setAnswer] = useState("");
  const { question } = run.route;
  const onSubmit = (event) => {
    event.preventDefault();
    if (answer.trim()) start.reply(run, answer.trim());
  };
  const options = question.missing.flatMap((one) => one.options);
  return html`<form class="stack" onSubmit=${onSubmit}>
    <${Field} label="Your answer" hint=${question.missing.map((one) => `${visible(one.name)}: ${visible(one.description)}`).join(" · ")}>
      <input dir="auto" required value=${answer} onInput=${(event) => setAnswer(event.target.value)} />
    <//>
    ${options.length ? html`<div class="row">${options.slice(0, 12).map((option) => html`<button key=${option} type="button" class="chip" onClick=${() => start.reply(run, option)}>${visible(option)}</button>`)}</div>` : null}
    <div class="row"><${Button} type="submit" tone="main" disabled=${!answer.trim()}>Answer<//></div>
  </form>`;
}

/** A dry run: the need and the shortlist, nothing was called. */
function Routed({ narrowing }) {
  const sections = narrowingSections(narrowing);
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
