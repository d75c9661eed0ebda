// Builds the sections of a journey (the view of one packet) from its events. Pure: no DOM, clock or network.
//
// An event is {seq, event_id, kind, at, packet_id, summary, data}. Sections are in chronological order.
// Everything about one call is one section, placed where the call began.

const SECTION_BUILDERS = {
  request_narrowed: buildNarrowed,
  // A successful choice of servers is shown by the narrowing that used it. Only failures are shown here.
  smart_routing_end: (event) => (event.data.success ? [] : [{ type: "servers", choice: getServerChoice(event.data) }]),
  shortlist_widened: (event) => [{ type: "widened", tools: event.data.tools, reason: event.data.reason }],
  tools_offered: (event) => (event.data.kept?.length ? [buildNote("info", "Tools kept from earlier turns", event.data.kept.join(", "))] : []),
  tool_selected: buildSelection,
  selection_reviewed: (event) => [{ type: "review", review: event.data.review, confidence: null }],
  thought_noted: (event) => [{ type: "thought", turn: event.data.turn, text: event.data.text }],
  plan_noted: (event) => (event.data.remaining ? [{ type: "plan", text: event.data.remaining }] : []),
  // A question about a waiting call is shown by the call.
  question_asked: (event) => (event.data.question.pending_id ? [] : [{ type: "question", question: event.data.question }]),
  answer_given: (event) => [{ type: "answer", text: event.data.text, by: event.data.by, sources: event.data.sources ?? [] }],
  reply_rejected: (event) => [buildNote("warn", "A reply could not be used", `${event.data.purpose}: ${event.data.problem}`)],
  syntax_stopped: (event) => [buildNote("warn", "Tool-call markup was removed from the answer", event.summary)],
  history_summarised: (event) => [buildNote("info", "The conversation was shortened", event.summary)],
  budget_reached: (event) => [buildNote("bad", "A limit was reached", event.summary)],
  subagent_began: (event) => [{ type: "subagent", child: event.data.child, request: event.data.request, ended: null }],
};

/** Returns {request, sections, calls, outcome, time, events}: everything a page shows of one packet. */
export function buildJourney(events, { now = 0 } = {}) {
  const ordered = sortEvents(events);
  const calls = collectCalls(ordered);
  markSettledApprovals(ordered, calls);
  return {
    request: getRequest(ordered),
    sections: buildSections(ordered, calls),
    calls,
    outcome: getOutcome(ordered, calls),
    time: buildTimeline(ordered, calls, now),
    events: ordered,
  };
}

/** Marks approvals that were decided with another request for the same call. */
function markSettledApprovals(events, calls) {
  const ended = findLast(events, "route_ended");
  if (!ended || ended.data.outcome === "waiting") return;
  for (const { approval } of calls) if (approval && !approval.decided) approval.settled = true;
}

/** Returns each event once, oldest first. Resumed streams may repeat events. */
export function sortEvents(events) {
  const once = new Map(events.map((event) => [event.event_id, event]));
  const places = new Map([...once.keys()].map((id, place) => [id, place]));
  const place = (event) => event.seq ?? null;
  return [...once.values()].sort((a, b) => {
    if (place(a) !== null && place(b) !== null) return place(a) - place(b);
    return toMilliseconds(a.at) - toMilliseconds(b.at) || places.get(a.event_id) - places.get(b.event_id);
  });
}

const toMilliseconds = (at) => new Date(at).getTime();
const findFirst = (events, kind) => events.find((event) => event.kind === kind) ?? null;
const findLast = (events, kind) => events.findLast((event) => event.kind === kind) ?? null;
const buildNote = (tone, title, text) => ({ type: "note", tone, title, text });

function getRequest(events) {
  const received = findFirst(events, "packet_received")?.data.packet;
  const call = findFirst(events, "call_received")?.data;
  const began = findLast(events, "route_began")?.data;
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

function getOutcome(events, calls) {
  const ended = findLast(events, "route_ended");
  const answer = findLast(events, "answer_given")?.data ?? null;
  const models = events.filter((event) => event.kind === "model_answered").map((event) => event.data);
  const sum = (name) => models.reduce((total, model) => total + (model[name] ?? 0), 0);
  const bare = !findFirst(events, "packet_received") && calls.length ? calls[0] : null;
  const routeOnly = findFirst(events, "request_narrowed") && !findFirst(events, "route_began") ? "narrowed" : null;
  const state = ended?.data.outcome ?? (bare?.finished ? (bare.finished.success ? "succeeded" : bare.finished.error) : routeOnly);
  const outcome = state ?? (bare && bare.approval && !bare.approval.decided ? "waiting" : null);
  const dryRun = calls.some((call) => call.received?.dry_run);
  const decision = calls.findLast((call) => call.approval?.decided)?.approval.decided.decision ?? null;
  return {
    outcome: refineOutcome(outcome, { dry_run: dryRun, decision }),
    milliseconds: sumMilliseconds(events, bare),
    modelMilliseconds: ended?.data.model_milliseconds ?? null,
    cost: ended?.data.cost ?? null,
    dryRun,
    question: findLast(events, "question_asked")?.data.question ?? null,
    modelCalls: models.length,
    promptTokens: sum("prompt_tokens"),
    completionTokens: sum("completion_tokens"),
    answer,
  };
}

const SUCCESSES = new Set(["answered", "succeeded"]);
const REFUSALS = new Set(["declined", "cancelled"]);

/** Returns the outcome more exactly: a dry run called nothing, and a person may have rejected the call. */
export function refineOutcome(outcome, { dry_run: dryRun, decision }) {
  if (dryRun && SUCCESSES.has(outcome)) return "dry_run";
  return REFUSALS.has(outcome) && decision && decision !== "approved" ? decision : outcome;
}

/** Returns the time at work, as in the list of requests: without waiting for a person, all parts added. */
function sumMilliseconds(events, bare) {
  const kind = bare ? "call_finished" : "route_ended";
  const ends = events.filter((event) => event.kind === kind);
  if (ends.length) return ends.reduce((sum, event) => sum + event.data.milliseconds, 0);
  const narrowed = bare || findFirst(events, "route_began") ? null : findLast(events, "request_narrowed");
  return narrowed ? Math.max(narrowed.data.narrowing.milliseconds, toMilliseconds(narrowed.at) - toMilliseconds(events[0].at)) : null;
}

// Sections

function buildSections(events, calls) {
  const byCall = new Map(calls.map((call) => [call.call_id, call]));
  const sections = [];
  for (const event of events) {
    const made = buildEventSections(event, sections, byCall);
    for (const section of made) sections.push({ ...section, at: event.at, id: `${event.event_id}-${section.type}` });
  }
  return sections;
}

function buildEventSections(event, sections, byCall) {
  if (event.kind === "confidence_judged") return addConfidence(event, sections);
  if (event.kind === "subagent_ended") return endSubagent(event, sections);
  if (event.kind === "subagent_began" && sections.some((one) => one.child === event.data.child)) return []; // resumed
  const id = event.data.call_id;
  if (id !== undefined && byCall.has(id)) {
    const call = byCall.get(id);
    byCall.delete(id);
    return [{ type: "call", call }];
  }
  const make = Object.hasOwn(SECTION_BUILDERS, event.kind) ? SECTION_BUILDERS[event.kind] : null;
  return make ? make(event) : [];
}

/** Adds the confidence to the review before it, or as a section of its own if there is no review. */
function addConfidence(event, sections) {
  const review = sections.findLast((section) => section.type === "review" || section.type === "selection");
  if (review?.type === "review" && review.confidence === null) {
    review.confidence = event.data.confidence;
    return [];
  }
  return [{ type: "review", review: null, confidence: event.data.confidence }];
}

/** Stores the end of a subagent in its section. A subagent that waited may end more than once. */
function endSubagent({ data }, sections) {
  const subagent = sections.find((section) => section.type === "subagent" && section.child === data.child);
  if (subagent) subagent.ended = data;
  return [];
}

function buildNarrowed(event) {
  const { narrowing, tokens_all: all = 0, tokens_offered: offered = 0 } = event.data;
  return buildNarrowingSections(narrowing, all ? { all, offered } : null);
}

/** Builds need, servers and shortlist of one narrowing, for a journey or a dry run. */
export function buildNarrowingSections(narrowing, tokens = null) {
  const sections = [{ type: "need", need: narrowing.need, signals: narrowing.signals, milliseconds: narrowing.milliseconds }];
  if (narrowing.servers) sections.push({ type: "servers", choice: narrowing.servers });
  if (narrowing.shortlist.candidates.length || narrowing.shortlist.hidden.length) {
    sections.push({ type: "shortlist", shortlist: narrowing.shortlist, tokens });
  }
  return sections;
}

function getServerChoice(data) {
  const { relevant_servers: servers, reasoning, by, milliseconds, error } = data;
  return { servers, left_out: [], reasoning: `${reasoning} ${error ?? ""}`.trim(), by, milliseconds };
}

function buildSelection(event) {
  const { selection, alternatives = [], beside = [] } = event.data;
  return [{ type: "selection", selection, alternatives, beside }];
}

/** Returns {max, rows}: candidates with {gains, losses}; `max` is the length of the longest bar. */
export function buildScoreBars(shortlist) {
  const sum = (candidate, sign) => candidate.parts.reduce((total, part) => total + Math.max(0, sign * part.points), 0);
  const rows = shortlist.candidates.map((candidate) => ({ ...candidate, gains: sum(candidate, 1), losses: sum(candidate, -1) }));
  const max = Math.max(1e-9, ...rows.map((row) => row.gains));
  return { max, rows };
}

/** Returns {signals, subtracts}: what the bars of these rows show, the signals in their fixed order. */
export function listSignals(rows) {
  const parts = rows.flatMap((row) => row.parts);
  const signals = [...new Set(parts.filter((part) => part.points > 0).map((part) => part.signal))];
  const order = (signal) => (Object.hasOwn(SIGNAL_COLOURS, signal) ? Object.keys(SIGNAL_COLOURS).indexOf(signal) : Infinity);
  return { signals: signals.sort((one, other) => order(one) - order(other)), subtracts: parts.some((part) => part.points < 0) };
}

// The colour of each signal, the same for every request. Rare ones share a colour.
const SIGNAL_COLOURS = {
  meaning: 1, words: 2, server: 3, intent: 4, entity: 5, priority: 6, mood: 7, keywords: 9, conversation: 10, arguments: 11,
  learned: 12, preference: 11, corrected: 8, turn: 10, exclusive: 9, hierarchy: 11, latency: 7, produces: 12, recall: 10,
};
// What each signal is called on the page. Others are shown by their own name.
const SIGNAL_LABELS = {
  words: "shared words", intent: "topic", entity: "named value", mood: "only a question", conversation: "earlier messages",
  arguments: "missing argument", learned: "past use", corrected: "feedback", turn: "order of steps", exclusive: "official source",
  hierarchy: "fallback order", latency: "speed", produces: "gives a needed input", recall: "memory",
};

export const getSignalLabel = (signal) => (Object.hasOwn(SIGNAL_LABELS, signal) ? SIGNAL_LABELS[signal] : signal);

const ADDED_SIGNAL_COLOURS = [8, 12]; // of scorers that a program or a package adds

/** Returns the number of a signal's colour, by its name alone. */
export function getSignalColour(signal) {
  if (Object.hasOwn(SIGNAL_COLOURS, signal)) return SIGNAL_COLOURS[signal];
  return ADDED_SIGNAL_COLOURS[signal.length % ADDED_SIGNAL_COLOURS.length];
}

// Calls

const CALL_UPDATES = {
  call_received: (call, { data }) => (call.received = data),
  call_prepared: (call, { data }) => (call.prepared = data),
  call_refused: (call, { data }) => (call.refused = data),
  call_ruled: (call, { data }) => (call.ruled = data),
  call_progressed: (call, { data }) => (call.progress = data),
  result_digested: (call, { data }) => (call.digest = data),
  result_marked: (call, { data }) => (call.marked = data.signs),
  call_finished: (call, { data }) => (call.finished = data),
  fallback_taken: (call, { data }) => call.fallbacks.push(data),
  approval_requested: (call, event) => (call.approval = { ...event.data, asked: event.at, decided: null }),
  approval_decided: (call, event) => (call.approval = { ...call.approval, decided: { ...event.data, at: event.at } }),
  attempt_started: (call, event) => call.attempts.push({ ...event.data, at: event.at, made: null }),
  attempt_finished: finishAttempt,
};

/** Collects everything known about each call, in the order of their start. */
export function collectCalls(events) {
  const calls = new Map();
  for (const event of events) {
    const id = event.data.call_id ?? event.data.step?.call_id;
    if (!id) addQuestionApproval(event, calls);
    if (!id) continue;
    if (!calls.has(id)) calls.set(id, createCall(id));
    const call = calls.get(id);
    if (event.kind === "tool_result_injected") call.result = event.data.step ?? null;
    else if (Object.hasOwn(CALL_UPDATES, event.kind)) CALL_UPDATES[event.kind](call, event);
    call.tool = call.finished?.tool ?? call.prepared?.tool ?? call.received?.name ?? call.tool;
  }
  return [...calls.values()];
}

/** Adds the approval from a question. If the same call already waits for another request, there is no other event. */
function addQuestionApproval({ kind, at, data }, calls) {
  if (kind !== "question_asked" || !data.question.pending_id) return;
  const call = [...calls.values()].findLast((one) => one.finished?.error === "authorization_required" && !one.approval);
  if (call) call.approval = { pending_id: data.question.pending_id, tool: call.tool, reason: data.question.text, asked: at, decided: null };
}

const createCall = (id) => ({
  call_id: id, tool: "", received: null, prepared: null, refused: null, ruled: null, approval: null,
  attempts: [], fallbacks: [], progress: null, digest: null, marked: null, finished: null, result: null,
});

function finishAttempt(call, { data }) {
  const { attempt } = data;
  const open = call.attempts.findLast((one) => one.made === null && one.tool === attempt.tool && one.number === attempt.number);
  if (open) open.made = attempt;
  else call.attempts.push({ tool: attempt.tool, number: attempt.number, at: attempt.began, fallback: false, made: attempt });
}

/** Returns [tone, words] for the state of a call. */
export function describeCall(call) {
  if (call.finished?.success) return call.received?.dry_run ? ["plain", "not called: dry run"] : ["good", "succeeded"];
  if (call.approval?.settled) return ["plain", "settled elsewhere"];
  if (call.approval && !call.approval.decided) return ["warn", "needs approval"];
  if (call.approval && call.finished?.error === "authorization_required") {
    return call.approval.decided.decision === "approved" ? ["good", "approved"] : ["bad", call.approval.decided.decision];
  }
  const error = call.finished?.error ?? call.refused?.error;
  return call.finished || call.refused ? ["bad", (error ?? "failed").replaceAll("_", " ")] : ["info", "running"];
}

// Time

/**
 * Returns {bars, gaps, milliseconds}, with positions as shares of the axis.
 * Long idle periods (such as waiting for a person) are shortened, so that the rest stays visible.
 */
function buildTimeline(events, calls, now) {
  const bars = [...events.flatMap(buildEventBars), ...calls.flatMap((call) => buildCallBars(call, now))];
  if (!bars.length) return { bars: [], gaps: [], milliseconds: 0 };
  const start = Math.min(toMilliseconds(events[0].at), ...bars.map((bar) => bar.from));
  const end = Math.max(...bars.map((bar) => bar.to), toMilliseconds(events.at(-1).at));
  const axis = compressAxis(bars.filter((bar) => bar.kind !== "person"), start, end);
  const placed = bars
    .sort((a, b) => a.from - b.from || a.to - b.to)
    .map((bar) => ({ ...bar, begin: axis.at(bar.from), end: axis.at(bar.to), after: bar.from - start }));
  return { bars: placed, gaps: axis.gaps, milliseconds: end - start };
}

const FAILED_OUTCOMES = new Set(["failed", "limited", "left"]);

function buildEventBars({ kind, at, data }) {
  const to = toMilliseconds(at);
  if (kind === "request_narrowed") return [buildBar("narrow", "rank tools", to - data.narrowing.milliseconds, to)];
  if (kind === "smart_routing_end") return [buildBar("narrow", "choose servers", to - data.milliseconds, to)];
  if (kind === "subagent_ended") return [buildBar("attempt", `subagent · ${data.outcome}`, to - data.milliseconds, to, FAILED_OUTCOMES.has(data.outcome) ? "bad" : "good")];
  if (kind !== "model_answered") return [];
  const label = `${data.purpose} · ${data.model}${data.stood_in ? " (replacement)" : ""}`;
  return [buildBar("model", label, to - data.milliseconds, to, data.error ? "bad" : "", data.error ?? "")];
}

function buildCallBars(call, now) {
  const bars = call.attempts.flatMap((attempt) => buildAttemptBars(attempt, now));
  if (!call.approval) return bars;
  const { asked, decided, settled, tool } = call.approval;
  const from = toMilliseconds(asked ?? decided.at);
  const over = decided || settled;
  const to = decided ? toMilliseconds(decided.at) : settled ? from : Math.max(now, from);
  return [...bars, buildBar("person", `approval of ${tool ?? call.tool}`, from, to, over ? "" : "open")];
}

function buildAttemptBars({ tool, number, at, fallback, made }, now) {
  const label = `${tool}${number > 1 ? ` · attempt ${number}` : ""}${fallback ? " · fallback" : ""}`;
  if (!made) return [buildBar("attempt", label, toMilliseconds(at), Math.max(now, toMilliseconds(at)), "open")];
  const from = toMilliseconds(made.began);
  const tried = buildBar("attempt", label, from, from + made.milliseconds, made.error ? "bad" : "good", made.error ? made.detail || made.error.replaceAll("_", " ") : "");
  return made.waited_ms > 1 ? [buildBar("wait", `${tool} queued`, from - made.waited_ms, from), tried] : [tried];
}

const buildBar = (kind, label, from, to, tone = "", text = "") => ({ kind, label, from, to, milliseconds: Math.max(0, to - from), tone, text });

const IDLE_SHARE = 0.12; // of the axis, for one idle period
const IDLE_FACTOR = 0.5; // of the total work; shorter idle periods are not shortened

function compressAxis(bars, start, end) {
  const idle = findIdlePeriods(bars, start, end);
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

function findIdlePeriods(bars, start, end) {
  const idle = [];
  let until = start;
  for (const { from, to } of [...bars].sort((a, b) => a.from - b.from)) {
    if (from > until) idle.push([until, from]);
    until = Math.max(until, to);
  }
  if (end > until) idle.push([until, end]);
  return idle;
}
