// Tools: the list, what is known about each and its source, and why it is or is not offered.
import {
  Badge,
  Bidi,
  Button,
  Code,
  Diff,
  Empty,
  Facts,
  Field,
  Json,
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

export const TOOL_STATES = {
  offered: { tone: "good", words: "offered" },
  hidden: { tone: "plain", words: "hidden by policy" },
  quarantined: { tone: "warn", words: "changed, to review" },
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
      <${Search} label="Search" value=${filters.text} onChange=${set("text")} placeholder="words in name, server or description" />
      <${Choice}
        label="Server"
        all="every server"
        value=${filters.server}
        onChange=${set("server")}
        choices=${(servers.data?.items ?? []).map((one) => [one.name, one.name])}
      />
      <${Choice}
        label="Effect"
        all="every effect"
        value=${filters.effect}
        onChange=${set("effect")}
        choices=${Object.keys(EFFECTS).map((effect) => [effect, effect])}
      />
      <${Choice}
        label="State"
        all="every state"
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
    class: "wide-cell",
    render: (row) => html`<span class="tool-name"><strong>${row.name}</strong> <span class="faint">${row.server}</span></span>`,
  },
  {
    key: "description",
    title: "What it does",
    class: "wide-cell",
    render: (row) => html`<span class="clamped"><${Bidi} text=${row.description} /></span>`,
  },
  { key: "effect", title: "Effect", render: (row) => html`<${EffectBadge} effect=${row.effect} />${row.effect_doubt ? html` <span class="faint" title=${escapeInvisible(row.effect_doubt)}>not certain</span>` : null}` },
  { key: "state", title: "State", render: (row) => html`<${StateBadge} state=${row.state} reason=${row.reason} />` },
  { key: "calls", title: "Calls", align: "end", class: "nowrap", render: (row) => renderCalls(row) },
  { key: "typical_ms", title: "Typical", align: "end", class: "nowrap roomy", render: (row) => formatDuration(row.calls ? row.typical_ms : null) },
  { key: "last_used", title: "Last used", class: "nowrap roomy", render: (row) => html`<${Time} at=${row.last_used} />` },
];

const renderCalls = (row) => html`<span>${formatNumber(row.calls)}${row.failures ? html`<br /><span class="bad-text">${formatNumber(row.failures)} failed</span>` : null}</span>`;

function StateBadge({ state, reason }) {
  const { tone, words } = TOOL_STATES[state] ?? { tone: "plain", words: state };
  return html`<${Badge} tone=${tone} title=${reason}>${words}<//>`;
}

function NoTools({ filtered, onClear }) {
  if (filtered) {
    return html`<${Empty} title="No tool like that" action=${html`<${Button} onClick=${onClear}>Show every tool<//>`}>
      All words have to occur in a tool’s name, server or description.
    <//>`;
  }
  return html`<${Empty} title="No tools yet" action=${html`<a class="button" href="#/servers">Look at the servers</a>`}>
    Tools come from MCP servers, which you name when you start <code>fingerpost serve</code>. The page of servers
    says how.
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
      <span class="faint">
        ${EFFECTS[data.effect]?.words}${data.effect_source ? `; known from: ${SOURCES[data.effect_source] ?? data.effect_source}` : ""}
      </span>
    </div>
    <${OnlyReads} tool=${data} manages=${manages} onDone=${reload} />
    ${data.reason && !data.change ? html`<p class="notice"><${Bidi} text=${data.reason} /></p>` : null}
    ${data.change ? html`<${DefinitionChange} tool=${data} manages=${manages} onDone=${reload} />` : null}
    <${Bidi} text=${data.description || "The server says nothing about this tool."} block />
    ${manages
      ? html`<${Switch} path=${`${path}/switch`} name=${data.key} on=${data.state !== "off"} what="tool" onDone=${reload} />`
      : null}
    <${WhyNot} of=${data.key} />
    <section>
      <h2>Arguments</h2>
      <${Schema} schema=${data.schema} />
    </section>
    <section>
      <h2>What is known of it</h2>
      <${Intelligence} rows=${data.intelligence ?? []} />
    </section>
    <section>
      <h2>Learned from its calls</h2>
      <${UsageFacts} tool=${data} />
    </section>
    ${data.pin ? html`<${PinFacts} pin=${data.pin} changed=${Boolean(data.change)} />` : null}
  <//>`;
}

const SOURCES = {
  written: "written by a person",
  learned: "learned from calls",
  annotation: "said by its server",
  inferred: "inferred from its definition",
  default: "assumed",
};
const SOURCE_TONES = { written: "good", learned: "info", annotation: "info", inferred: "plain", default: "plain" };

// An uncertain read needs an approval. A user with the right to manage can mark the tool as read-only.
function OnlyReads({ tool, manages, onDone }) {
  const { busy, error, run } = useAction();
  const isTrusted = Boolean(tool.pin?.only_reads) && tool.pin.fingerprint === tool.card.fingerprint;
  if (!tool.effect_doubt && !isTrusted) return null;
  const toggleTrust = async () => {
    const body = { fingerprint: tool.card.fingerprint, only_reads: !isTrusted }; // the reviewed version, not the current one
    const done = await run(async () => (await post(`/api/tools/${buildToolPath(tool.key)}/reads`, body)) ?? true);
    if (done !== undefined) toast(isTrusted ? `${tool.key} is asked about again` : `${tool.key} runs without a question`, "good");
    onDone();
  };
  return html`<p class="notice">
    ${isTrusted
      ? html`<${Bidi} text=${tool.pin.only_reads} /> said that this definition only reads. `
      : html`It seems to read, but that is not certain: <${Bidi} text=${tool.effect_doubt} />. A person is asked before it runs. `}
    ${manages
      ? html`<${Button} busy=${busy} onClick=${toggleTrust}>${isTrusted ? "Ask about it again" : "It only reads: do not ask again"}<//>`
      : null}
  </p>
  ${error ? html`<${Problem} error=${error} />` : null}`;
}

function DefinitionChange({ tool, manages, onDone }) {
  const { busy, error, run } = useAction();
  const accept = async () => {
    const accepted = { fingerprint: tool.change.seen }; // the reviewed version, not the current one
    const done = await run(async () => (await post(`/api/pins/${buildToolPath(tool.key)}/accept`, accepted)) ?? true);
    if (done !== undefined) toast(`${tool.key} is trusted and offered again`, "good");
    onDone(); // also after an error: the definition may have changed again
  };
  return html`<section class="change">
    <h2>Its definition changed since it was trusted</h2>
    <p>Until the change is accepted, no model sees this tool and it cannot be called. Read what is new.</p>
    <${Diff} ...${getDiffProps(tool.change)} />
    ${error ? html`<${Problem} error=${error} />` : null}
    ${manages
      ? html`<${Button} tone="main" busy=${busy} onClick=${accept}>Accept the change<//>`
      : html`<p class="faint">Accepting takes a key with the right “manage”.</p>`}
  </section>`;
}

/** A schema's parameters as a table, and the exact schema in a collapsed section. */
export function Schema({ schema }) {
  const properties = Object.entries(schema?.properties ?? {});
  const needed = new Set(schema?.required ?? []);
  const rows = properties.map(([name, about]) => ({ name, about: about ?? {}, needed: needed.has(name) }));
  return html`${rows.length
      ? html`<${Table} label="Arguments" columns=${PARAMETER_COLUMNS} rows=${rows} />`
      : html`<p class="faint">It takes no arguments.</p>`}
    <details class="raw">
      <summary>The exact schema</summary>
      <${Json} value=${schema ?? {}} open=${true} label="Schema" />
    </details>`;
}

const PARAMETER_COLUMNS = [
  { key: "name", title: "Name", render: (row) => html`<${Code}>${row.name}<//>` },
  { key: "type", title: "Type", render: (row) => html`<${Code}>${describeType(row.about)}<//>` },
  { key: "needed", title: "Needed", render: (row) => (row.needed ? "yes" : "no") },
  { key: "text", title: "Meaning", class: "wide-cell", render: (row) => html`<${Meaning} about=${row.about} />` },
];

function Meaning({ about }) {
  const bounds = [
    about.enum && `one of ${about.enum.map((value) => JSON.stringify(value)).join(", ")}`,
    about.minimum !== undefined && `at least ${about.minimum}`,
    about.maximum !== undefined && `at most ${about.maximum}`,
    about.default !== undefined && `else ${JSON.stringify(about.default)}`,
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
    label="What is known of this tool"
    rowKey=${(row) => row.field}
    rows=${rows}
    empty=${html`<p class="faint">Nothing beyond its definition.</p>`}
    columns=${[
      { key: "field", title: "What", render: (row) => describeField(row.field) },
      { key: "value", title: "Value", class: "wide-cell", render: (row) => html`<${Value} value=${row.value} field=${row.field} />` },
      {
        key: "source",
        title: "Where from",
        render: (row) => html`<span>
          <${Badge} tone=${SOURCE_TONES[row.source] ?? "plain"}>${SOURCES[row.source] ?? row.source}<//>
          ${row.reason ? html` <span class="faint"><${Bidi} text=${row.reason} /></span>` : null}
        </span>`,
      },
    ]}
  />`;
}

const FIELDS = { hierarchy: "where to turn when it fails", conflicts: "not offered beside it" };
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
    return html`<p class="faint">It was never called. Its figures above are assumed until it is.</p>`;
  }
  return html`<${Facts}
    rows=${[
      ["Calls", formatNumber(usage.calls)],
      ["Failed", `${formatNumber(usage.failures)} (${Math.round((100 * usage.failures) / usage.calls)} %)`],
      ["Takes", `${formatDuration(usage.typical_ms)}; one in twenty longer than ${formatDuration(usage.slow_ms)}`],
      ["Answers", `${formatNumber(usage.typical_tokens)} tokens; one in twenty more than ${formatNumber(usage.large_tokens)}`],
      ["Last used", html`<${Time} at=${usage.last_used} />`],
    ]}
  />`;
}

function PinFacts({ pin, changed }) {
  return html`<section>
    <h2>Trust</h2>
    <${Facts}
      rows=${[
        ["Definition", changed ? "differs from the trusted one" : "as it was trusted"],
        ["Fingerprint", html`<${Code}>${pin.fingerprint}<//>`],
        ["Since", html`<${Time} at=${pin.pinned_at} />`],
        ["Accepted by", pin.accepted_by ?? "not accepted by a person: it was first seen like this"],
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
    <h2>Why is it offered, or not?</h2>
    <form onSubmit=${rankTools}>
      <${Field} label="A request" hint="Nothing is called: this only ranks the tools for it.">
        <input type="text" dir="auto" maxlength="2000" value=${text} onInput=${(event) => setText(event.target.value)} />
      <//>
      <${Button} type="submit" busy=${busy} disabled=${!text.trim()}>Where does it stand?<//>
    </form>
    ${error ? html`<${Problem} error=${error} />` : null}
    ${found ? html`<${ToolRank} narrowing=${found} of=${of} />` : null}
  </section>`;
}
