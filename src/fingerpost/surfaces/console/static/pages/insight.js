// Insight: figures about routing over time. See docs/reference/insight.md.
import { Chip, Empty, Name, Page, Problem, Skeleton, Table, formatDuration, html, formatNumber, useEffect, useLoad, useState, escapeInvisible } from "../ui.js";
import { Chart, Curve, Lines, RankedBars, StackedBars, formatBucketTime, formatPercent } from "../charts.js";
import { useExamples } from "../examples.js";
import { Learned } from "./learned.js";
import { buildLink } from "./tools.js";

const RANGES = [
  [1, "1 hour"],
  [24, "24 hours"],
  [168, "7 days"],
  [720, "30 days"],
];
const RELOAD_MS = 30_000;

export default function Insight() {
  const [hours, setHours] = useState(24);
  const { data, error, loading, reload } = useLoad(`/api/insight?hours=${hours}`);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && reload(), RELOAD_MS);
    return () => clearInterval(timer);
  }, [reload]);
  const ranges = html`<div class="row" role="group" aria-label="Range">
    ${RANGES.map(([length, words]) => html`<${Chip} key=${length} on=${length === hours} onClick=${() => setHours(length)}>${words}<//>`)}
  </div>`;
  return html`<${Page} title="Insight" actions=${ranges}>
    ${error ? html`<${Problem} error=${error} onRetry=${reload} />` : null}
    ${!data && loading ? html`<${Skeleton} lines=${10} />` : null}
    ${data ? html`<${Figures} figures=${data} />` : null}
    ${data ? html`<${Learned} />` : null}
  <//>`;
}

function Figures({ figures }) {
  const { totals, before } = figures;
  const asked = totals.requests + totals.calls > 0;
  return html`<div class="insight" data-step=${figures.step}>
    ${figures.complete ? null : html`<p class="notice">Counted since ${new Date(figures.counted_from).toLocaleString()}; older requests are not included.</p>`}
    ${asked ? null : html`<${NoActivity} />`}
    <${Summary} totals=${totals} before=${before} />
    ${asked ? html`<${Charts} figures=${figures} />` : null}
    <${Rollouts} arms=${figures.rollouts ?? []} />
    <${NeverUsed} keys=${figures.never_used ?? []} />
  </div>`;
}

function NoActivity() {
  const [{ text }] = useExamples();
  return html`<${Empty}
    title="No requests in this period"
    action=${html`<a class="button" href=${`#/ask?request=${encodeURIComponent(text)}`}>Ask “${text}”</a>`}
  >
    Requests and calls of all clients are counted here. Choose a longer period, or ask something.
  <//>`;
}

// [label, value of the totals, format, explanation]. Changes of shares are in points, not in percent.
const SUMMARY_FIGURES = [
  ["Requests", (sum) => sum.requests, formatNumber, "in this period"],
  ["No tool needed", (sum) => sum.no_tool_share, formatPercent, "of requests"],
  ["Tools not offered", (sum) => sum.reduction, formatPercent, "of the tools that were considered"],
  ["Tokens saved", (sum) => (sum.model_calls ? sum.tokens_saved : null), formatNumber, "compared with offering every tool"],
  ["Failed calls", (sum) => sum.failed_share, formatPercent, "of calls"],
  ["Recovered", (sum) => sum.recovered_share, formatPercent, "of calls that used a fallback"],
  ["Shortened results", (sum) => sum.truncated_share, formatPercent, "of results were cut to fit"],
  ["Good estimates", (sum) => sum.good_estimates_share, formatPercent, "of durations predicted within ±50 %"],
  ["Choosing servers", (sum) => sum.server_choices_success, formatPercent, "of choices succeeded"],
  ["Official source", (sum) => (sum.exclusive_asked ? sum.exclusive_taken / sum.exclusive_asked : null), formatPercent, "of requests for it used the exclusive tool"],
  ["Tools not searched", (sum) => sum.server_reduction, formatPercent, "because their server was not chosen"],
  ["All servers searched", (sum) => sum.server_fallback_rate, formatPercent, "of requests: no server stood out"],
  ["Approvals", (sum) => sum.approvals_asked, formatNumber, "requested in this period"],
];

function Summary({ totals, before }) {
  return html`<ul class="glance" aria-label="At a glance">
    ${SUMMARY_FIGURES.map(([label, getValue, format, means]) => {
      const now = getValue(totals);
      if (now === null || now === undefined) return null; // nothing to measure
      const then = before ? getValue(before) : null;
      return html`<li key=${label}>
        <span class="glance-label">${label}</span>
        <strong class="glance-value">${format(now)}</strong>
        <span class="glance-means">${means}</span>
        <${Change} now=${now} then=${then} share=${format === formatPercent} />
      </li>`;
    })}
  </ul>`;
}

/** Describes the change against the previous period of the same length. */
export function describeChange(now, then, share) {
  if (now === null || then === null || now === undefined || then === undefined) return "";
  if (share) {
    const points = Math.round((now - then) * 1000) / 10;
    return points === 0 ? "unchanged" : `${points > 0 ? "▲" : "▼"} ${Math.abs(points)} points`;
  }
  if (now === then) return now === 0 ? "" : "unchanged";
  if (then === 0) return "0 before";
  const percentChange = Math.round((100 * (now - then)) / then);
  return `${percentChange >= 0 ? "▲" : "▼"} ${formatNumber(Math.abs(percentChange))} %`;
}

function Change({ now, then, share }) {
  const words = describeChange(now, then, share);
  return html`<span class="glance-change" title="compared with the previous period of the same length">
    ${words || "\u00a0"}${words ? html`<span class="unseen"> compared with the previous period</span>` : null}
  </span>`;
}

// [label, formatted value of an arm's figures]
const ARM_FIGURES = [
  ["Requests", (sum) => formatNumber(sum.requests)],
  ["No tool needed", (sum) => formatPercent(sum.no_tool_share)],
  ["Answered", (sum) => formatNumber(sum.outcomes.answered ?? 0)],
  ["Failed requests", (sum) => formatNumber(sum.outcomes.failed ?? 0)],
  ["Failed calls", (sum) => formatPercent(sum.failed_share)],
  ["Recovered by a fallback", (sum) => formatPercent(sum.recovered_share)],
  ["Tokens read", (sum) => formatNumber(sum.prompt_tokens)],
  ["Tokens written", (sum) => formatNumber(sum.completion_tokens)],
  ["Median time", (sum) => formatDuration(sum.stages.whole?.p50 ?? null)],
  ["Official source taken", (sum) => `${formatNumber(sum.exclusive_taken)} of ${formatNumber(sum.exclusive_asked)}`],
];

function Rollouts({ arms }) {
  const names = [...new Set(arms.map((one) => one.rollout))];
  return names.map((name) => {
    const both = arms.filter((one) => one.rollout === name);
    return html`<section key=${name}>
      <h2 dir="auto">Rollout ${escapeInvisible(name)}</h2>
      <table class="table">
        <thead><tr><th scope="col">Figure</th>${both.map((one) => html`<th scope="col" key=${one.arm}>${escapeInvisible(one.arm)}</th>`)}</tr></thead>
        <tbody>${ARM_FIGURES.map(([label, format]) => html`<tr key=${label}><th scope="row">${label}</th>${both.map((one) => html`<td key=${one.arm}>${format(one.figures)}</td>`)}</tr>`)}</tbody>
      </table>
    </section>`;
  });
}

const OUTCOMES = {
  answered: { label: "answered", colour: 1 },
  handed_back: { label: "handed back to the caller", colour: 3 },
  asked: { label: "asked a question", colour: 6 },
  waiting: { label: "needs approval", colour: 5 },
  declined: { label: "declined or rejected", colour: 7 },
  limited: { label: "limit reached", colour: 2 },
  failed: { label: "failed", colour: 8 },
  left: { label: "caller disconnected", colour: 4 },
};
const ERRORS = {
  execution_failed: { label: "execution failed", colour: 8 },
  timeout: { label: "timeout", colour: 2 },
  unavailable: { label: "unavailable", colour: 4 },
  invalid_parameters: { label: "invalid parameters", colour: 5 },
  tool_not_found: { label: "tool not found", colour: 3 },
  denied: { label: "denied", colour: 7 },
  cancelled: { label: "cancelled", colour: 6 },
  loop: { label: "loop", colour: 9 },
  duplicate: { label: "duplicate", colour: 10 },
  operation_not_supported: { label: "operation not supported", colour: 11 },
  unknown: { label: "unknown", colour: 1 },
};
const MAX_SERIES = 7;

/** Builds a series for each name in `field` of the buckets: known names in their order, rare ones combined. */
export function buildSeries(buckets, field, known = {}) {
  const sums = {};
  for (const bucket of buckets) {
    for (const [name, count] of Object.entries(bucket[field] ?? {})) sums[name] = (sums[name] ?? 0) + count;
  }
  const bySize = Object.keys(sums).sort((a, b) => sums[b] - sums[a]);
  const frequent = new Set(bySize.length > MAX_SERIES + 1 ? bySize.slice(0, MAX_SERIES) : bySize);
  const ordered = [...Object.keys(known).filter((name) => frequent.has(name)), ...bySize.filter((name) => frequent.has(name) && !(name in known))];
  const series = ordered.map((name) => ({ name, label: name.replaceAll("_", " "), ...known[name] }));
  const rows = buckets.map((bucket) => {
    const row = {};
    for (const [name, count] of Object.entries(bucket[field] ?? {})) {
      const under = frequent.has(name) ? name : "(others)";
      row[under] = (row[under] ?? 0) + count;
    }
    return row;
  });
  if (bySize.length > frequent.size) series.push({ name: "(others)", label: "others" });
  return { series, rows };
}

function Charts({ figures }) {
  const { buckets, step_seconds: step } = figures;
  const span = buckets.length * step;
  const labels = buckets.map((bucket) => formatBucketTime(bucket.at, step, span));
  const shared = { labels };
  const outcomes = buildSeries(buckets, "outcomes", OUTCOMES);
  const errors = buildSeries(buckets, "errors", ERRORS);
  return html`<div class="charts">
    <${StackedBars} ...${shared} title="Requests by outcome" note="without those that were only routed" legend ...${outcomes} empty="No request ended in this period." />
    <${Lines}
      ...${shared}
      title="Tools for each request"
      note="available and offered"
      series=${[{ name: "considered", label: "available" }, { name: "offered", label: "offered" }]}
      rows=${buckets.map((one) => (one.narrowed ? { considered: one.considered / one.narrowed, offered: one.offered / one.narrowed } : {}))}
      empty="No request needed tools in this period."
    />
    <${Lines}
      ...${shared}
      title="Choosing servers"
      note="before tools are ranked"
      series=${[{ name: "server_reduction", label: "tools not searched" }, { name: "server_fallback_rate", label: "requests that searched all servers" }]}
      rows=${buckets}
      format=${formatPercent}
      empty="No servers were chosen in this period: there are few, or there were no requests."
    />
    <${Latency} labels=${labels} buckets=${buckets} totals=${figures.totals} />
    <${StackedBars}
      ...${shared}
      title="Tokens saved"
      note="compared with offering every tool to the model"
      series=${[{ name: "tokens_saved", label: "saved" }]}
      rows=${buckets}
      empty="No model was used in this period, or there are few tools."
    />
    <${StackedBars}
      ...${shared}
      title="Fallbacks"
      note="calls that another tool answered"
      series=${[{ name: "recovered", label: "recovered" }, { name: "lost", label: "failed", colour: 8 }]}
      rows=${buckets.map((one) => ({ recovered: one.recovered, lost: Math.max(one.fallbacks - one.recovered, 0) }))}
      empty="No call needed a fallback."
    />
    <${StackedBars} ...${shared} title="Failures by kind" legend ...${errors} empty="No call failed." />
    <${Curve}
      title="Calibration"
      note="claimed confidence and how often it was right; equal on the diagonal"
      points=${figures.calibration ?? []}
      empty="Not enough data yet. It is collected when a model selects tools."
    />
    <${RankedBars}
      title="Most used tools"
      items=${(figures.most_used ?? []).map((one) => ({
        label: one.tool,
        value: one.calls,
        href: buildLink(one.tool),
        note: one.failures ? `${formatNumber(one.failures)} failed` : null,
      }))}
      empty="No tool was called."
    />
    <${RankedBars} title="By caller" note="requests" items=${buildCallerItems(figures.callers)} empty="No caller is known." />
    ${figures.profiles?.some((one) => one.name)
      ? html`<${RankedBars} title="By profile" note="requests" items=${buildCallerItems(figures.profiles)} />`
      : null}
  </div>`;
}

const buildCallerItems = (counts = []) => counts.map((one) => ({ label: one.name || "(unnamed)", value: one.requests, note: one.calls ? `${formatNumber(one.calls)} ${one.calls === 1 ? "call" : "calls"}` : null }));

const STAGES = {
  whole: "whole request",
  model: "model call",
  call: "tool call",
  attempt: "attempt of a call",
  narrow: "ranking tools",
  servers: "choosing servers",
  approval: "waiting for approval",
};
const STAGE_COLOURS = { whole: 1, model: 4, call: 2, narrow: 3 };
const CHARTED_STAGES = ["whole", "model", "call", "narrow"]; // waiting for a person takes minutes: only in the table

function Latency({ labels, buckets, totals }) {
  const [slow, setSlow] = useState(false);
  const part = slow ? "p95" : "p50";
  const known = CHARTED_STAGES.filter((stage) => totals.stages?.[stage]);
  const choice = html`<span class="row push" role="group" aria-label="Which latency">
    <${Chip} on=${!slow} onClick=${() => setSlow(false)}>Typical (p50)<//>
    <${Chip} on=${slow} onClick=${() => setSlow(true)}>Slow (p95)<//>
  </span>`;
  return html`<div class="latency">
    <${Lines}
      title="Latency by stage"
      note=${slow ? "95th percentile" : "median"}
      choice=${choice}
      labels=${labels}
      format=${formatDuration}
      series=${known.map((stage) => ({ name: stage, label: STAGES[stage], colour: STAGE_COLOURS[stage] }))}
      rows=${buckets.map((one) => Object.fromEntries(known.map((stage) => [stage, one.stages?.[stage]?.[part]])))}
      empty="Nothing was measured in this period."
    />
    <${StageTable} stages=${totals.stages ?? {}} />
  </div>`;
}

function StageTable({ stages }) {
  const rows = Object.keys(STAGES)
    .filter((stage) => stages[stage])
    .map((stage) => ({ name: STAGES[stage], ...stages[stage] }));
  if (!rows.length) return null;
  return html`<${Table}
    label="Latency by stage in the whole range"
    rows=${rows}
    columns=${[
      { key: "name", title: "Stage" },
      { key: "count", title: "Count", align: "end", render: (row) => formatNumber(row.count) },
      { key: "p50", title: "Typical", align: "end", render: (row) => formatDuration(row.p50) },
      { key: "p95", title: "Slow (p95)", align: "end", render: (row) => formatDuration(row.p95) },
    ]}
  />`;
}

function NeverUsed({ keys }) {
  if (!keys.length) return null;
  return html`<${Chart} title="Unused tools" note=${`${formatNumber(keys.length)} tools that were never called`}>
    <details>
      <summary>Show all</summary>
      <ul class="tool-list">
        ${keys.slice(0, 500).map((key) => html`<li key=${key}><a href=${buildLink(key)}><${Name} text=${key} /></a></li>`)}
      </ul>
      ${keys.length > 500 ? html`<p class="faint">and ${formatNumber(keys.length - 500)} more</p>` : null}
    </details>
  <//>`;
}
