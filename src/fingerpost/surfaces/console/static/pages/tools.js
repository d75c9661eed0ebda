// Tools: the list, what is known about each and its source, and why it is or is not offered.
import {
  Badge,
  Bidi,
  Button,
  Code,
  Diff,
  Empty,
  Exact,
  Facts,
  Field,
  Findings,
  Json,
  Name,
  Page,
  PendingPage,
  Problem,
  Skeleton,
  Table,
  Time,
  formatDuration,
  html,
  formatNumber,
  toast,
  useLoad,
  useState,
  escapeInvisible,
} from "../ui.js";
import { post } from "../api.js";
import { EFFECTS, EffectBadge, getDiffProps } from "./approvals.js";
import { Choice, More, Search, useAction, usePages, useDebounced } from "./paging.js";
import { Switch } from "./switch.js";
import { ToolRank } from "./standing.js";
import { TryTool } from "./try.js";

export const TOOL_STATES = {
  offered: { tone: "good", words: "available" },
  hidden: { tone: "plain", words: "hidden by policy" },
  quarantined: { tone: "warn", words: "quarantined: review the change" },
  off: { tone: "plain", words: "switched off" },
  server_down: { tone: "bad", words: "server down" },
};

const buildToolPath = (key) => {
  const [server, ...tool] = key.split("/");
  return `${encodeURIComponent(server)}/${encodeURIComponent(tool.join("/"))}`;
};

export const buildLink = (key) => `#/tools/${buildToolPath(key)}`;

export default function Tools({ params: [server, ...tool], query, me }) {
  const [filters, setFilters] = useState({ text: "", server: query?.get("server") ?? "", effect: "", state: "" });
  if (server && tool.length) {
    const key = `${server}/${tool.join("/")}`;
    return html`<${Tool} key=${key} of=${key} me=${me} />`;
  }
  return html`<${ToolList} filters=${filters} onFilters=${setFilters} />`;
}

function ToolList({ filters, onFilters }) {
  const text = useDebounced(filters.text.trim());
  const pages = usePages("/api/tools", { ...filters, text });
  const servers = useLoad("/api/servers");
  const set = (name) => (value) => onFilters({ ...filters, [name]: value });
  const filtered = Object.values(filters).some(Boolean);
  return html`<${Page} title="Tools">
    <form class="sieve" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Search} label="Search" value=${filters.text} onChange=${set("text")} placeholder="name, server or description" />
      <${Choice}
        label="Server"
        all="All servers"
        value=${filters.server}
        onChange=${set("server")}
        choices=${(servers.data?.items ?? []).map((one) => [one.name, one.name])}
      />
      <${Choice}
        label="Effect"
        all="All effects"
        value=${filters.effect}
        onChange=${set("effect")}
        choices=${Object.entries(EFFECTS).map(([effect, { label }]) => [effect, label])}
      />
      <${Choice}
        label="State"
        all="All states"
        value=${filters.state}
        onChange=${set("state")}
        choices=${Object.entries(TOOL_STATES).map(([state, { words }]) => [state, words])}
      />
    </form>
    ${pages.error ? html`<${Problem} error=${pages.error} onRetry=${pages.reload} />` : null}
    ${pages.first && pages.loading
      ? html`<${Skeleton} lines=${8} />`
      : html`<${Table}
          label="Tools"
          columns=${COLUMNS}
          rows=${pages.items}
          rowHref=${(row) => buildLink(row.key)}
          empty=${pages.error ? null : html`<${NoTools} filtered=${filtered} onClear=${() => onFilters({ text: "", server: "", effect: "", state: "" })} />`}
        />`}
    <${More} pages=${pages} />
  <//>`;
}

const COLUMNS = [
  {
    key: "key",
    title: "Tool",
    class: "tool-cell",
    render: (row) => html`<span class="tool-name"><strong><${Name} text=${row.name} /></strong> <span class="faint">${row.server}</span></span>`,
  },
  {
    key: "description",
    title: "What it does",
    class: "wide-cell",
    render: (row) => html`<span class="clamped"><${Bidi} text=${row.description} /></span>`,
  },
  { key: "effect", title: "Effect", render: (row) => html`<${EffectBadge} effect=${row.effect} />${row.effect_doubt ? html` <span class="faint" title=${escapeInvisible(row.effect_doubt)}>(uncertain)</span>` : null}` },
  { key: "state", title: "State", render: (row) => html`<${StateBadge} state=${row.state} reason=${row.reason} />` },
  { key: "calls", title: "Calls", align: "end", class: "nowrap", render: (row) => renderCalls(row) },
  { key: "typical_ms", title: "Usual duration", align: "end", class: "nowrap roomy", render: (row) => formatDuration(row.calls ? row.typical_ms : null) },
  { key: "last_used", title: "Last used", class: "nowrap roomy", render: (row) => html`<${Time} at=${row.last_used} />` },
];

const renderCalls = (row) => html`<span>${formatNumber(row.calls)}${row.failures ? html`<br /><span class="bad-text">${formatNumber(row.failures)} failed</span>` : null}</span>`;

function StateBadge({ state, reason }) {
  const { tone, words } = TOOL_STATES[state] ?? { tone: "plain", words: state };
  return html`<${Badge} tone=${tone} title=${reason}>${words}<//>`;
}

function NoTools({ filtered, onClear }) {
  if (filtered) {
    return html`<${Empty} title="No matches" action=${html`<${Button} onClick=${onClear}>Show all tools<//>`}>
      No tool matches all words and filters.
    <//>`;
  }
  return html`<${Empty} title="No tools yet" action=${html`<a class="button main" href="#/servers">Add a server</a>`}>
    Tools come from MCP servers. Add one on the Servers page.
  <//>`;
}

function Tool({ of, me }) {
  const path = `/api/tools/${buildToolPath(of)}`;
  const { data, error, reload } = useLoad(path);
  if (!data) return html`<${PendingPage} title=${of} error=${error} onRetry=${reload} lines=${8} />`;
  const manages = me?.rights?.includes("manage");
  return html`<${Page} title=${escapeInvisible(data.title || data.name)}>
    <p class="crumbs"><a href="#/tools">Tools</a> / <a href=${`#/servers/${encodeURIComponent(data.server)}`}>${data.server}</a> / <${Code}>${data.name}<//></p>
    <div class="badges">
      <${StateBadge} state=${data.state} />
      <${EffectBadge} effect=${data.effect} />
      <${Labels} rows=${data.intelligence ?? []} />
      <span class="faint">
        ${EFFECTS[data.effect]?.words}${data.effect_source ? ` (${describeSource(data.effect_source, data.intelligence?.find((row) => row.field === "effect")?.reason)})` : ""}
      </span>
    </div>
    <${OnlyReads} tool=${data} manages=${manages} onDone=${reload} />
    ${data.reason && !data.change ? html`<p class="notice"><${Bidi} text=${data.reason} /></p>` : null}
    <${Findings} title="Findings in the definition" findings=${data.card?.findings ?? []} />
    ${data.change ? html`<${DefinitionChange} tool=${data} manages=${manages} onDone=${reload} />` : null}
    <${Bidi} text=${data.description || "No description."} block />
    ${manages
      ? html`<${Switch} path=${`${path}/switch`} name=${data.key} on=${data.state !== "off"} what="tool" onDone=${reload} />`
      : null}
    <${TryTool} tool=${data} me=${me} />
    <${WhyNot} of=${data.key} />
    <section>
      <h2>Arguments</h2>
      <${Schema} schema=${data.schema} />
    </section>
    <section>
      <h2>Usage</h2>
      <${UsageFacts} tool=${data} />
    </section>
    ${data.pin ? html`<${PinFacts} pin=${data.pin} changed=${Boolean(data.change)} />` : null}
    <section>
      <h2>Properties</h2>
      <details class="raw" open=${matchMedia("(min-width: 40rem)").matches}>
        <summary>What Fingerpost knows about this tool, and from where</summary>
        <${Intelligence} rows=${data.intelligence ?? []} />
      </details>
    </section>
  <//>`;
}

const LABELS = {
  "labels.untrusted": "brings in untrusted content",
  "labels.private": "reads private data",
  "labels.outbound": "sends data out",
};

/** What the tool does with data, each with its reason as a hint. */
const Labels = ({ rows }) =>
  rows.filter((row) => LABELS[row.field] && row.value).map((row) => html`<${Badge} tone="info" title=${row.reason}>${LABELS[row.field]}<//>`);

const SOURCES = {
  written: "configured",
  learned: "learned from calls",
  annotation: "declared by its server",
  inferred: "inferred from its definition",
  default: "default",
};

/** Says where a value comes from. What Fingerpost ships about well-known servers was not configured here. */
const describeSource = (source, reason) => (source === "written" && reason?.startsWith("shipped") ? "shipped with Fingerpost" : (SOURCES[source] ?? source));

const SOURCE_TONES = { written: "good", learned: "info", annotation: "info", inferred: "plain", default: "plain" };

// An uncertain read needs an approval. A user with the right to manage can mark the tool as read-only.
function OnlyReads({ tool, manages, onDone }) {
  const { busy, error, run } = useAction();
  const isTrusted = Boolean(tool.pin?.only_reads) && tool.pin.fingerprint === tool.card.fingerprint;
  if (!tool.effect_doubt && !isTrusted) return null;
  const toggleTrust = async () => {
    const body = { fingerprint: tool.card.fingerprint, only_reads: !isTrusted }; // the reviewed version, not the current one
    const done = await run(async () => (await post(`/api/tools/${buildToolPath(tool.key)}/reads`, body)) ?? true);
    if (done !== undefined) toast(isTrusted ? `${tool.key} needs approval again` : `${tool.key} runs without approval`, "good");
    onDone();
  };
  return html`<p class="notice">
    ${isTrusted
      ? html`Marked as read-only by <${Bidi} text=${tool.pin.only_reads} />. `
      : html`Probably read-only, but not certain: <${Bidi} text=${tool.effect_doubt} />. Calls need approval. `}
    ${manages
      ? html`<${Button} busy=${busy} onClick=${toggleTrust}>${isTrusted ? "Require approval again" : "Mark as read-only"}<//>`
      : null}
  </p>
  ${error ? html`<${Problem} error=${error} />` : null}`;
}

function DefinitionChange({ tool, manages, onDone }) {
  const { busy, error, run } = useAction();
  const isSuspicious = tool.card.findings.some((found) => found.severity === "serious");
  const accept = async () => {
    const accepted = { fingerprint: tool.change.seen }; // the reviewed version, not the current one
    const done = await run(async () => (await post(`/api/pins/${buildToolPath(tool.key)}/accept`, accepted)) ?? true);
    if (done !== undefined) toast(`${tool.key} is trusted and available again`, "good");
    onDone(); // also after an error: the definition may have changed again
  };
  return html`<section class="change">
    <h2>${isSuspicious ? "The definition is suspicious" : "The definition changed since it was trusted"}</h2>
    <p>Review ${isSuspicious ? "it" : "the change"}. Until it is accepted, the tool is not offered and cannot be called.</p>
    <${Diff} ...${getDiffProps(tool.change)} />
    ${error ? html`<${Problem} error=${error} />` : null}
    ${manages
      ? html`<${Button} tone="main" busy=${busy} onClick=${accept}>${isSuspicious ? "Accept the definition" : "Accept the change"}<//>`
      : html`<p class="faint">Accepting needs the right “manage”.</p>`}
  </section>`;
}

/** A schema's parameters as a table, and the exact schema in a collapsed section. */
export function Schema({ schema }) {
  const properties = Object.entries(schema?.properties ?? {});
  const needed = new Set(schema?.required ?? []);
  const rows = properties.map(([name, about]) => ({ name, about: about ?? {}, needed: needed.has(name) }));
  const isDescribed = rows.some(({ about }) => about.description || ["enum", "minimum", "maximum", "default"].some((key) => about[key] !== undefined && about[key] !== null));
  return html`${rows.length
      ? html`<${Table} label="Arguments" columns=${isDescribed ? PARAMETER_COLUMNS : PARAMETER_COLUMNS.slice(0, -1)} rows=${rows} />`
      : html`<p class="faint">No arguments.</p>`}
    <details class="raw">
      <summary>JSON schema</summary>
      <${Json} value=${schema ?? {}} open=${true} label="Schema" />
    </details>`;
}

const PARAMETER_COLUMNS = [
  { key: "name", title: "Name", class: "name-cell", render: (row) => html`<${Code}>${row.name}<//>` },
  { key: "type", title: "Type", class: "nowrap", render: (row) => html`<${Code}>${describeType(row.about)}<//>` },
  { key: "needed", title: "Required", render: (row) => (row.needed ? "yes" : "no") },
  { key: "text", title: "Description", class: "wide-cell", render: (row) => html`<${Meaning} about=${row.about} />` },
];

function Meaning({ about }) {
  const bounds = [
    about.enum && `one of ${about.enum.map((value) => JSON.stringify(value)).join(", ")}`,
    about.minimum !== undefined && `at least ${about.minimum}`,
    about.maximum !== undefined && `at most ${about.maximum}`,
    about.default !== undefined && about.default !== null && `default ${JSON.stringify(about.default)}`,
  ].filter(Boolean);
  if (!about.description && !bounds.length) return null;
  return html`<span><${Bidi} text=${about.description ?? ""} /> ${bounds.length ? html`<span class="faint">${bounds.join("; ")}</span>` : null}</span>`;
}

/** Describes a type: "string", "list of integer", "string or null". */
export function describeType(schema, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 4) return "anything";
  const variants = schema.anyOf ?? schema.oneOf;
  if (variants) return [...new Set(variants.map((variant) => describeType(variant, depth + 1)))].join(" or ");
  if (schema.$ref) return String(schema.$ref).split("/").pop();
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  if (schema.type === "array") return `list of ${describeType(schema.items, depth + 1)}`;
  return schema.type ?? (schema.enum ? "choice" : "anything");
}

function Intelligence({ rows }) {
  return html`<${Table}
    label="Properties of this tool"
    rowKey=${(row) => row.field}
    rows=${rows}
    empty=${html`<p class="faint">None.</p>`}
    columns=${[
      { key: "field", title: "Property", class: "nowrap", render: (row) => describeField(row.field) },
      { key: "value", title: "Value", class: "wide-cell", render: (row) => html`<${Value} value=${row.value} field=${row.field} />` },
      {
        key: "source",
        title: "Source",
        render: (row) => html`<span>
          <${Badge} tone=${SOURCE_TONES[row.source] ?? "plain"}>${describeSource(row.source, row.reason)}<//>
          ${row.reason ? html` <span class="faint"><${Bidi} text=${row.reason} /></span>` : null}
        </span>`,
      },
    ]}
  />`;
}

const FIELDS = {
  effect_certain: "effect is certain",
  hierarchy: "fallback tools",
  conflicts: "never offered together with",
  "latency.typical": "usual duration",
  "latency.timeout": "timeout",
  "latency.feedback_delay": "progress is shown after",
  "response.typical_tokens": "usual size of a result, in tokens",
  "response.max_tokens": "largest result, in tokens",
  "response.structured": "result is structured",
  "response.needs_summary": "result is summarised",
  "signals.exclusive_intent": "official source for",
  "retry.retries": "retries",
  "retry.conditions": "retried after",
  "retry.repeatable": "may be repeated",
  cache_seconds: "cached for seconds",
};
const describeField = (field) => FIELDS[field] ?? field.replaceAll("_", " ").replaceAll(".", ": ");

const MILLISECONDS = /latency\.|_ms$/;

function Value({ value, field }) {
  if (value === null || value === undefined || value === "") return html`<span class="faint">none</span>`;
  if (typeof value === "number") return MILLISECONDS.test(field) ? formatDuration(value) : formatNumber(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return html`<${Bidi} text=${value} />`;
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) {
    return value.length ? html`<${Bidi} text=${value.join(", ")} />` : html`<span class="faint">none</span>`;
  }
  return Object.keys(value).length ? html`<${Json} value=${value} />` : html`<span class="faint">none</span>`;
}

function UsageFacts({ tool }) {
  const usage = tool.usage;
  if (!usage?.calls) {
    return html`<p class="faint">Never called.</p>`;
  }
  const many = usage.calls >= 20; // fewer say nothing about the slowest 5 %
  return html`<${Facts}
    rows=${[
      ["Calls", formatNumber(usage.calls)],
      ["Failed", `${formatNumber(usage.failures)} (${Math.round((100 * usage.failures) / usage.calls)} %)`],
      ["Usual duration", `${formatDuration(usage.typical_ms)}${many ? ` (5 % take longer than ${formatDuration(usage.slow_ms)})` : ""}`],
      ["Usual result", `${formatNumber(usage.typical_tokens)} tokens${many ? ` (5 % have more than ${formatNumber(usage.large_tokens)})` : ""}`],
      ["Last used", html`<${Time} at=${usage.last_used} />`],
    ]}
  />`;
}

function PinFacts({ pin, changed }) {
  return html`<section>
    <h2>Trust</h2>
    <${Facts}
      rows=${[
        ["Definition", changed ? "changed since it was trusted" : "unchanged"],
        ["Fingerprint", html`<${Code}>${pin.fingerprint}<//>`],
        ["Trusted", html`<${Exact} at=${pin.pinned_at} />`],
        ["Review", pin.accepted_by ? html`accepted by <${Bidi} text=${pin.accepted_by} />` : "Trusted on first use; not reviewed yet"],
      ]}
    />
  </section>`;
}

function WhyNot({ of }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const { busy, error, run } = useAction();
  const rankTools = async (event) => {
    event.preventDefault();
    const given = await run(() => post("/api/route", { request: text.trim(), about: of }));
    if (given) setFound(given);
  };
  return html`<section class="why-not">
    <h2>When is it offered?</h2>
    <form onSubmit=${rankTools}>
      <${Field} label="Example request" hint="Ranks the tools for this request. Nothing is called.">
        <input type="text" dir="auto" maxlength="2000" value=${text} onInput=${(event) => setText(event.target.value)} />
      <//>
      <${Button} type="submit" busy=${busy} disabled=${!text.trim()}>Show its rank<//>
    </form>
    ${error ? html`<${Problem} error=${error} />` : null}
    ${found ? html`<${ToolRank} narrowing=${found} of=${of} />` : null}
  </section>`;
}
