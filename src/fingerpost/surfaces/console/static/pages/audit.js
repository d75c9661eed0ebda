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
  Skeleton,
  Table,
  Time,
  html,
  formatNumber,
  useState,
  escapeInvisible,
} from "../ui.js";
import { buildUrl, post } from "../api.js";
import { More, Search, useAction, usePages, useDebounced } from "./paging.js";

const KINDS = {
  tool_selected: "tool selected",
  selection_reviewed: "selection reviewed",
  confidence_judged: "confidence judged",
  call_ruled: "policy ruled",
  approval_requested: "approval asked for",
  approval_decided: "approval decided",
  attempt_started: "attempt started",
  attempt_finished: "attempt finished",
  call_finished: "call finished",
  execution_status_changed: "execution moved on",
  tool_result_injected: "result given to the model",
  tool_quarantined: "tool held back",
  pin_accepted: "definition accepted",
  tool_switched: "tool switched",
  server_switched: "server switched",
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
      Every ruling, approval and attempt is a row that carries the hash of the row before it. A row that is changed,
      removed or put in later breaks the chain.
    </p>
    <${Verify} />
    <${Filters} filters=${filters} onFilters=${setFilters} kinds=${listKinds(pages.items)} />
    ${pages.error ? html`<${Problem} error=${pages.error} onRetry=${pages.reload} />` : null}
    ${pages.first && pages.loading
      ? html`<${Skeleton} lines=${8} />`
      : html`<${Table}
          label="Audit trail, newest first"
          columns=${COLUMNS}
          rows=${pages.items}
          rowKey=${(row) => row.seq}
          onRow=${setOpen}
          empty=${pages.error ? null : html`<${NoRows} filtered=${filtered} onClear=${() => setFilters(NO_FILTERS)} />`}
        />`}
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

const COLUMNS = [
  { key: "seq", title: "Row", align: "end", render: (row) => row.seq },
  { key: "at", title: "When", render: (row) => html`<${Time} at=${row.at} />` },
  { key: "kind", title: "What", render: (row) => KINDS[row.kind] ?? row.kind.replaceAll("_", " ") },
  { key: "about", title: "About", class: "wide-cell", render: (row) => html`<span dir="auto" class="clamped">${escapeInvisible(row.summary)}</span>` },
  {
    key: "packet_id",
    title: "Request",
    render: (row) => (row.packet_id ? html`<a href=${`#/live/${encodeURIComponent(row.packet_id)}`}>${shortenId(row.packet_id)}</a>` : "–"),
  },
];

const shortenId = (id) => `${id.slice(0, 4)}…${id.slice(-6)}`;

function NoRows({ filtered, onClear }) {
  if (filtered) {
    return html`<${Empty} title="No row like that" action=${html`<${Button} onClick=${onClear}>Show every row<//>`}>
      Rows are filtered by everything that is filled in above.
    <//>`;
  }
  return html`<${Empty} title="Nothing was done yet" action=${html`<a class="button" href="#/ask">Ask something</a>`}>
    As soon as a tool is ruled on, approved or called, the trail begins here.
  <//>`;
}

function Entry({ entry, onClose }) {
  return html`<${Dialog} title=${`Row ${entry.seq}`} onClose=${onClose} wide>
    <${Facts}
      rows=${[
        ["When", html`${new Date(entry.at).toLocaleString()} (<${Time} at=${entry.at} />)`],
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
      each follows from the one before${report.pruned ? `, ${formatNumber(report.pruned)} older ones were pruned` : ""};
      ${report.anchors
        ? ` compared with ${formatNumber(report.anchors)} hashes kept outside of the database.`
        : " no hash outside of the database to compare with, so a trail rewritten as a whole would not show."}
    </p>`;
  }
  return html`<div>
    <p><${Badge} tone="bad">not intact<//> The first bad row is <strong>${report.first_bad ?? "not known"}</strong>: ${escapeInvisible(report.reason ?? "")}</p>
    <p>
      Keep a copy of the database and of its <code>.audit.anchor</code> file, find out who could write to them, and
      restore the newest backup that verifies.
    </p>
  </div>`;
}
