// Access: keys, users, and the limits of callers with their present use.

import { del, post, put } from "../api.js";
import { Ago, Badge, Bar, Button, Field, Page, Problem, Skeleton, Table, escapeInvisible, formatNumber, html, useEffect, useLoad, useState } from "../ui.js";
import { useAction } from "./paging.js";

const RELOAD_MS = 5_000;
const ROLES = ["user", "approver", "operator", "admin"];
const LIMITS = {
  requests_per_minute: "requests per minute",
  calls_per_minute: "calls per minute",
  running: "calls at once",
  tokens_per_day: "tokens per day",
  cost_per_day: "cost per day",
};

export default function Access({ me }) {
  const administers = me.rights.includes("administer");
  return html`<${Page} title="Access">
    <${Quotas} administers=${administers} />
    ${administers ? html`<${Keys} /><${Users} />` : null}
  <//>`;
}

/** Shows what `useLoad` returned: an error, grey lines, or the children. */
function Loaded({ load, children }) {
  if (load.error) return html`<${Problem} error=${load.error} onRetry=${load.reload} />`;
  return load.data ? children(load.data) : html`<${Skeleton} lines=${3} />`;
}

function Quotas({ administers }) {
  const load = useLoad("/api/quotas", []);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && load.reload(), RELOAD_MS);
    return () => clearInterval(timer);
  }, [load.reload]);
  return html`<section class="panel stack" aria-label="Limits">
    <h2>Limits</h2>
    <${Loaded} load=${load}>${(data) => html`
      <${Table}
        label="Limits"
        rows=${data.items.map((item, index) => ({ ...item, id: item.quota_id || `settings ${index}` }))}
        empty=${html`<p class="faint">There are no limits for users, keys or profiles.</p>`}
        columns=${[
          { key: "of", title: "Each" },
          { key: "match", title: "Named", render: (row) => escapeInvisible(row.match) },
          { key: "limits", title: "Limits", render: formatLimits },
          { key: "action", title: "", render: (row) => (row.quota_id && administers ? html`<${Act} tone="quiet" work=${() => del(`/api/quotas/${encodeURIComponent(row.quota_id)}`)} onDone=${load.reload}>Remove<//>` : html`<span class="faint">${row.quota_id ? "" : "settings"}</span>`) },
        ]}
      />
      ${data.use.length ? html`<${Use} rows=${data.use} />` : null}
    `}<//>
    ${administers ? html`<${NewQuota} onDone=${load.reload} />` : null}
  </section>`;
}

const formatLimits = (quota) =>
  Object.entries(LIMITS)
    .filter(([name]) => quota[name] !== null)
    .map(([name, words]) => `${formatNumber(quota[name])} ${words}`)
    .join(", ");

const Use = ({ rows }) => html`<h3>Used now</h3>
  <${Table}
    label="Used now"
    rows=${rows.map((row) => ({ ...row, id: `${row.of} ${row.name} ${row.limit}` }))}
    columns=${[
      { key: "name", title: "Who", render: (row) => `${row.of} ${escapeInvisible(row.name)}` },
      { key: "limit", title: "Limit", render: (row) => LIMITS[row.limit] },
      { key: "used", title: "Used", render: (row) => html`<${Bar} value=${row.used} max=${row.most} tone=${row.used >= row.most ? "bad" : "info"} label=${`${formatNumber(row.used)} of ${formatNumber(row.most)}`} /> ${formatNumber(row.used)} of ${formatNumber(row.most)}` },
    ]}
  />`;

function NewQuota({ onDone }) {
  const [draft, setDraft] = useState({ of: "user", match: "*", limit: "calls_per_minute", most: "" });
  const { busy, error, run } = useAction();
  const change = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const onSubmit = async (event) => {
    event.preventDefault();
    const { of, match, limit, most } = draft;
    if ((await run(() => post("/api/quotas", { of, match, [limit]: Number(most) }))) !== undefined) onDone();
  };
  return html`<form class="row" onSubmit=${onSubmit} aria-label="New limit">
    <${Field} label="Each"><select value=${draft.of} onChange=${change("of")}>${["user", "key", "profile"].map((name) => html`<option value=${name}>${name}</option>`)}</select><//>
    <${Field} label="Named"><input required value=${draft.match} onInput=${change("match")} /><//>
    <${Field} label="Limit"><select value=${draft.limit} onChange=${change("limit")}>${Object.entries(LIMITS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select><//>
    <${Field} label="At most"><input required type="number" min="0" step=${draft.limit === "cost_per_day" ? "any" : 1} value=${draft.most} onInput=${change("most")} /><//>
    <${Button} type="submit" busy=${busy}>Add<//>
    ${error ? html`<${Problem} error=${error} />` : null}
  </form>`;
}

function Keys() {
  const load = useLoad("/api/keys", []);
  return html`<section class="panel stack" aria-label="Keys">
    <h2>Keys</h2>
    <${NewKey} onDone=${load.reload} />
    <${Loaded} load=${load}>${(data) => html`<${Table}
      label="Keys"
      rows=${data.items.map((item) => ({ ...item, id: item.key_id }))}
      columns=${[
        { key: "name", title: "Name", render: (row) => escapeInvisible(row.name) },
        { key: "user", title: "User", render: (row) => escapeInvisible(row.user) },
        { key: "may", title: "May", render: (row) => [...row.roles, ...row.rights].join(", ") || "nothing" },
        { key: "used", title: "Last used", render: (row) => (row.last_used ? html`<${Ago} at=${row.last_used} />` : "never") },
        { key: "state", title: "State", render: (row) => html`<${Badge} tone=${row.valid ? "good" : "plain"}>${row.valid ? "valid" : row.revoked ? "revoked" : "expired"}<//>` },
        { key: "action", title: "", render: (row) => (row.valid ? html`<${Act} tone="bad" work=${() => del(`/api/keys/${encodeURIComponent(row.key_id)}`)} onDone=${load.reload}>Revoke<//>` : null) },
      ]}
    />`}<//>
  </section>`;
}

function NewKey({ onDone }) {
  const [draft, setDraft] = useState({ name: "", user: "", role: "user" });
  const [made, setMade] = useState(null);
  const { busy, error, run } = useAction();
  const change = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const onSubmit = async (event) => {
    event.preventDefault();
    const answer = await run(() => post("/api/keys", { name: draft.name, user: draft.user, roles: [draft.role] }));
    if (answer === undefined) return;
    setMade(answer);
    setDraft({ ...draft, name: "" });
    onDone();
  };
  return html`<form class="row" onSubmit=${onSubmit} aria-label="New key">
      <${Field} label="Name"><input required value=${draft.name} onInput=${change("name")} /><//>
      <${Field} label="User"><input value=${draft.user} placeholder="as the name" onInput=${change("user")} /><//>
      <${Field} label="Role"><select value=${draft.role} onChange=${change("role")}>${ROLES.map((role) => html`<option value=${role}>${role}</option>`)}</select><//>
      <${Button} type="submit" busy=${busy}>Make a key<//>
    </form>
    ${error ? html`<${Problem} error=${error} />` : null}
    ${made ? html`<p role="status">Save the key of ${escapeInvisible(made.item.name)}; it is not shown again: <code>${made.key}</code></p>` : null}`;
}

function Users() {
  const load = useLoad("/api/users", []);
  const setDisabled = (row, disabled) => () => put(`/api/users/${encodeURIComponent(row.name)}`, { roles: row.roles, disabled });
  return html`<section class="panel stack" aria-label="Users">
    <h2>Users</h2>
    <${Loaded} load=${load}>${(data) => html`<${Table}
      label="Users"
      rows=${data.items}
      columns=${[
        { key: "name", title: "Name", render: (row) => escapeInvisible(row.name) },
        { key: "roles", title: "Roles of tokens", render: (row) => row.roles.join(", ") || "–" },
        { key: "keys", title: "Keys", render: (row) => row.keys.map(escapeInvisible).join(", ") || "–" },
        { key: "sign_ins", title: "Signed in to", render: (row) => row.sign_ins.length === 0 ? "–" : row.sign_ins.map((name) => html`${escapeInvisible(name)} <${Act} tone="quiet" work=${() => del(`/api/users/${encodeURIComponent(row.name)}/sign-ins/${encodeURIComponent(name)}`)} onDone=${load.reload}>Sign out<//>`) },
        { key: "state", title: "State", render: (row) => html`<${Badge} tone=${row.disabled ? "bad" : "good"}>${row.disabled ? "disabled" : "enabled"}<//>` },
        { key: "action", title: "", render: (row) => html`<${Act} tone="quiet" work=${setDisabled(row, !row.disabled)} onDone=${load.reload}>${row.disabled ? "Enable" : "Disable"}<//>` },
      ]}
    />`}<//>
  </section>`;
}

/** A button that does something and shows why it failed. */
function Act({ work, onDone, tone, children }) {
  const { busy, error, run } = useAction();
  const onClick = async () => {
    if ((await run(async () => (await work()) ?? true)) !== undefined) onDone();
  };
  return html`<${Button} tone=${tone} busy=${busy} onClick=${onClick}>${children}<//>${error ? html`<${Problem} error=${error} />` : null}`;
}
