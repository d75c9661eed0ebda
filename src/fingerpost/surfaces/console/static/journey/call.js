// One call: arguments before and after repair, policy, approval, attempts, result.

import { Badge, Bidi, Code, Diff, Facts, Json, Time, formatDuration, html, formatNumber, escapeInvisible } from "../ui.js";
import { describeCall } from "../journey.js";
import { ToolLink } from "./sections.js";

export function CallSection({ call }) {
  const [tone, words] = describeCall(call);
  return html`<h3>Call <${ToolLink} tool=${call.tool} /> <${Badge} tone=${tone}>${escapeInvisible(words)}<//>
      </h3>
    <${Arguments} call=${call} />
    ${call.refused ? html`<${Refusal} refused=${call.refused} />` : null}
    ${call.ruled ? html`<${Ruling} ruled=${call.ruled} />` : null}
    ${call.approval ? html`<${Approval} approval=${call.approval} />` : null}
    ${call.attempts.length ? html`<${Attempts} call=${call} />` : null}
    ${call.progress && !call.finished ? html`<${Progress} progress=${call.progress} />` : null}
    ${call.digest ? html`<${Digest} digest=${call.digest} />` : null}
    ${call.marked?.length && !call.result ? html`<${Marks} signs=${call.marked} />` : null}
    ${call.result ? html`<${Result} step=${call.result} />` : null}`;
}

function Arguments({ call }) {
  const before = call.received?.arguments ?? {};
  const { arguments: after, repairs = [] } = call.prepared ?? {};
  if (after && JSON.stringify(before) !== JSON.stringify(after)) {
    return html`<div class="part"><h4>Arguments, repaired</h4>
      <${Diff} before=${before} after=${after} label="Arguments before and after repair" />
      <ul class="reasons">${repairs.map((repair) => html`<li><${Code}>${repair.path || "all"}<//> ${repair.kind}: <${Bidi} text=${repair.reason} /></li>`)}</ul></div>`;
  }
  if (!Object.keys(before).length) return html`<p class="faint">No arguments.</p>`;
  return html`<div class="part"><h4>Arguments</h4><${Json} value=${before} label="Arguments" /></div>`;
}

function Refusal({ refused }) {
  return html`<div class="part"><h4>Refused</h4><${Bidi} text=${refused.reason} block=${true} />
    ${refused.parameter_errors?.length ? html`<ul class="reasons">${refused.parameter_errors.map((error) => html`<li><${Code}>${error.parameter}<//> <${Bidi} text=${error.message} /></li>`)}</ul>` : null}</div>`;
}

const VERDICT_BADGES = { allow: ["good", "allowed"], ask: ["warn", "needs approval"], deny: ["bad", "denied"] };

function Ruling({ ruled }) {
  const [tone, words] = VERDICT_BADGES[ruled.verdict];
  return html`<div class="part"><h4>Policy <${Badge} tone=${tone}>${words}<//></h4>
    <p><${Bidi} text=${describeRuling(ruled)} /></p></div>`;
}

const DEFAULT_RULINGS = {
  "default for read": "It only reads: allowed by default.",
  "default for write": "It changes data: needs approval by default.",
  "default for destroy": "It can overwrite or delete data: needs approval by default.",
};

/** Describes what the policy decided: the reason, and the rule where it is not a default. */
export function describeRuling({ reason, rule }) {
  if (Object.hasOwn(DEFAULT_RULINGS, rule ?? "")) return DEFAULT_RULINGS[rule];
  return rule ? `${reason} (${rule})` : reason;
}

const DECISION_TONES = { approved: "good", rejected: "bad", expired: "plain", waiting: "warn" };

function Approval({ approval }) {
  const { decided, asked, pending_id: id } = approval;
  if (decided) {
    const waited = asked ? formatDuration(new Date(decided.at) - new Date(asked)) : null;
    return html`<div class="part"><h4>Approval <${Badge} tone=${DECISION_TONES[decided.decision]}>${decided.decision}<//></h4>
      <${Facts} rows=${[["By", html`<${Bidi} text=${decided.decided_by} />`], ["Waited", waited], ["Edited", decided.edited ? "yes" : null], ["Reason", decided.reason ? html`<${Bidi} text=${decided.reason} />` : null]]} /></div>`;
  }
  if (approval.settled) return html`<div class="part"><h4>Approval <${Badge}>decided<//></h4><p>Decided together with another request for the same call.</p></div>`;
  return html`<div class="part asks"><h4>Approval <${Badge} tone="warn">waiting<//></h4>
    <p>Asked <${Time} at=${asked} />. <a href=${`#/approvals/${encodeURIComponent(id)}`}>Open in Approvals</a></p></div>`;
}

/** Says why an attempt was allowed to run. */
function describePermit(permit) {
  const approver = /^grant \S+ by (.+)$/.exec(permit)?.[1];
  return approver ? `approved by ${approver}` : permit.startsWith("policy") ? "allowed by policy" : permit;
}

function Attempts({ call }) {
  return html`<div class="part"><h4>Attempts</h4><ol class="attempts">
    ${call.attempts.map(
      ({ tool, number: count, made, fallback, permit }) => html`<li>
        <${Badge} tone=${!made ? "info" : made.error ? "bad" : "good"}>${!made ? "running" : made.error ? escapeInvisible(made.error).replaceAll("_", " ") : made.cached ? `from cache, ${formatDuration(made.age_ms)} old` : "succeeded"}<//>
        <${Code}>${tool}<//>
        ${count > 1 ? html`<span class="faint">attempt ${count}</span>` : null} ${fallback ? html`<${Badge} tone="warn">fallback<//>` : null}
        <span class="faint">${made ? formatDuration(made.milliseconds) : ""}${made?.waited_ms > 1 ? `, waited ${formatDuration(made.waited_ms)} before` : ""}</span>
        ${permit ? html`<span class="faint" dir="auto">${escapeInvisible(describePermit(permit))}</span>` : null}
        ${made?.detail ? html`<${Bidi} text=${made.detail} block=${true} class="faint" />` : null}
      </li>`,
    )}
    ${call.fallbacks.map((one) => html`<li><${Badge} tone="warn">fallback<//> <span><${Code}>${one.tool}<//> instead of <${Code}>${one.instead_of}<//>: <${Bidi} text=${one.reason} /></span></li>`)}
  </ol></div>`;
}

function Progress({ progress }) {
  const share = progress.total ? ` · ${Math.round((100 * progress.progress) / progress.total)} %` : "";
  return html`<p class="part" role="status"><span class="spinner" aria-hidden="true"></span> <${Bidi} text=${progress.message} /><span class="faint">${share} · ${formatDuration(progress.seconds * 1000)}</span></p>`;
}

function Digest({ digest }) {
  const cut = digest.dropped.length > 0;
  return html`<div class="part"><h4>Result size <span class="faint">${cut ? `${formatNumber(digest.original_tokens)} → ${formatNumber(digest.tokens)} tokens` : `${formatNumber(digest.tokens)} tokens, nothing cut`}</span></h4>
    ${cut ? html`<ul class="reasons">${digest.dropped.map((one) => html`<li>Left out: <${Bidi} text=${one} /></li>`)}</ul>` : null}
    ${digest.handle ? html`<p class="faint">The full result is kept: <${Code}>fingerpost result ${digest.handle}<//></p>` : null}</div>`;
}

function Marks({ signs }) {
  return html`<p class="row"><${Badge} tone="warn">may contain instructions for the model<//> ${signs.map((one) => html`<${Bidi} text=${one} class="faint" />`)}</p>`;
}

function Result({ step }) {
  return html`<div class="part">
    ${step.warnings?.length ? html`<${Marks} signs=${step.warnings} />` : null}
    <details><summary>Result</summary><${Bidi} text=${step.text} block=${true} class="result-text" /></details></div>`;
}
