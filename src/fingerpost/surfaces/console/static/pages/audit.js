// Audit: decisions and actions in a hash chain that reveals tampering.
import {
  Badge,
  Button,
  Code,
  Dialog,
  Empty,
  Facts,
  Json,
  Page,
  Problem,
  Exact,
  Skeleton,
  Table,
  Time,
  html,
  formatNumber,
  useMemo,
  useState,
  escapeInvisible,
} from "../ui.js";
import { buildUrl, get, post } from "../api.js";
import { formatExact, formatPreciseClock } from "../ui/time.js";
import { More, Search, useAction, usePages, useDebounced } from "./paging.js";

const KINDS = {
  tool_selected: "tool selected",
  selection_reviewed: "selection reviewed",
  confidence_judged: "confidence",
  call_ruled: "policy",
  approval_requested: "approval requested",
  approval_decided: "approval decided",
  attempt_started: "attempt started",
  attempt_finished: "attempt finished",
  call_finished: "call finished",
  execution_status_changed: "status",
  tool_result_injected: "result recorded",
  tool_quarantined: "tool quarantined",
  pin_accepted: "definition accepted",
  tool_switched: "tool switched",
  server_switched: "server switched",
  server_entry_changed: "server entry changed",
  key_changed: "key changed",
  access_refused: "access refused",
};

const NO_FILTERS = { text: "", kind: "", packet_id: "", since: "", until: "" };

export default function Audit({ query }) {
  const [filters, setFilters] = useState({ ...NO_FILTERS, packet_id: query?.get("packet") ?? "" });
  const [open, setOpen] = useState(null);
  const wanted = buildQuery({
    ...filters,
    text: useDebounced(filters.text.trim()),
    kind: useDebounced(filters.kind.trim()),
    packet_id: useDebounced(filters.packet_id.trim()),
  });
  const pages = usePages("/api/audit", wanted);
  const filtered = Object.values(filters).some(Boolean);
  return html`<${Page} title="Audit" actions=${html`<${ExportLinks} wanted=${wanted} />`}>
    <p class="lead">
      What was decided and done: one line per call; open it to see its steps. Every row contains the hash of the row
      before it, so a changed, removed or inserted row breaks the chain.
    </p>
    <${Verify} />
    <${StoreSize} />
    <${Filters} filters=${filters} onFilters=${setFilters} kinds=${listKinds(pages.items)} />
    ${pages.error ? html`<${Problem} error=${pages.error} onRetry=${pages.reload} />` : null}
    ${pages.first && pages.loading
      ? html`<${Skeleton} lines=${8} />`
      : pages.items.length
        ? html`<${Trail} entries=${pages.items} onOpen=${setOpen} />`
        : pages.error
          ? null
          : html`<${NoRows} filtered=${filtered} onClear=${() => setFilters(NO_FILTERS)} />`}
    <${More} pages=${pages} />
    ${open ? html`<${Entry} entry=${open} onClose=${() => setOpen(null)} />` : null}
  <//>`;
}

/** Converts filters to API parameters. Days are in the browser's time zone. */
export function buildQuery({ since, until, ...rest }) {
  const begin = since ? new Date(`${since}T00:00:00`) : null;
  const end = until ? new Date(`${until}T00:00:00`) : null;
  end?.setDate(end.getDate() + 1); // include the last day
  return { ...rest, since: begin?.toISOString() ?? "", until: end?.toISOString() ?? "" };
}

const listKinds = (items) => [...new Set([...Object.keys(KINDS), ...items.map((item) => item.kind)])];

function Filters({ filters, onFilters, kinds }) {
  const set = (name) => (event) => onFilters({ ...filters, [name]: event.target.value });
  return html`<form class="sieve" role="search" onSubmit=${(event) => event.preventDefault()}>
    <${Search} label="Text" value=${filters.text} onChange=${(text) => onFilters({ ...filters, text })} placeholder="a tool, a person, a word" />
    <label class="pick">
      <span>Kind</span>
      <select value=${filters.kind} onChange=${set("kind")}>
        <option value="">every kind</option>
        ${kinds.map((kind) => html`<option key=${kind} value=${kind}>${KINDS[kind] ?? kind.replaceAll("_", " ")}</option>`)}
      </select>
    </label>
    <label class="pick"><span>Request</span><input type="text" placeholder="pkt_…" value=${filters.packet_id} onInput=${set("packet_id")} /></label>
    <label class="pick"><span>From</span><input type="date" value=${filters.since} onChange=${set("since")} /></label>
    <label class="pick"><span>To</span><input type="date" value=${filters.until} onChange=${set("until")} /></label>
  </form>`;
}

// Events of a request that precede its call. All others without a call of their own follow one.
const BEFORE_CALL = new Set(["tool_selected", "selection_reviewed", "confidence_judged"]);
const BEFORE_STATUS = new Set(["pending", "awaiting_confidence", "approved"]);
const precedesCall = ({ kind, data }) => BEFORE_CALL.has(kind) || (kind === "execution_status_changed" && BEFORE_STATUS.has(data.status));

/** Groups entries, newest first, by call: [{id, at, packet_id, entries: oldest first}]. Other entries stay alone. */
export function groupEntries(entries) {
  const packets = new Map(); // {open: the newest group, early: entries before the next call}
  const calls = new Map();
  const groups = [];
  const begin = (entry) => {
    const group = { id: entry.event_id, at: entry.at, packet_id: entry.packet_id, entries: [] };
    groups.push(group);
    return group;
  };
  for (const entry of [...entries].reverse()) {
    const packet = packets.get(entry.packet_id) ?? { open: null, early: null };
    if (entry.packet_id) packets.set(entry.packet_id, packet);
    const callId = entry.data.call_id;
    let group;
    if (callId) {
      group = calls.get(callId) ?? packet.early ?? begin(entry);
      calls.set(callId, group);
      packet.open = group;
      packet.early = null;
    } else if (!entry.packet_id) group = begin(entry);
    else if (precedesCall(entry)) group = packet.early ??= begin(entry);
    else group = packet.early ?? packet.open ?? begin(entry);
    group.entries.push(entry);
    group.at = entry.at;
  }
  return groups.reverse().sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0));
}

/** Returns {what, tone, result, why}: a group in one line. */
export function describeGroup({ entries }) {
  const find = (kind) => entries.findLast((entry) => entry.kind === kind)?.data;
  const ruled = find("call_ruled");
  const decided = find("approval_decided");
  const finished = find("call_finished");
  const selected = find("tool_selected");
  const requested = find("approval_requested");
  const tool = finished?.tool || ruled?.tool || requested?.tool || selected?.selection?.tool || find("attempt_started")?.tool || find("attempt_finished")?.attempt.tool;
  const last = entries.at(-1);
  if (!tool) return { what: KINDS[last.kind] ?? last.kind.replaceAll("_", " "), tone: "plain", result: "", why: last.summary };
  const granted = /^grant \S+ by (.+)$/.exec(find("attempt_started")?.permit ?? "")?.[1];
  const why = decided ? `${decided.decision} by ${decided.decided_by}` : granted ? `approved by ${granted}` : ruled ? describeVerdict(ruled) : last.summary;
  return { what: tool, why, ...describeResult(finished, decided, find("attempt_finished"), requested) };
}

const VERDICTS = { allow: "allowed by policy", ask: "needs approval", deny: "denied by policy" };
const DEFAULTS = { "default for write": "it changes data", "default for destroy": "it can overwrite or delete data" };

const describeVerdict = ({ verdict, reason, rule }) => `${VERDICTS[verdict] ?? verdict}: ${DEFAULTS[rule] ?? reason}`;

function describeResult(finished, decided, attempted, requested) {
  if (finished?.dry_run && finished.success) return { tone: "plain", result: "not called: dry run" };
  if (finished?.success) return { tone: "good", result: "succeeded" };
  if (decided && decided.decision !== "approved") return { tone: decided.decision === "rejected" ? "bad" : "plain", result: decided.decision };
  if (finished?.error === "authorization_required" || (requested && !finished)) {
    return decided ? { tone: "info", result: "approved" } : { tone: "warn", result: "needs approval" };
  }
  if (finished) return finished.error === "denied" || finished.error === "cancelled" ? { tone: "plain", result: finished.error } : { tone: "bad", result: (finished.error ?? "failed").replaceAll("_", " ") };
  return attempted ? { tone: attempted.attempt.error ? "bad" : "good", result: attempted.attempt.error ? "attempt failed" : "attempt succeeded" } : { tone: "plain", result: "" };
}

const STATUSES = { pending: "not checked yet", awaiting_confidence: "the confidence is being checked", executed: "done" };

/** Describes one step in words. Its line already names the tool. */
export function describeStep({ kind, data, summary }) {
  if (kind === "call_ruled") return describeVerdict(data);
  if (kind === "approval_requested") return "waits for a person";
  if (kind === "approval_decided") return `${data.decision} by ${data.decided_by}${data.edited ? ", with edited arguments" : ""}${data.reason ? `: ${data.reason}` : ""}`;
  if (kind === "execution_status_changed") return STATUSES[data.status] ?? summary.replaceAll("_", " ");
  if (kind === "call_finished" && data.error === "authorization_required") return "not called: it needs approval";
  return summary;
}

function Trail({ entries, onOpen }) {
  const groups = useMemo(() => groupEntries(entries), [entries]);
  return html`<div class="trail-box">
    <div class="trail-head" aria-hidden="true"><span>When</span><span>Tool or event</span><span>Result</span><span>Decision</span><span>Request</span></div>
    <ol class="trail" aria-label="Audit trail, newest first">
      ${groups.map((group) => html`<li key=${group.id}><${TrailRow} group=${group} onOpen=${onOpen} /></li>`)}
    </ol>
  </div>`;
}

function TrailRow({ group, onOpen }) {
  const { what, tone, result, why } = describeGroup(group);
  return html`<details>
    <summary>
      <span class="trail-line">
        <span class="trail-when"><${Exact} at=${group.at} /></span>
        <span class="trail-what"><code dir="ltr">${escapeInvisible(what)}</code></span>
        <span class="trail-result">${result ? html`<${Badge} tone=${tone}>${escapeInvisible(result)}<//>` : null}</span>
        <span class="trail-why" dir="auto">${escapeInvisible(why)}</span>
        <span class="trail-request mono" dir="ltr">${group.packet_id ? shortenId(group.packet_id) : "–"}</span>
      </span>
    </summary>
    ${group.packet_id ? html`<p class="trail-open"><a href=${`#/live/${encodeURIComponent(group.packet_id)}`}>Open the request in Live</a></p>` : null}
    <ol class="trail-steps">
      ${group.entries.map(
        (entry) => html`<li key=${entry.event_id}>
          <span class="trail-when" title=${formatExact(entry.at)}>${formatPreciseClock(entry.at)}</span>
          <button type="button" class="button quiet" onClick=${() => onOpen(entry)}>${KINDS[entry.kind] ?? entry.kind.replaceAll("_", " ")}</button>
          <span dir="auto">${escapeInvisible(describeStep(entry))}</span>
        </li>`,
      )}
    </ol>
  </details>`;
}

const shortenId = (id) => `${id.slice(0, 4)}…${id.slice(-6)}`;

function NoRows({ filtered, onClear }) {
  if (filtered) {
    return html`<${Empty} title="No matches" action=${html`<${Button} onClick=${onClear}>Clear the filters<//>`}>
      No entry matches all filters.
    <//>`;
  }
  return html`<${Empty} title="No entries yet" action=${html`<a class="button" href="#/ask">Ask something</a>`}>
    Entries appear here when a call is checked, approved or made.
  <//>`;
}

function Entry({ entry, onClose }) {
  return html`<${Dialog} title=${`Row ${entry.seq}`} onClose=${onClose} wide>
    <${Facts}
      rows=${[
        ["When", html`<${Exact} at=${entry.at} /> (<${Time} at=${entry.at} />)`],
        ["What", KINDS[entry.kind] ?? entry.kind],
        ["Request", entry.packet_id ? html`<a href=${`#/live/${encodeURIComponent(entry.packet_id)}`}>${entry.packet_id}</a>` : null],
        ["Event", html`<${Code}>${entry.event_id}<//>`],
        ["Hash", html`<${Code}>${entry.hash}<//>`],
      ]}
    />
    <${Json} value=${entry.data} label="Payload" open=${true} />
  <//>`;
}

function ExportLinks({ wanted }) {
  const link = (format) => buildUrl("/api/audit/export", { ...wanted, format });
  return html`<a class="button" href=${link("ndjson")} download="audit.ndjson">Export NDJSON</a>
    <a class="button" href=${link("csv")} download="audit.csv">Export CSV</a>`;
}

function Verify() {
  const [report, setReport] = useState(null);
  const { busy, error, run } = useAction();
  const verify = async () => {
    const found = await run(() => post("/api/audit/verify"));
    if (found) setReport(found);
  };
  return html`<section class="verify">
    <${Button} tone="main" busy=${busy} onClick=${verify}>Verify the chain<//>
    <div role="status">
      ${error ? html`<${Problem} error=${error} />` : null} ${report ? html`<${Report} report=${report} />` : null}
    </div>
  </section>`;
}

function Report({ report }) {
  if (report.intact) {
    return html`<p>
      <${Badge} tone="good">intact<//> ${formatNumber(report.rows)} rows${report.chains > 1 ? ` in ${formatNumber(report.chains)} chains` : ""},
      every hash matches${report.pruned ? `, ${formatNumber(report.pruned)} older ones were pruned` : ""};
      ${report.anchors
        ? ` compared with ${formatNumber(report.anchors)} hashes kept outside the database.`
        : " no hash is kept outside the database, so a trail that was rewritten completely would not be detected."}
    </p>`;
  }
  return html`<div>
    <p><${Badge} tone="bad">not intact<//> The first bad row is <strong>${report.first_bad ?? "not known"}</strong>: ${escapeInvisible(report.reason ?? "")}</p>
    <p>
      Keep a copy of the database and its <code>.audit.anchor</code> file, find out who can write to them, and restore the
      newest backup that verifies.
    </p>
  </div>`;
}

function StoreSize() {
  const [status, setStatus] = useState(null);
  const { busy, error, run } = useAction();
  const measure = async () => {
    const found = await run(() => get("/api/store"));
    if (found) setStatus(found);
  };
  return html`<section class="verify store-size">
    <${Button} busy=${busy} onClick=${measure}>Measure the store<//>
    <div role="status">
      ${error ? html`<${Problem} error=${error} />` : null} ${status ? html`<p>${describeStore(status)}</p>` : null}
    </div>
    ${status
      ? html`<${Table}
          label="Tables of the store"
          columns=${STORE_COLUMNS}
          rows=${status.tables.filter((table) => table.rows)}
        />`
      : null}
  </section>`;
}

const STORE_COLUMNS = [
  { key: "name", title: "Table" },
  { key: "rows", title: "Rows", align: "end", render: ({ rows }) => formatNumber(rows) },
  { key: "oldest", title: "Oldest", render: ({ oldest }) => (oldest ? html`<${Exact} at=${oldest} />` : "–") },
  { key: "prunable", title: "To prune", align: "end", render: ({ prunable }) => formatNumber(prunable) },
];

/** Describes the size of the store and what is kept, in one line. */
export function describeStore({ bytes, free_bytes, limits }) {
  const days = (count) => (count ? `${formatNumber(count)} days` : "for ever");
  const size = limits.max_bytes ? `at most ${formatBytes(limits.max_bytes)}` : "any size";
  return `${formatBytes(bytes)}, ${formatBytes(free_bytes)} of it free. Kept: journal ${days(limits.keep_days)}, audit trail ${days(limits.audit_days)}, ${size}.`;
}

function formatBytes(count) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(count, 1)) / 10));
  return `${(count / 1024 ** power).toFixed(power ? 1 : 0)} ${["bytes", "kB", "MB", "GB", "TB"][power]}`;
}
