// From the events of one packet to the sections of its journey. Pure: no page, no clock, no network.
//
// An event is {seq, event_id, kind, at, packet_id, summary, data}. Sections come in the order in which
// things happened; everything about one call is one section, at the place where the call began.

const SECTIONS = {
  request_narrowed: narrowed,
  // Servers that were chosen are told by the narrowing that used them; here only that choosing failed.
  smart_routing_end: (event) => (event.data.success ? [] : [{ type: "servers", choice: chosenServers(event.data) }]),
  shortlist_widened: (event) => [{ type: "widened", tools: event.data.tools, reason: event.data.reason }],
  tools_offered: (event) => (event.data.kept?.length ? [note("info", "Tools kept from earlier turns", event.data.kept.join(", "))] : []),
  tool_selected: selected,
  selection_reviewed: (event) => [{ type: "review", review: event.data.review, confidence: null }],
  thought_noted: (event) => [{ type: "thought", turn: event.data.turn, text: event.data.text }],
  plan_noted: (event) => (event.data.remaining ? [{ type: "plan", text: event.data.remaining }] : []),
  // A question about a call that waits is told by the call itself.
  question_asked: (event) => (event.data.question.pending_id ? [] : [{ type: "question", question: event.data.question }]),
  answer_given: (event) => [{ type: "answer", text: event.data.text, by: event.data.by, sources: event.data.sources ?? [] }],
  reply_rejected: (event) => [note("warn", "A reply could not be used", `${event.data.purpose}: ${event.data.problem}`)],
  syntax_stopped: (event) => [note("warn", "Tool syntax in the answer was stopped", event.summary)],
  history_summarised: (event) => [note("info", "The conversation was shortened", event.summary)],
  budget_reached: (event) => [note("bad", "A limit was reached", event.summary)],
  subagent_began: (event) => [{ type: "subagent", child: event.data.child, request: event.data.request, ended: null }],
};

/** {request, sections, calls, outcome, time, events}: everything a page shows of one packet. */
export function journeyOf(events, { now = 0 } = {}) {
  const ordered = inOrder(events);
  const calls = callsOf(ordered);
  settle(ordered, calls);
  return {
    request: requestOf(ordered),
    sections: sectionsOf(ordered, calls),
    calls,
    outcome: outcomeOf(ordered, calls),
    time: timeOf(ordered, calls, now),
    events: ordered,
  };
}

/** A decision made for another request that asked for the same call is in that one's journey, not in ours. */
function settle(events, calls) {
  const ended = last(events, "route_ended");
  if (!ended || ended.data.outcome === "waiting") return;
  for (const { approval } of calls) if (approval && !approval.decided) approval.settled = true;
}

/** Each event once, oldest first. A stream that was resumed, or joined to a list, may tell some twice. */
export function inOrder(events) {
  const once = new Map(events.map((event) => [event.event_id, event]));
  const places = new Map([...once.keys()].map((id, place) => [id, place]));
  const place = (event) => event.seq ?? null;
  return [...once.values()].sort((a, b) => {
    if (place(a) !== null && place(b) !== null) return place(a) - place(b);
    return moment(a.at) - moment(b.at) || places.get(a.event_id) - places.get(b.event_id);
  });
}

const moment = (at) => new Date(at).getTime();
const first = (events, kind) => events.find((event) => event.kind === kind) ?? null;
const last = (events, kind) => events.findLast((event) => event.kind === kind) ?? null;
const note = (tone, title, text) => ({ type: "note", tone, title, text });

function requestOf(events) {
  const received = first(events, "packet_received")?.data.packet;
  const call = first(events, "call_received")?.data;
  const began = last(events, "route_began")?.data;
  return {
    at: events[0]?.at ?? null,
    prompt: received?.content.original_prompt ?? call?.name ?? "",
    bare: !received && Boolean(call),
    caller: received?.header.caller ?? call?.caller ?? null,
    parent: received?.header.parent_id ?? null,
    conversation: received?.header.session_id ?? call?.conversation ?? null,
    history: received?.context.history ?? [],
    mode: began?.mode ?? null,
    profile: began?.profile ?? null,
    models: [...new Set([began?.lite, began?.prime].filter(Boolean))],
  };
}

function outcomeOf(events, calls) {
  const ended = last(events, "route_ended");
  const answer = last(events, "answer_given")?.data ?? null;
  const models = events.filter((event) => event.kind === "model_answered").map((event) => event.data);
  const sum = (name) => models.reduce((total, model) => total + (model[name] ?? 0), 0);
  const bare = !first(events, "packet_received") && calls.length ? calls[0] : null;
  const state = ended?.data.outcome ?? (bare?.finished ? (bare.finished.success ? "succeeded" : bare.finished.error) : null);
  return {
    outcome: state ?? (bare && bare.approval && !bare.approval.decided ? "waiting" : null),
    milliseconds: ended?.data.milliseconds ?? bare?.finished?.milliseconds ?? null,
    modelMilliseconds: ended?.data.model_milliseconds ?? null,
    cost: ended?.data.cost ?? null,
    modelCalls: models.length,
    promptTokens: sum("prompt_tokens"),
    completionTokens: sum("completion_tokens"),
    answer,
  };
}

// Sections

function sectionsOf(events, calls) {
  const byCall = new Map(calls.map((call) => [call.call_id, call]));
  const sections = [];
  for (const event of events) {
    const made = madeOf(event, sections, byCall);
    for (const section of made) sections.push({ ...section, at: event.at, id: `${event.event_id}-${section.type}` });
  }
  return sections;
}

function madeOf(event, sections, byCall) {
  if (event.kind === "confidence_judged") return judged(event, sections);
  if (event.kind === "subagent_ended") return ended(event, sections);
  if (event.kind === "subagent_began" && sections.some((one) => one.child === event.data.child)) return []; // it goes on
  const id = event.data.call_id;
  if (id !== undefined && byCall.has(id)) {
    const call = byCall.get(id);
    byCall.delete(id);
    return [{ type: "call", call }];
  }
  const make = Object.hasOwn(SECTIONS, event.kind) ? SECTIONS[event.kind] : null;
  return make ? make(event) : [];
}

/** The confidence belongs to the review before it; where nobody reviewed, it stands alone. */
function judged(event, sections) {
  const review = sections.findLast((section) => section.type === "review" || section.type === "selection");
  if (review?.type === "review" && review.confidence === null) {
    review.confidence = event.data.confidence;
    return [];
  }
  return [{ type: "review", review: null, confidence: event.data.confidence }];
}

/** How a subagent ended stands where it began; one that waited and went on ends again. */
function ended({ data }, sections) {
  const begun = sections.find((section) => section.type === "subagent" && section.child === data.child);
  if (begun) begun.ended = data;
  return [];
}

function narrowed(event) {
  const { narrowing, tokens_all: all = 0, tokens_offered: offered = 0 } = event.data;
  return narrowingSections(narrowing, all ? { all, offered } : null);
}

/** Need, servers and shortlist of one narrowing: of a journey, or of a dry run. */
export function narrowingSections(narrowing, tokens = null) {
  const sections = [{ type: "need", need: narrowing.need, signals: narrowing.signals, milliseconds: narrowing.milliseconds }];
  if (narrowing.servers) sections.push({ type: "servers", choice: narrowing.servers });
  if (narrowing.shortlist.candidates.length || narrowing.shortlist.hidden.length) {
    sections.push({ type: "shortlist", shortlist: narrowing.shortlist, tokens });
  }
  return sections;
}

function chosenServers(data) {
  const { relevant_servers: servers, reasoning, by, milliseconds, error } = data;
  return { servers, left_out: [], reasoning: `${reasoning} ${error ?? ""}`.trim(), by, milliseconds };
}

function selected(event) {
  const { selection, alternatives = [], beside = [] } = event.data;
  return [{ type: "selection", selection, alternatives, beside }];
}

/** {max, signals, rows}: candidates with their parts, each signal always in the same place of the list. */
export function scoreBars(shortlist) {
  const signals = [];
  for (const candidate of shortlist.candidates)
    for (const part of candidate.parts) if (!signals.includes(part.signal)) signals.push(part.signal);
  const gained = (candidate) => candidate.parts.reduce((sum, part) => sum + Math.max(0, part.points), 0);
  const max = Math.max(1e-9, ...shortlist.candidates.map(gained));
  return { max, signals, rows: shortlist.candidates };
}

// Calls

const IN_CALL = {
  call_received: (call, { data }) => (call.received = data),
  call_prepared: (call, { data }) => (call.prepared = data),
  call_refused: (call, { data }) => (call.refused = data),
  call_ruled: (call, { data }) => (call.ruled = data),
  call_progressed: (call, { data }) => (call.progress = data),
  result_digested: (call, { data }) => (call.digest = data),
  call_finished: (call, { data }) => (call.finished = data),
  fallback_taken: (call, { data }) => call.fallbacks.push(data),
  approval_requested: (call, event) => (call.approval = { ...event.data, asked: event.at, decided: null }),
  approval_decided: (call, event) => (call.approval = { ...call.approval, decided: { ...event.data, at: event.at } }),
  attempt_started: (call, event) => call.attempts.push({ ...event.data, at: event.at, made: null }),
  attempt_finished: finishAttempt,
};

/** Everything known of each call, in the order in which they began. */
export function callsOf(events) {
  const calls = new Map();
  for (const event of events) {
    const id = event.data.call_id ?? event.data.step?.call_id;
    if (!id) joinQuestion(event, calls);
    if (!id) continue;
    if (!calls.has(id)) calls.set(id, blankCall(id));
    const call = calls.get(id);
    if (event.kind === "tool_result_injected") call.result = event.data.step ?? null;
    else if (Object.hasOwn(IN_CALL, event.kind)) IN_CALL[event.kind](call, event);
    call.tool = call.finished?.tool ?? call.prepared?.tool ?? call.received?.name ?? call.tool;
  }
  return [...calls.values()];
}

/** The same call may already wait for another request: then only the question tells of the approval. */
function joinQuestion({ kind, at, data }, calls) {
  if (kind !== "question_asked" || !data.question.pending_id) return;
  const call = [...calls.values()].findLast((one) => one.finished?.error === "authorization_required" && !one.approval);
  if (call) call.approval = { pending_id: data.question.pending_id, tool: call.tool, reason: data.question.text, asked: at, decided: null };
}

const blankCall = (id) => ({
  call_id: id, tool: "", received: null, prepared: null, refused: null, ruled: null, approval: null,
  attempts: [], fallbacks: [], progress: null, digest: null, finished: null, result: null,
});

function finishAttempt(call, { data }) {
  const { attempt } = data;
  const open = call.attempts.findLast((one) => one.made === null && one.tool === attempt.tool && one.number === attempt.number);
  if (open) open.made = attempt;
  else call.attempts.push({ tool: attempt.tool, number: attempt.number, at: attempt.began, fallback: false, made: attempt });
}

/** [tone, words]: how a call stands. One that waits is over as a call, but not as a matter. */
export function standingOf(call) {
  if (call.finished?.success) return ["good", "succeeded"];
  if (call.approval?.settled) return ["plain", "settled elsewhere"];
  if (call.approval && !call.approval.decided) return ["warn", "waits for a person"];
  if (call.approval && call.finished?.error === "authorization_required") {
    return call.approval.decided.decision === "approved" ? ["good", "approved"] : ["bad", call.approval.decided.decision];
  }
  const error = call.finished?.error ?? call.refused?.error;
  return call.finished || call.refused ? ["bad", (error ?? "failed").replaceAll("_", " ")] : ["info", "running"];
}

// Time

/**
 * {bars, gaps, milliseconds}: what happened when, as shares of the axis.
 * Stretches in which nothing was done (a person thought it over) are drawn short, or the rest could not be seen.
 */
function timeOf(events, calls, now) {
  const bars = [...events.flatMap(barsOfEvent), ...calls.flatMap((call) => barsOfCall(call, now))];
  if (!bars.length) return { bars: [], gaps: [], milliseconds: 0 };
  const start = Math.min(moment(events[0].at), ...bars.map((bar) => bar.from));
  const end = Math.max(...bars.map((bar) => bar.to), moment(events.at(-1).at));
  const axis = squeezedAxis(bars.filter((bar) => bar.kind !== "person"), start, end);
  const placed = bars
    .sort((a, b) => a.from - b.from || a.to - b.to)
    .map((bar) => ({ ...bar, begin: axis.at(bar.from), end: axis.at(bar.to), after: bar.from - start }));
  return { bars: placed, gaps: axis.gaps, milliseconds: end - start };
}

const BAD = new Set(["failed", "limited", "left"]);

function barsOfEvent({ kind, at, data }) {
  const to = moment(at);
  if (kind === "request_narrowed") return [bar("narrow", "narrow", to - data.narrowing.milliseconds, to)];
  if (kind === "smart_routing_end") return [bar("narrow", "choose servers", to - data.milliseconds, to)];
  if (kind === "subagent_ended") return [bar("attempt", `subagent · ${data.outcome}`, to - data.milliseconds, to, BAD.has(data.outcome) ? "bad" : "good")];
  if (kind !== "model_answered") return [];
  const label = `${data.purpose} · ${data.model}${data.stood_in ? " (stood in)" : ""}`;
  return [bar("model", label, to - data.milliseconds, to, data.error ? "bad" : "", data.error ?? "")];
}

function barsOfCall(call, now) {
  const bars = call.attempts.flatMap((attempt) => barsOfAttempt(attempt, now));
  if (!call.approval) return bars;
  const { asked, decided, settled, tool } = call.approval;
  const from = moment(asked ?? decided.at);
  const over = decided || settled;
  const to = decided ? moment(decided.at) : settled ? from : Math.max(now, from);
  return [...bars, bar("person", `${tool ?? call.tool} waits for a person`, from, to, over ? "" : "open")];
}

function barsOfAttempt({ tool, number, at, fallback, made }, now) {
  const label = `${tool}${number > 1 ? ` · attempt ${number}` : ""}${fallback ? " · fallback" : ""}`;
  if (!made) return [bar("attempt", label, moment(at), Math.max(now, moment(at)), "open")];
  const from = moment(made.began);
  const tried = bar("attempt", label, from, from + made.milliseconds, made.error ? "bad" : "good", made.error ? `${made.error}: ${made.detail}` : "");
  return made.waited_ms > 1 ? [bar("wait", `${tool} waits`, from - made.waited_ms, from), tried] : [tried];
}

const bar = (kind, label, from, to, tone = "", text = "") => ({ kind, label, from, to, milliseconds: Math.max(0, to - from), tone, text });

const IDLE_SHARE = 0.12; // of the axis, for one stretch in which nothing was done
const IDLE_FACTOR = 0.5; // of all the work: a shorter stretch is left as it is

function squeezedAxis(bars, start, end) {
  const idle = idleBetween(bars, start, end);
  const work = Math.max(1, end - start - idle.reduce((sum, [from, to]) => sum + to - from, 0));
  const long = idle.filter(([from, to]) => to - from > Math.max(50, work * IDLE_FACTOR));
  const lost = long.reduce((sum, [from, to]) => sum + to - from, 0);
  const short = (Math.max(1, end - start - lost) * IDLE_SHARE) / (1 - Math.min(0.6, IDLE_SHARE * long.length));
  const whole = Math.max(1, end - start - lost + short * long.length);
  const at = (time) => {
    let spot = time - start;
    for (const [from, to] of long) {
      if (time >= to) spot -= to - from - short;
      else if (time > from) spot -= (time - from) * (1 - short / (to - from));
    }
    return Math.min(1, Math.max(0, spot / whole));
  };
  return { at, gaps: long.map(([from, to]) => ({ begin: at(from), end: at(to), milliseconds: to - from })) };
}

function idleBetween(bars, start, end) {
  const idle = [];
  let until = start;
  for (const { from, to } of [...bars].sort((a, b) => a.from - b.from)) {
    if (from > until) idle.push([until, from]);
    until = Math.max(until, to);
  }
  if (end > until) idle.push([until, end]);
  return idle;
}
