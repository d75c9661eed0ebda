// Current requests, each with a link to its journey.

import { get, post } from "../api.js";
import { MAX_LINES, live, mergeLines } from "../live.js";
import { usePacket } from "../follow.js";
import { buildJourney, refineOutcome } from "../journey.js";
import { useExamples } from "../examples.js";
import { AnswerPanel, Reply } from "../journey/answer.js";
import { Journey, RequestFacts, describeOutcome } from "../journey/view.js";
import { Bidi, Button, Chip, Empty, Page, Problem, Skeleton, formatDuration, html, formatNumber, useKeys, useMemo, useRef, useState, useStore, escapeInvisible } from "../ui.js";
import { useAction } from "./paging.js";
import { formatClock, formatExact } from "../ui/time.js";

export default function Live({ params, me }) {
  const [packetId] = params;
  return packetId ? html`<${OnePacket} key=${packetId} packetId=${packetId} me=${me} />` : html`<${List} />`;
}

// The list

const MAX_ROWS = 100;
const FAILED_OUTCOMES = new Set(["failed", "limited", "interrupted"]);
const UNFAILED_CALLS = new Set(["succeeded", "approved", "cancelled", "denied", "authorization_required"]);
const STATES = {
  running: (line) => line.state === "running",
  waiting: (line) => line.state === "waiting",
  failed: (line) => FAILED_OUTCOMES.has(line.outcome) || (line.kind === "call" && line.state === "ended" && !UNFAILED_CALLS.has(line.outcome)),
};
const KINDS = { request: "requests", call: "calls" };

/** Returns the lines with one of the selected states, one of the selected kinds, and the words. */
export function filterLines(lines, { text, states, kinds }) {
  const words = text.trim().toLowerCase();
  const getSearchText = (line) => [line.prompt, line.caller, line.conversation, line.packet_id, ...line.tools].join(" ").toLowerCase();
  return lines.filter(
    (line) =>
      (!states.length || states.some((state) => STATES[state](line))) &&
      (!kinds.length || kinds.includes(line.kind)) &&
      (!words || getSearchText(line).includes(words)),
  );
}

function List() {
  const { lines, state } = useStore(live);
  const [filter, setFilter] = useState({ text: "", states: [], kinds: [] });
  const [paused, setPaused] = useState(null);
  const [older, setOlder] = useState({ lines: [], busy: false, error: null, done: false });
  const allLines = useMemo(() => mergeLines(paused ?? lines, older.lines, 2 * MAX_LINES), [paused, lines, older.lines]);
  const filteredLines = useMemo(() => filterLines(allLines, filter), [allLines, filter]);
  useKeys(useRowKeys());
  const change = (next) => {
    setFilter({ ...filter, ...next });
    setOlder({ lines: [], busy: false, error: null, done: false });
  };
  const missed = paused ? lines.filter((line) => line.seq > (paused[0]?.seq ?? -1)).length : 0;
  const actions = html`<${Button} onClick=${() => setPaused(paused ? null : lines)}>${paused ? `Resume${missed ? ` (${missed} new)` : ""}` : "Pause"}<//>`;
  const loadOlder = () => fetchOlder({ filter, before: allLines.at(-1)?.seq, older, setOlder });
  return html`<${Page} title="Live" actions=${actions}>
    <${Filters} filter=${filter} change=${change} lines=${allLines} />
    <${Rows} lines=${filteredLines.slice(0, MAX_ROWS + older.lines.length)} total=${allLines.length} connecting=${state === "connecting"} filter=${filter} />
    ${older.error ? html`<${Problem} error=${older.error} onRetry=${loadOlder} />` : null}
    ${allLines.length && !older.done && older.lines.length < MAX_LINES
      ? html`<div class="row"><${Button} tone="quiet" busy=${older.busy} onClick=${loadOlder}>${filter.text ? "Search older requests" : "Show older requests"}<//></div>`
      : null}
    ${older.done ? html`<p class="faint">There are no older requests.</p>` : null}
  <//>`;
}

async function fetchOlder({ filter, before, older, setOlder }) {
  setOlder({ ...older, busy: true, error: null });
  const kind = filter.kinds.length === 1 ? filter.kinds[0] : undefined;
  try {
    const page = await get("/api/packets", { limit: 50, before, text: filter.text.trim(), kind });
    setOlder({ lines: [...older.lines, ...page.items], busy: false, error: null, done: page.next === null });
  } catch (error) {
    setOlder({ ...older, busy: false, error });
  }
}

const toggle = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

function Filters({ filter, change, lines }) {
  const count = (state) => lines.reduce((sum, line) => sum + (STATES[state](line) ? 1 : 0), 0);
  return html`<div class="filters" role="search">
    <input type="search" data-search="" aria-label="Filter by words, tool, caller or id" placeholder="Filter by words, tool, caller or id" value=${filter.text} onInput=${(event) => change({ text: event.target.value })} dir="auto" />
    <div class="row" role="group" aria-label="Show only">
      ${Object.keys(STATES).map((state) => html`<${Chip} key=${state} on=${filter.states.includes(state)} onClick=${() => change({ states: toggle(filter.states, state) })}>${state} <span class="chip-count">${count(state)}</span><//>`)}
      <span class="chip-gap" aria-hidden="true"></span>
      ${Object.entries(KINDS).map(([kind, title]) => html`<${Chip} key=${kind} on=${filter.kinds.includes(kind)} onClick=${() => change({ kinds: toggle(filter.kinds, kind) })}>${title}<//>`)}
    </div>
  </div>`;
}

/** Shortcuts j and k: next and previous line. */
function useRowKeys() {
  const step = (by) => () => {
    const rows = [...document.querySelectorAll(".line")];
    const place = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, place + by))]?.focus();
  };
  return useRef({ j: step(1), k: step(-1) }).current;
}

function Rows({ lines, total, connecting, filter }) {
  if (!total && connecting) return html`<${Skeleton} lines=${5} />`;
  if (!total) return html`<${NoRequests} />`;
  if (!lines.length) return html`<${Empty} title="No matches">${total} ${total === 1 ? "request is" : "requests are"} hidden by the filter. Remove a word or a chip${filter.text ? ", or search older requests" : ""}.<//>`;
  return html`<div class="lines-box">
    <div class="lines-head" aria-hidden="true"><span>Time</span><span>Request</span><span>Tools</span><span>Outcome</span><span class="end" title="Tokens saved, compared with offering every tool to the model; only where a model ran">Saved</span><span class="end">Took</span></div>
    <ol class="lines" aria-label="Requests, newest first">
      ${lines.map(renderRow)}
    </ol>
  </div>`;
}

function NoRequests() {
  const [example] = useExamples();
  return html`<${Empty} title="No requests yet" action=${html`<a class="button main" href="#/ask">Ask something</a>`}>
    <p>Requests appear here as they arrive: from this console, the command line, MCP clients and OpenAI clients. Open one to
      see how it was answered.</p>
    <p>Try <a href=${`#/ask?request=${encodeURIComponent(example.text)}`}>“${example.text}”</a></p>
  <//>`;
}

/**
 * Renders a line without components. Removed components keep a reference to their old list, which leaks memory
 * at fifty requests per second.
 */
function renderRow(line) {
  const [tone, words] = describeOutcome(line.state === "waiting" ? (line.outcome ?? "waiting") : refineOutcome(line.outcome, line), line.state);
  return html`<li key=${line.packet_id}>
    <a class="line ${line.state}" href=${`#/live/${encodeURIComponent(line.packet_id)}`}>
      <span class="line-time"><time datetime=${line.at} title=${formatExact(line.at)}>${formatClock(line.at)}</time></span>
      <span class="line-prompt">${line.kind === "call" ? html`<span class="line-kind">${line.kind}</span>` : null}${line.parent ? html`<span class="line-kind">subagent</span>` : null}<bdi dir="auto">${escapeInvisible(line.prompt || "(empty)")}</bdi></span>
      <span class="line-tools">${renderTools(line)}</span>
      <span class="line-outcome"><span class="badge ${tone}">${words}</span></span>
      <span class="line-saved end" title="Tokens saved, compared with offering every tool to the model">${line.saved_tokens ? formatNumber(line.saved_tokens) : "–"}</span>
      <span class="line-took end">${line.milliseconds === null ? "…" : formatDuration(line.milliseconds)}</span>
    </a>
  </li>`;
}

function renderTools(line) {
  if (line.tools.length) {
    const more = line.tools.length - 1;
    return html`<code dir="ltr">${escapeInvisible(line.tools[0])}</code>${more ? html` <span class="faint">+${more}</span>` : null}${line.fallbacks ? html` <span class="faint" title="another tool answered (fallback)">↪</span>` : null}`;
  }
  if (line.kind === "call" || line.need === null) return html`<span class="faint">${line.mode ?? ""}</span>`;
  return html`<span class="faint">${line.need === "none" ? "no tool needed" : `${line.offered} of ${line.considered} offered, none called`}</span>`;
}

// One packet

const capitalize = (words) => words.charAt(0).toUpperCase() + words.slice(1);

function OnePacket({ packetId, me }) {
  const { events, line: loaded, error, running, reload } = usePacket(packetId);
  const { lines } = useStore(live);
  const line = lines.find((one) => one.packet_id === packetId) ?? loaded;
  const journey = useMemo(() => buildJourney(events), [events]);
  const back = html`<a class="button" href="#/live">← All requests</a>`;
  if (error) {
    return html`<${Page} title="Request" actions=${back}><${Problem} error=${error} onRetry=${error.status === 404 ? undefined : reload} /><//>`;
  }
  if (!events.length) return html`<${Page} title="Request" actions=${back}><${Skeleton} lines=${8} /><//>`;
  const prompt = journey.request.prompt || line?.prompt || "";
  return html`<${Page} title=${journey.request.bare ? "Call" : "Request"} actions=${back}>
    <section class="panel stack asked">
      <${Bidi} text=${prompt} block=${true} class="asked-text" />
    </section>
    <${AnswerPanel}
      journey=${journey}
      answer=${journey.outcome.answer}
      outcome=${line?.state === "waiting" ? (line.outcome ?? "waiting") : (journey.outcome.outcome ?? line?.outcome)}
      state=${line?.state ?? "running"}
      line=${line}
      me=${me}
      running=${running && line?.state !== "waiting"}
      nextStep=${line?.next_step ? capitalize(line.next_step) : ""}
    >
      ${line?.state === "waiting" && line.outcome === "asked" ? html`<${ReplyHere} packetId=${packetId} journey=${journey} me=${me} />` : null}
    <//>
    <section class="panel" aria-label="About this request"><${RequestFacts} journey=${journey} line=${line} packetId=${packetId} /></section>
    <${Journey} events=${events} line=${line} running=${running && line?.state !== "waiting"} me=${me} />
  <//>`;
}

/** The form for the reply to the request's question, for the caller who asked. */
function ReplyHere({ packetId, journey, me }) {
  const { busy, error, run } = useAction();
  const { question } = journey.outcome;
  if (!question || question.pending_id || !me?.rights?.includes("use") || journey.request.caller !== me.name) return null;
  const reply = (request) => run(() => post("/api/ask", { request, answers: packetId }));
  return html`<${Reply} question=${question} busy=${busy} onReply=${reply} />${error ? html`<${Problem} error=${error} />` : null}`;
}
