// Insight: figures about routing over time. See docs/reference/insight.md.
import { Chip, Empty, Page, Problem, Skeleton, Table, formatDuration, html, formatNumber, useEffect, useLoad, useState, escapeInvisible } from "../ui.js";
import { Chart, Curve, Lines, RankedBars, StackedBars, formatBucketTime, formatPercent } from "../charts.js";
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
    ${figures.complete ? null : html`<p class="notice">Counted from ${new Date(figures.counted_from).toLocaleString()} on; what is older is not in these figures.</p>`}
    ${asked ? null : html`<${NoActivity} />`}
    <${Summary} totals=${totals} before=${before} />
    ${asked ? html`<${Charts} figures=${figures} />` : null}
    <${Rollouts} arms=${figures.rollouts ?? []} />
    <${NeverUsed} keys=${figures.never_used ?? []} />
  </div>`;
}

function NoActivity() {
  const text = "What time is it in Tokyo right now?";
  return html`<${Empty}
    title="Nothing happened in this time"
    action=${html`<a class="button" href=${`#/ask?request=${encodeURIComponent(text)}`}>Ask “${text}”</a>`}
  >
    Requests and calls are counted as they come, over the MCP gateway, the OpenAI-compatible endpoint, the API and
    the command line. Choose a longer range above, or ask something.
  <//>`;
}

// [label, value of the totals, format, explanation]. Changes of shares are in points, not in percent.
const SUMMARY_FIGURES = [
  ["Requests", (sum) => sum.requests, formatNumber, "asked in this time"],
  ["Needed no tool", (sum) => sum.no_tool_share, formatPercent, "of requests: the model alone would do"],
  ["Tools spared", (sum) => sum.reduction, formatPercent, "of tools a model did not have to read"],
  ["Tokens saved", (sum) => sum.tokens_saved, formatNumber, "against showing every tool to the model"],
  ["Failed calls", (sum) => sum.failed_share, formatPercent, "of calls failed in the end"],
  ["Recovered", (sum) => sum.recovered_share, formatPercent, "of calls for which another tool stepped in"],
  ["Cut results", (sum) => sum.truncated_share, formatPercent, "of long results were cut to fit"],
  ["Good estimates", (sum) => sum.good_estimates_share, formatPercent, "of durations foreseen within half"],
  ["Servers chosen", (sum) => sum.server_choices_success, formatPercent, "of choices among servers worked"],
  ["Official source", (sum) => (sum.exclusive_asked ? sum.exclusive_taken / sum.exclusive_asked : null), formatPercent, "of requests for it took the exclusive tool"],
  ["Left out by server choice", (sum) => sum.server_reduction, formatPercent, "of tools, before any is ranked"],
  ["Server choice fell back", (sum) => sum.server_fallback_rate, formatPercent, "of choices: all tools stayed"],
  ["Approvals", (sum) => sum.approvals_asked, formatNumber, "asked for in this time"],
];

function Summary({ totals, before }) {
  return html`<ul class="glance" aria-label="At a glance">
    ${SUMMARY_FIGURES.map(([label, getValue, format, means]) => {
      const now = getValue(totals);
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
    return points === 0 ? "as before" : `${points > 0 ? "▲" : "▼"} ${Math.abs(points)} points`;
  }
  if (now === then) return "as before";
  if (then === 0) return "▲ from none";
  const percentChange = Math.round((100 * (now - then)) / then);
  return `${percentChange >= 0 ? "▲" : "▼"} ${formatNumber(Math.abs(percentChange))} %`;
}

function Change({ now, then, share }) {
  const words = describeChange(now, then, share);
  return html`<span class="glance-change" title="against the equally long time before">
    ${words || "\u00a0"}${words ? html`<span class="unseen"> against the time before</span>` : null}
  </span>`;
}

// [label, formatted value of an arm's figures]
const ARM_FIGURES = [
  ["Requests", (sum) => formatNumber(sum.requests)],
  ["Needed no tool", (sum) => formatPercent(sum.no_tool_share)],
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
  asked: { label: "asked back", colour: 6 },
  waiting: { label: "waits for a person", colour: 5 },
  declined: { label: "declined", colour: 7 },
  limited: { label: "ran into a limit", colour: 2 },
  failed: { label: "failed", colour: 8 },
  left: { label: "caller left", colour: 4 },
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
  const errors = buildSeries(buckets, "errors");
  return html`<div class="charts">
    <${StackedBars} ...${shared} title="Requests by outcome" legend ...${outcomes} empty="No request came to an end in this time." />
    <${Lines}
      ...${shared}
      title="Tools for each request"
      note="how many there were, how many the model got to see"
      series=${[{ name: "considered", label: "available" }, { name: "offered", label: "offered" }]}
      rows=${buckets.map((one) => (one.narrowed ? { considered: one.considered / one.narrowed, offered: one.offered / one.narrowed } : {}))}
      empty="Tools were not looked for in this time."
    />
    <${Lines}
      ...${shared}
      title="Smart routing"
      note="tools left out by choosing servers, and choices after which all tools stayed"
      series=${[{ name: "server_reduction", label: "tools left out" }, { name: "server_fallback_rate", label: "fell back to all tools" }]}
      rows=${buckets}
      format=${formatPercent}
      empty="No servers were chosen in this time: there were few, or no requests."
    />
    <${Latency} labels=${labels} buckets=${buckets} totals=${figures.totals} />
    <${StackedBars}
      ...${shared}
      title="Tokens saved"
      note="against showing every tool to the model"
      series=${[{ name: "tokens_saved", label: "saved" }]}
      rows=${buckets}
      empty="Nothing was saved: there were few tools, or no requests."
    />
    <${StackedBars}
      ...${shared}
      title="Fallbacks"
      note="calls for which another tool stepped in"
      series=${[{ name: "recovered", label: "recovered" }, { name: "lost", label: "failed all the same", colour: 8 }]}
      rows=${buckets.map((one) => ({ recovered: one.recovered, lost: Math.max(one.fallbacks - one.recovered, 0) }))}
      empty="No call needed a fallback."
    />
    <${StackedBars} ...${shared} title="Failures by kind" legend ...${errors} empty="No call failed." />
    <${Curve}
      title="Calibration"
      note="how sure a choice was claimed to be, and how often it was right; the diagonal is honest"
      points=${figures.calibration ?? []}
      empty="Not enough choices yet whose end is known. It fills as requests are answered with a model."
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
    <${RankedBars} title="By caller" note="requests and calls" items=${buildCallerItems(figures.callers)} empty="No caller was named." />
    ${figures.profiles?.some((one) => one.name)
      ? html`<${RankedBars} title="By profile" note="requests and calls" items=${buildCallerItems(figures.profiles)} />`
      : null}
  </div>`;
}

const buildCallerItems = (counts = []) => counts.map((one) => ({ label: one.name || "(not named)", value: one.requests + one.calls }));

const STAGES = {
  whole: "whole request",
  model: "one question to a model",
  call: "one call",
  attempt: "one attempt of a call",
  narrow: "finding tools",
  servers: "choosing servers",
  approval: "waiting for a person",
};
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
      note=${slow ? "one in twenty is slower" : "half are faster"}
      choice=${choice}
      labels=${labels}
      format=${formatDuration}
      series=${known.map((stage) => ({ name: stage, label: STAGES[stage] }))}
      rows=${buckets.map((one) => Object.fromEntries(known.map((stage) => [stage, one.stages?.[stage]?.[part]])))}
      empty="Nothing was measured in this time."
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
      { key: "count", title: "How often", align: "end", render: (row) => formatNumber(row.count) },
      { key: "p50", title: "Typical", align: "end", render: (row) => formatDuration(row.p50) },
      { key: "p95", title: "Slow (p95)", align: "end", render: (row) => formatDuration(row.p95) },
    ]}
  />`;
}

function NeverUsed({ keys }) {
  if (!keys.length) return null;
  return html`<${Chart} title="Never used" note=${`${formatNumber(keys.length)} tools not called in this time; each is one more to choose from`}>
    <details>
      <summary>Show them</summary>
      <ul class="tool-list">
        ${keys.slice(0, 500).map((key) => html`<li key=${key}><a href=${buildLink(key)}>${key}</a></li>`)}
      </ul>
      ${keys.length > 500 ? html`<p class="faint">and ${formatNumber(keys.length - 500)} more</p>` : null}
    </details>
  <//>`;
}
