// Servers: state, reason, and possible actions.
import {
  Badge,
  Bidi,
  Button,
  Code,
  Diff,
  Empty,
  Facts,
  Findings,
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
  useEffect,
  useLoad,
  escapeInvisible,
} from "../ui.js";
import { post } from "../api.js";
import { getDiffProps } from "./approvals.js";
import { AddServer, EditServer, RemoveServer } from "./entry.js";
import { useAction } from "./paging.js";
import { Switch } from "./switch.js";

const STATES = {
  ready: { tone: "good", words: "ready" },
  degraded: { tone: "warn", words: "degraded" },
  connecting: { tone: "info", words: "connecting" },
  idle: { tone: "plain", words: "not connected yet" },
  asleep: { tone: "good", words: "asleep" },
  down: { tone: "bad", words: "down" },
  disabled: { tone: "plain", words: "off" },
};

const BREAKERS = {
  closed: { tone: "good", words: "closed: calls go through" },
  half_open: { tone: "warn", words: "half open: one call is tried" },
  open: { tone: "bad", words: "open: calls are paused after repeated failures" },
};

const RELOAD_MS = 5000;

export default function Servers({ params: [name], query, me }) {
  const manages = Boolean(me?.rights?.includes("manage"));
  if (name && manages && query?.has("edit")) return html`<${EditServer} key=${`edit ${name}`} name=${name} />`;
  if (name) return html`<${Server} key=${name} name=${name} me=${me} />`;
  return manages && query?.has("add") ? html`<${AddServer} />` : html`<${ServerList} manages=${manages} />`;
}

/** `useLoad` with polling, because servers change state on their own. */
function usePolling(path) {
  const loaded = useLoad(path);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && loaded.reload(), RELOAD_MS);
    return () => clearInterval(timer);
  }, [loaded.reload]);
  return loaded;
}

function ServerList({ manages }) {
  const { data, error, reload } = usePolling("/api/servers");
  const items = data?.items ?? [];
  const asleep = items.filter((one) => one.state === "asleep").length;
  const hasOpenBreaker = items.some((one) => !isClosed(one.breaker));
  const canAdd = manages && data?.file;
  const add = canAdd ? html`<a class="button main" href="#/servers?add">Add a server</a>` : null;
  return html`<${Page} title="Servers" actions=${items.length ? add : null}>
    ${items.length
      ? html`<p class="lead">${formatNumber(items.reduce((sum, one) => sum + (one.offered ?? 0), 0))} tools${asleep ? ` · ${asleep} asleep: ${asleep === 1 ? "it starts" : "they start"} with the next call` : ""}</p>`
      : null}
    ${error ? html`<${Problem} error=${error} onRetry=${reload} />` : null}
    ${!data && !error ? html`<${Skeleton} lines=${6} />` : null}
    ${data ? html`<${Table} label="Servers" columns=${hasOpenBreaker ? [...COLUMNS, BREAKER_COLUMN] : COLUMNS} rows=${items} rowHref=${buildLink} empty=${html`<${NoServers} add=${add} manages=${manages} />`} />` : null}
    ${data?.problems?.length ? html`<div class="notice"><p><strong>Not applied:</strong></p><ul>${data.problems.map((one) => html`<li><${Bidi} text=${one} /></li>`)}</ul></div>` : null}
    ${data?.waiting?.length ? html`<p class="notice">Applied after a restart: ${data.waiting.map(escapeInvisible).join(", ")}</p>` : null}
    ${data?.file && items.length ? html`<p class="faint">Servers are saved in <${Code}>${data.file}<//>.</p>` : null}
  <//>`;
}

const buildLink = (server) => `#/servers/${encodeURIComponent(server.name)}`;

const COLUMNS = [
  { key: "name", title: "Server", render: (row) => html`<strong>${row.name}</strong>` },
  { key: "state", title: "State", render: (row) => html`<${StateBadge} server=${row} />` },
  { key: "reason", title: "Reason", class: "wide-cell", render: (row) => html`<${StateReason} server=${row} />` },
  { key: "tools", title: "Tools", align: "end", class: "nowrap", render: (row) => formatTools(row) },
  { key: "transport", title: "Transport", class: "nowrap roomy", render: (row) => row.transport.replace("_", " ") },
  { key: "since", title: "Since", class: "nowrap roomy", render: (row) => html`<${Time} at=${row.since} />` },
];
const BREAKER_COLUMN = { key: "breaker", title: "Circuit breaker", render: (row) => html`<${BreakerBadge} breaker=${row.breaker} />` };

const formatTools = ({ offered, tools, left_out: leftOut = [] }) =>
  offered === tools ? formatNumber(tools) : html`<span title=${leftOut.map(escapeInvisible).join("\n")}>${formatNumber(offered)} of ${formatNumber(tools)}</span>`;

function StateBadge({ server }) {
  const { tone, words } = STATES[server.on ? server.state : "disabled"] ?? { tone: "plain", words: server.state };
  return html`<${Badge} tone=${tone}>${words}<//>`;
}

function StateReason({ server }) {
  return html`${server.instructions_change ? html`<${Badge} tone="warn">instructions ${hasSuspiciousInstructions(server) ? "suspicious" : "changed"}: review<//> ` : null}
    ${server.reason || server.hidden ? html`<${Bidi} text=${server.reason || server.hidden} />` : null}`;
}

const hasSuspiciousInstructions = (server) => (server.instructions_findings ?? []).some((found) => found.severity === "serious");

const isClosed = (breaker) => breaker.state === "closed";

function BreakerBadge({ breaker: { state } }) {
  if (state === "closed") return html`<span class="faint">closed</span>`;
  return html`<${Badge} tone=${BREAKERS[state]?.tone ?? "plain"} title=${BREAKERS[state]?.words}>breaker ${state.replace("_", " ")}<//>`;
}

function NoServers({ add, manages }) {
  return html`<${Empty} title="No servers yet" action=${add}>
    <p>Fingerpost routes to MCP servers. ${add ? "Add one here, or" : manages ? "Add one" : "Sign in (fingerpost console prints a link) to add one here, or add one"} on the command line:</p>
    <p><code>fingerpost servers add NAME -- COMMAND</code></p>
    <p><code>fingerpost import</code> adds the servers of your MCP clients.</p>
  <//>`;
}

function Server({ name, me }) {
  const path = `/api/servers/${encodeURIComponent(name)}`;
  const { data, error, reload } = usePolling(path);
  if (!data) return html`<${PendingPage} title=${name} error=${error} onRetry=${reload} lines=${6} />`;
  return html`<${Page} title=${name}>
    <p class="crumbs"><a href="#/servers">Servers</a> / <${Code}>${name}<//></p>
    <div class="badges"><${StateBadge} server=${data} />${isClosed(data.breaker) ? null : html` <${BreakerBadge} breaker=${data.breaker} />`}</div>
    <${ServerProblem} server=${data} />
    ${data.hidden ? html`<p class="notice"><${Bidi} text=${data.hidden} /> <a href=${`#/tools?server=${encodeURIComponent(name)}`}>Review its tools</a></p>` : null}
    ${data.instructions_change
      ? html`<${ChangedInstructions} path=${path} server=${data} manages=${me?.rights?.includes("manage")} onDone=${reload} />`
      : null}
    <${Findings} title="Findings in its instructions" findings=${data.instructions_findings ?? []} />
    ${me?.rights?.includes("manage") ? html`<${Actions} path=${path} server=${data} onDone=${reload} />` : null}
    <${Facts}
      rows=${[
        ["Tools", html`<a href=${`#/tools?server=${encodeURIComponent(name)}`}>${formatTools(data)}</a>`],
        ["Transport", data.transport.replace("_", " ")],
        ["Version", escapeInvisible(data.version)],
        ["Protocol", escapeInvisible(data.protocol)],
        ["Response time", data.latency === null || data.latency === undefined ? null : formatDuration(data.latency)],
        ["Circuit breaker", isClosed(data.breaker) ? null : escapeInvisible(describeBreaker(data.breaker))],
        ["State since", html`<${Time} at=${data.since} />`],
      ]}
    />
    <${ServerTools} name=${name} state=${`${data.state} ${data.on} ${data.offered} ${data.breaker.state}`} leftOut=${data.left_out ?? []} />
    ${data.stderr_tail
      ? html`<details class="raw"><summary>Last log lines</summary><pre class="json" dir="ltr" tabindex="0"><${Bidi} text=${data.stderr_tail} /></pre></details>`
      : null}
  <//>`;
}

function describeBreaker({ state, reason, retry_in: retry }) {
  const again = retry ? `; next try in about ${formatDuration(retry * 1000)}` : "";
  return `${BREAKERS[state]?.words ?? state}${reason ? ` (${reason})` : ""}${again}`;
}

const HINTS = {
  stdio: "Run its command in a terminal to see the error. If the entry is wrong, edit it; then reconnect.",
  http: "Check that its URL responds and whether it needs signing in (fingerpost servers login NAME), then reconnect.",
  sse: "Check that its URL responds and whether it needs signing in (fingerpost servers login NAME), then reconnect.",
};

function DisabledReason({ off }) {
  if (!off) return html`<p class="notice">Disabled in the settings. Set <code>enabled = true</code> for it there.</p>`;
  const why = off.reason ? html`: <q><${Bidi} text=${off.reason} /></q>` : null;
  return html`<p class="notice">Switched off by <strong><bdi>${off.by}</bdi></strong> <${Time} at=${off.at} />${why}. Its tools cannot be used.</p>`;
}

function ServerProblem({ server }) {
  if (!server.on) return html`<${DisabledReason} off=${server.switched_off} />`;
  if (server.state !== "down" && !server.reason) return null;
  const what = server.hint || (server.state === "down" ? HINTS[server.transport] : null);
  return html`<div class="notice">
    <p><strong>${server.state === "down" ? "Not reachable" : "There is a problem"}.</strong> <${Bidi} text=${server.reason ?? ""} /></p>
    ${what ? html`<p><strong>What to do:</strong> <${Bidi} text=${what} /></p>` : null}
    ${server.retry_in ? html`<p class="faint">The next attempt is in about ${formatDuration(server.retry_in * 1000)}.</p>` : null}
  </div>`;
}

function ChangedInstructions({ path, server, manages, onDone }) {
  const { busy, error, run } = useAction();
  const change = server.instructions_change;
  const isSuspicious = hasSuspiciousInstructions(server);
  const accept = async () => {
    const accepted = { fingerprint: change.seen }; // the reviewed version, not the current one
    const done = await run(async () => (await post(`${path}/instructions/accept`, accepted)) ?? true);
    if (done !== undefined) toast(`The instructions of ${server.name} are accepted`, "good");
    onDone(); // also after an error: the text may have changed again
  };
  return html`<section class="change">
    <h2>${isSuspicious ? "Its instructions are suspicious" : "Its instructions changed since they were trusted"}</h2>
    <p>Review ${isSuspicious ? "them" : "the change"}. Until ${isSuspicious ? "they are" : "it is"} accepted, models do not get these instructions.</p>
    ${change.diff.length
      ? html`<${Diff} ...${getDiffProps(change)} />`
      : html`<pre class="json" tabindex="0"><${Bidi} text=${change.after} /></pre>`}
    ${error ? html`<${Problem} error=${error} />` : null}
    ${manages
      ? html`<${Button} tone="main" busy=${busy} onClick=${accept}>${isSuspicious ? "Accept the instructions" : "Accept the change"}<//>`
      : html`<p class="faint">Accepting needs the right “manage”.</p>`}
  </section>`;
}

function Actions({ path, server, onDone }) {
  const { busy, error, run } = useAction();
  const act = (action, words) => async () => {
    const done = await run(async () => (await post(`${path}/${action}`)) ?? true);
    if (done !== undefined) toast(words, "good");
    onDone();
  };
  if (!server.on && !server.switched_off) return null; // disabled in the settings: only the settings can enable it
  return html`<div class="acts">
    ${!server.on ? null : html`<${Button} busy=${busy} onClick=${act("reconnect", `${server.name} reconnected`)}>Reconnect<//>`}
    ${isClosed(server.breaker) ? null : html`<${Button} tone="main" busy=${busy} onClick=${act("breaker/reset", "The circuit breaker is closed")}>Close the circuit breaker<//>`}
    <a class="button" href=${`#/servers/${encodeURIComponent(server.name)}?edit`}>Edit</a>
    <${Switch} path=${`${path}/switch`} name=${server.name} on=${server.on} what="server" onDone=${onDone} />
    <${RemoveServer} name=${server.name} />
    ${error ? html`<${Problem} error=${error} />` : null}
  </div>`;
}

function ServerTools({ name, state, leftOut }) {
  const { data } = useLoad(`/api/tools?limit=100&server=${encodeURIComponent(name)}`, [state]);
  if (!data?.items.length && !leftOut.length) return null;
  return html`<section>
    <h2>Tools</h2>
    <ul class="tool-list">
      ${(data?.items ?? []).map(
        (tool) => html`<li key=${tool.key}>
          <a href=${`#/tools/${encodeURIComponent(tool.server)}/${encodeURIComponent(tool.name)}`}><${Name} text=${tool.name} /></a>
          ${tool.state === "offered" ? null : html` <span class="faint">${tool.state.replace("_", " ")}</span>`}
        </li>`,
      )}
    </ul>
    ${leftOut.length ? html`<p class="faint">Left out:</p><ul class="reasons">${leftOut.map((one) => html`<li key=${one}><${Bidi} text=${one} /></li>`)}</ul>` : null}
    ${data?.next ? html`<p><a href=${`#/tools?server=${encodeURIComponent(name)}`}>Show all</a></p>` : null}
  </section>`;
}
