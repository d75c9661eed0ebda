// The view of a journey, used by Live and Ask.

import { Facts, Json, Tabs, html, useMemo, useState } from "../ui.js";
import { Feedback } from "../feedback.js";
import { buildJourney } from "../journey.js";
import { PacketLink, Section } from "./sections.js";
import { TimeAxis } from "./axis.js";
import { Badge, Bidi, Code, Empty, Exact, formatDuration, formatNumber, escapeInvisible } from "../ui.js";

export const OUTCOMES = {
  answered: ["good", "answered"],
  succeeded: ["good", "succeeded"],
  narrowed: ["info", "route only"],
  waiting: ["warn", "needs approval"],
  authorization_required: ["warn", "needs approval"],
  approved: ["info", "approved, not continued yet"],
  interrupted: ["bad", "interrupted: its process ended"],
  asked: ["info", "asks a question"],
  declined: ["plain", "declined"],
  dry_run: ["plain", "dry run"],
  rejected: ["bad", "rejected"],
  expired: ["plain", "approval expired"],
  cancelled: ["plain", "cancelled"],
  denied: ["warn", "denied by policy"],
  failed: ["bad", "failed"],
  handed_back: ["good", "handed back"],
  limited: ["warn", "limit reached"],
  left: ["plain", "caller disconnected"],
};

/** Returns [tone, words] for the state of a request. */
export function describeOutcome(outcome, state) {
  if (!outcome && state !== "waiting") return ["info", state === "ended" ? "ended" : "running"];
  return OUTCOMES[outcome ?? "waiting"] ?? ["bad", escapeInvisible(outcome).replaceAll("_", " ")];
}

export function OutcomeBadge({ outcome, state }) {
  const [tone, words] = describeOutcome(outcome, state);
  return html`<${Badge} tone=${tone}>${words}<//>`;
}

/** The steps to an answer. `events`: those known so far; `line`: the list entry, if any; `running`: more will follow. */
export function Journey({ events, line = null, running = false, me }) {
  const [tab, setTab] = useState("journey");
  const journey = useMemo(() => buildJourney(events, { now: Date.now() }), [events]);
  if (!events.length) return html`<${Empty} title="Nothing has happened yet">The steps appear here as they happen.<//>`;
  const tabs = [
    { id: "journey", title: "Journey" },
    { id: "time", title: "Time" },
    { id: "events", title: "Events", badge: journey.events.length },
  ];
  return html`<div class="journey">
    <${Tabs} tabs=${tabs} current=${tab} onChange=${setTab} label="Views of the journey" />
    ${tab === "journey" ? html`<${Steps} journey=${journey} line=${line} running=${running} me=${me} />` : null}
    ${tab === "time" ? html`<div class="panel stack"><${TimeAxis} time=${journey.time} milliseconds=${getDuration(journey, line)} /><${CostFacts} journey=${journey} line=${line} /></div>` : null}
    ${tab === "events" ? html`<${Events} events=${journey.events} />` : null}
  </div>`;
}

function Steps({ journey, line, running, me }) {
  const sections = journey.sections.filter((section) => section.type !== "answer"); // it stands above
  return html`<div class="stack">
    <section class="panel" aria-label="Time axis"><${TimeAxis} time=${journey.time} milliseconds=${running ? null : getDuration(journey, line)} /></section>
    <ol class="steps">
      ${sections.map(
        (section) => html`<li key=${section.id} class="step step-${section.type}"><${Section} section=${section} /></li>`,
      )}
      ${running ? html`<li class="step step-running" role="status"><span class="spinner" aria-hidden="true"></span> Working…</li>` : null}
    </ol>
    ${running ? null : html`<${Feedback} key=${journey.events[0].packet_id} journey=${journey} me=${me} />`}
  </div>`;
}

/** Returns the request's duration: that of its line in the list, where there is one. */
export const getDuration = (journey, line) => line?.milliseconds ?? journey.outcome.milliseconds;

/** What the models of the request cost; nothing where no model ran. */
export function CostFacts({ journey, line }) {
  const { outcome } = journey;
  const tokens = outcome.promptTokens + outcome.completionTokens;
  if (!outcome.modelCalls && outcome.cost === null) return null;
  return html`<${Facts}
    rows=${[
      ["Models took", outcome.modelMilliseconds ? formatDuration(outcome.modelMilliseconds) : null],
      ["Model calls", outcome.modelCalls || null],
      ["Tokens", tokens ? `${formatNumber(outcome.promptTokens)} in, ${formatNumber(outcome.completionTokens)} out` : null],
      ["Tokens saved", line?.saved_tokens && outcome.modelCalls ? formatNumber(line.saved_tokens) : null],
      ["Cost", outcome.cost === null ? null : `$${outcome.cost.toFixed(5)}`],
    ]}
  />`;
}

/** Caller, time and options of the request. */
export function RequestFacts({ journey, line, packetId }) {
  const { request } = journey;
  return html`<${Facts}
    rows=${[
      ["When", request.at ? html`<${Exact} at=${request.at} />` : null],
      ["By", request.caller ? html`<${Bidi} text=${request.caller} />` : null],
      ["On behalf of", request.parent ? html`<${PacketLink} packet=${request.parent} />` : null],
      ["Mode", request.mode ?? line?.mode],
      ["Profile", request.profile ? html`<${Bidi} text=${request.profile} />` : null],
      ["Models", request.models.map(escapeInvisible).join(", ")],
      ["Request id", html`<${Code}>${packetId}<//>`],
      ["Conversation", request.conversation ? html`<${Code}>${request.conversation}<//>` : null],
      ["Earlier messages", request.history.length || null],
    ]}
  />`;
}

const MAX_EVENTS = 200;

function Events({ events }) {
  const [all, setAll] = useState(false);
  const shownEvents = all ? events : events.slice(0, MAX_EVENTS);
  const start = events.length ? new Date(events[0].at).getTime() : 0;
  return html`<div class="panel">
    <ol class="events">
      ${shownEvents.map(
        (event) => html`<li key=${event.event_id}>
          <details>
            <summary>
              <span class="events-at">+${formatDuration(new Date(event.at).getTime() - start)}</span>
              <code>${escapeInvisible(event.kind)}</code> <${Bidi} text=${event.summary} class="faint" />
            </summary>
            <${Json} value=${event.data} label=${event.kind} open=${true} />
          </details>
        </li>`,
      )}
    </ol>
    ${shownEvents.length < events.length ? html`<button type="button" class="button quiet" onClick=${() => setAll(true)}>Show all ${events.length}</button>` : null}
  </div>`;
}
