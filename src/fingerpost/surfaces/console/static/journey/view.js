// A journey on the page: the same for Live and Ask.

import { Facts, Json, Tabs, html, useMemo, useState } from "../ui.js";
import { Feedback } from "../feedback.js";
import { journeyOf } from "../journey.js";
import { PacketLink, Section } from "./sections.js";
import { TimeAxis } from "./axis.js";
import { Badge, Bidi, Code, Empty, Time, duration, number, visible } from "../ui.js";

export const OUTCOMES = {
  answered: ["good", "answered"],
  succeeded: ["good", "succeeded"],
  waiting: ["warn", "waits for a person"],
  approved: ["info", "approved, not gone on with yet"],
  interrupted: ["bad", "interrupted: its process ended"],
  asked: ["info", "asks back"],
  declined: ["plain", "declined"],
  failed: ["bad", "failed"],
  handed_back: ["good", "handed back"],
  limited: ["warn", "limit reached"],
  left: ["plain", "caller left"],
};

/** [tone, words] for how a request stands. */
export function outcomeOf(outcome, state) {
  if (!outcome && state !== "waiting") return ["info", state === "ended" ? "ended" : "running"];
  return OUTCOMES[outcome ?? "waiting"] ?? ["bad", visible(outcome).replaceAll("_", " ")];
}

export function OutcomeBadge({ outcome, state }) {
  const [tone, words] = outcomeOf(outcome, state);
  return html`<${Badge} tone=${tone}>${words}<//>`;
}

/** `events` as they are known by now; `line` where there is one; `running`: more will come. */
export function Journey({ events, line = null, running = false, me, onChanged, withAnswer = true }) {
  const [tab, setTab] = useState("journey");
  const journey = useMemo(() => journeyOf(events, { now: Date.now() }), [events]);
  if (!events.length) return html`<${Empty} title="Nothing has happened yet">The journey appears here, step by step.<//>`;
  const tabs = [
    { id: "journey", title: "Journey" },
    { id: "time", title: "Time" },
    { id: "events", title: "Events", badge: journey.events.length },
  ];
  return html`<div class="journey">
    <${Tabs} tabs=${tabs} current=${tab} onChange=${setTab} label="Views of the journey" />
    ${tab === "journey" ? html`<${Steps} journey=${journey} running=${running} me=${me} onChanged=${onChanged} withAnswer=${withAnswer} />` : null}
    ${tab === "time" ? html`<div class="panel stack"><${TimeAxis} time=${journey.time} /><${Spent} journey=${journey} line=${line} /></div>` : null}
    ${tab === "events" ? html`<${Events} events=${journey.events} />` : null}
  </div>`;
}

function Steps({ journey, running, me, onChanged, withAnswer }) {
  const sections = withAnswer ? journey.sections : journey.sections.filter((section) => section.type !== "answer");
  return html`<div class="stack">
    <section class="panel" aria-label="Time axis"><${TimeAxis} time=${journey.time} /></section>
    <ol class="steps">
      ${sections.map(
        (section) => html`<li key=${section.id} class="step step-${section.type}"><${Section} section=${section} me=${me} onChanged=${onChanged} /></li>`,
      )}
      ${running ? html`<li class="step step-running" role="status"><span class="spinner" aria-hidden="true"></span> On its way…</li>` : null}
    </ol>
    ${running ? null : html`<${Feedback} key=${journey.events[0].packet_id} journey=${journey} me=${me} />`}
  </div>`;
}

/** What the request cost. */
export function Spent({ journey, line }) {
  const { outcome } = journey;
  const tokens = outcome.promptTokens + outcome.completionTokens;
  return html`<${Facts}
    rows=${[
      ["Took", outcome.milliseconds === null ? null : duration(outcome.milliseconds)],
      ["of it models", outcome.modelMilliseconds ? duration(outcome.modelMilliseconds) : null],
      ["Model calls", outcome.modelCalls || null],
      ["Tokens", tokens ? `${number(outcome.promptTokens)} in, ${number(outcome.completionTokens)} out` : null],
      ["Tokens saved", line?.saved_tokens ? number(line.saved_tokens) : null],
      ["Cost", outcome.cost === null ? null : `$${outcome.cost.toFixed(5)}`],
    ]}
  />`;
}

/** Who asked, when, how. */
export function RequestFacts({ journey, line }) {
  const { request } = journey;
  return html`<${Facts}
    rows=${[
      ["When", request.at ? html`<${Time} at=${request.at} />` : null],
      ["By", request.caller ? html`<${Bidi} text=${request.caller} />` : null],
      ["On behalf of", request.parent ? html`<${PacketLink} packet=${request.parent} />` : null],
      ["Mode", request.mode ?? line?.mode],
      ["Profile", request.profile ? html`<${Bidi} text=${request.profile} />` : null],
      ["Models", request.models.map(visible).join(", ")],
      ["Conversation", request.conversation ? html`<${Code}>${request.conversation}<//>` : null],
      ["Messages before", request.history.length || null],
    ]}
  />`;
}

const MOST_EVENTS = 200;

function Events({ events }) {
  const [all, setAll] = useState(false);
  const shown = all ? events : events.slice(0, MOST_EVENTS);
  const start = events.length ? new Date(events[0].at).getTime() : 0;
  return html`<div class="panel">
    <ol class="events">
      ${shown.map(
        (event) => html`<li key=${event.event_id}>
          <details>
            <summary>
              <span class="events-at">+${duration(new Date(event.at).getTime() - start)}</span>
              <code>${visible(event.kind)}</code> <${Bidi} text=${event.summary} class="faint" />
            </summary>
            <${Json} value=${event.data} label=${event.kind} open=${true} />
          </details>
        </li>`,
      )}
    </ol>
    ${shown.length < events.length ? html`<button type="button" class="button quiet" onClick=${() => setAll(true)}>Show all ${events.length}</button>` : null}
  </div>`;
}
