// Adding, editing and removing a server: from a form or pasted JSON, tried before it is saved.
import { Badge, Bidi, Button, Code, Dialog, Field, Page, PendingPage, Problem, Tabs, html, toast, useEffect, useLoad, useRef, useState, formatDuration } from "../ui.js";
import { del, post, put } from "../api.js";
import { EffectBadge } from "./approvals.js";
import { useAction } from "./paging.js";

const EMPTY_FORM = { type: "program", command: "", args: "", env: "", cwd: "", url: "", headers: "" };
const FORM_KEYS = ["command", "args", "env", "cwd", "url", "headers"];

/** Returns the texts of the form for an entry of an `mcpServers` file. */
export function toForm(entry) {
  const pairs = (values, separator) => Object.entries(values ?? {}).map(([name, value]) => `${name}${separator}${value}`).join("\n");
  return {
    type: entry.url ? "url" : "program",
    command: entry.command ?? "",
    args: (entry.args ?? []).join("\n"),
    env: pairs(entry.env, "="),
    cwd: entry.cwd ?? "",
    url: entry.url ?? "",
    headers: pairs(entry.headers, ": "),
  };
}

/** Builds the entry from the form. What the form does not show is kept from `base`. */
export function toEntry(form, base = {}) {
  const rest = Object.fromEntries(Object.entries(base).filter(([name]) => !FORM_KEYS.includes(name)));
  const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
  const pairs = (text, separator) =>
    Object.fromEntries(
      lines(text).map((line) => {
        const place = line.indexOf(separator);
        return place < 0 ? [line, ""] : [line.slice(0, place).trim(), line.slice(place + separator.length).trim()];
      }),
    );
  const given = form.type === "url" ? { url: form.url.trim(), headers: pairs(form.headers, ":") } : { command: form.command.trim(), args: lines(form.args), env: pairs(form.env, "="), cwd: form.cwd.trim() };
  const isEmpty = (value) => value === "" || (typeof value === "object" && !Object.keys(value).length);
  return { ...rest, ...Object.fromEntries(Object.entries(given).filter(([, value]) => !isEmpty(value))) };
}

/** Parses pasted JSON: {error}, or {servers: {name: entry}}; the name is "" where the text does not say it. */
export function parsePasted(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { error: `This is not valid JSON: ${error.message}` };
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { error: "Paste a JSON object: { … }" };
  const servers = value.mcpServers ?? value.servers ?? value;
  if (typeof servers.command === "string" || typeof servers.url === "string") return { servers: { "": servers } };
  const isEntry = (entry) => entry !== null && typeof entry === "object" && (typeof entry.command === "string" || typeof entry.url === "string");
  const found = Object.entries(servers).filter(([, entry]) => isEntry(entry));
  return found.length ? { servers: Object.fromEntries(found) } : { error: "There is no server in it: an entry has a command or a url." };
}

export function AddServer() {
  return html`<${Page} title="Add a server">
    <p class="crumbs"><a href="#/servers">Servers</a> / add</p>
    <${EntryForm} onSaved=${(name) => (location.hash = `#/servers/${encodeURIComponent(name)}`)} />
  <//>`;
}

export function EditServer({ name }) {
  const back = `#/servers/${encodeURIComponent(name)}`;
  const { data, error, reload } = useLoad(`/api/servers/${encodeURIComponent(name)}/entry`);
  if (!data) return html`<${PendingPage} title=${`Edit ${name}`} error=${error} onRetry=${reload} lines=${6} />`;
  return html`<${Page} title=${`Edit ${name}`}>
    <p class="crumbs"><a href="#/servers">Servers</a> / <a href=${back}>${name}</a> / edit</p>
    ${data.editable
      ? html`<p class="faint">Saved in <${Code}>${data.file}<//>. Secrets are masked; masked values stay as they are.</p>
          <${EntryForm} name=${name} entry=${data.entry} onSaved=${() => (location.hash = back)} />`
      : html`<p class="notice">This server is not in the servers file. ${data.file ? html`Edit it in <${Code}>${data.file}<//>.` : "The program that opened Fingerpost defines it."}</p>`}
  <//>`;
}

function EntryForm({ name: known = null, entry: before = null, onSaved }) {
  const [tab, setTab] = useState("form");
  const [name, setName] = useState(known ?? "");
  const [form, setForm] = useState(before ? toForm(before) : EMPTY_FORM);
  const [text, setText] = useState("");
  const [picked, setPicked] = useState("");
  const [trial, setTrial] = useState(null);
  const { busy, error, run } = useAction();
  const pasted = text.trim() ? parsePasted(text) : { servers: {} };
  const names = Object.keys(pasted.servers ?? {});
  const chosen = names.includes(picked) ? picked : (names[0] ?? "");
  const entry = tab === "json" ? (pasted.servers?.[chosen] ?? null) : toEntry(form, before ?? {});
  const finalName = known ?? (name.trim() || (tab === "json" ? chosen : ""));
  const isComplete = Boolean(finalName && entry && (entry.command || entry.url));
  const reset = (change) => (value) => {
    setTrial(null);
    change(value);
  };
  const set = (field) => (event) => reset(setForm)({ ...form, [field]: event.target.value });
  const switchTab = (to) => {
    if (to === "json" && !text.trim() && isComplete) setText(JSON.stringify({ mcpServers: { [finalName]: entry } }, null, 2));
    if (to === "form" && entry) {
      setForm(toForm(entry));
      if (!known && chosen) setName(chosen);
    }
    setTrial(null);
    setTab(to);
  };
  const test = async (event) => {
    event.preventDefault();
    setTrial(null);
    const found = await run(() => post("/api/server-trials", { name: finalName, entry }));
    if (found) setTrial(found);
  };
  const save = async () => {
    const body = { entry, check: false }; // it was tried, or the user saves it without
    const send = known ? () => put(`/api/servers/${encodeURIComponent(known)}`, body) : () => post("/api/servers", { ...body, name: finalName });
    if ((await run(send)) === undefined) return;
    toast(`${finalName} is saved`, "good");
    onSaved(finalName);
  };
  const works = trial && (trial.connected || trial.needs_sign_in);
  return html`<section class="panel stack" aria-label="Entry of the server">
    <${Tabs} tabs=${[{ id: "form", title: "Form" }, { id: "json", title: "JSON" }]} current=${tab} onChange=${switchTab} label="How to describe the server" />
    <form class="stack edit-arguments" onSubmit=${test}>
      ${tab === "json"
        ? html`<${Field} label="JSON" hint="An mcpServers file, or one entry of it, as a README shows it." error=${pasted.error}>
              <textarea class="code" rows="10" spellcheck="false" placeholder=${'{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'} value=${text} onInput=${(event) => reset(setText)(event.target.value)}></textarea>
            <//>
            ${names.length > 1
              ? html`<${Field} label="Server" hint="Servers are added one by one."><select value=${chosen} onChange=${(event) => reset(setPicked)(event.target.value)}>${names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select><//>`
              : null}`
        : null}
      ${known === null && (tab === "form" || !chosen)
        ? html`<${Field} label="Name (required)" hint="Letters, digits, - and _. Tools are called NAME/tool."><input type="text" autocomplete="off" spellcheck="false" value=${name} onInput=${(event) => reset(setName)(event.target.value)} /><//>`
        : null}
      ${tab === "form" ? html`<${FormFields} form=${form} set=${set} />` : null}
      <div class="row">
        <${Button} tone=${works ? "plain" : "main"} type="submit" busy=${busy} disabled=${!isComplete}>Test connection<//>
        <${Button} tone=${works ? "main" : "plain"} busy=${busy} disabled=${!isComplete || !trial} onClick=${save}>${trial && !works ? "Save anyway" : "Save"}<//>
        ${trial ? null : html`<span class="faint">Test the connection first, then save.</span>`}
      </div>
    </form>
    <div role="status" aria-live="polite" class="stack">
      ${error ? html`<${Problem} error=${error} />` : null}
      ${trial ? html`<${Trial} trial=${trial} />` : null}
    </div>
  </section>`;
}

function FormFields({ form, set }) {
  const line = (field, placeholder) => html`<input type="text" autocomplete="off" spellcheck="false" placeholder=${placeholder} value=${form[field]} onInput=${set(field)} />`;
  const area = (field, placeholder) => html`<textarea class="code" rows="2" spellcheck="false" placeholder=${placeholder} value=${form[field]} onInput=${set(field)}></textarea>`;
  return html`<${Field} label="Type">
      <select value=${form.type} onChange=${set("type")}>
        <option value="program">Local program (stdio)</option>
        <option value="url">URL (HTTP)</option>
      </select>
    <//>
    ${form.type === "url"
      ? html`<${Field} label="URL (required)">${line("url", "for example https://example.com/mcp")}<//>
          <${Field} label="Headers" hint="One per line, Name: value. $\{NAME\} is read from the environment.">${area("headers", "for example Authorization: Bearer ${TOKEN}")}<//>`
      : html`<${Field} label="Command (required)">${line("command", "for example uvx")}<//>
          <${Field} label="Arguments" hint="One per line.">${area("args", "for example mcp-server-time")}<//>
          <${Field} label="Environment variables" hint="One per line, NAME=value. $\{NAME\} is read from the environment.">${area("env", "for example API_KEY=${API_KEY}")}<//>
          <${Field} label="Working directory" hint="Optional.">${line("cwd", "")}<//>`}`;
}

/** What came of connecting once: the tools, or why not. */
function Trial({ trial }) {
  const box = useRef(null);
  useEffect(() => box.current.scrollIntoView({ block: "nearest" }), [trial]);
  const warnings = [...trial.warnings, ...trial.dropped.map((one) => `Left out: ${one}`)];
  return html`<div ref=${box} class="stack trial">
    ${trial.connected
      ? html`<p><${Badge} tone="good">connected<//> <${Bidi} text=${trial.version} /> ${trial.connect_ms ? html`<span class="faint">in ${formatDuration(trial.connect_ms)}</span>` : null} · ${trial.tools.length} ${trial.tools.length === 1 ? "tool" : "tools"}. Nothing is saved yet.</p>`
      : trial.needs_sign_in
        ? html`<p><${Badge} tone="warn">needs signing in<//> Save it, then run <code>fingerpost servers login ${trial.name}</code>.</p>`
        : html`<div class="problem"><strong>Not connected</strong><p><${Bidi} text=${trial.reason} /></p>${trial.hint ? html`<p>What to do: <${Bidi} text=${trial.hint} /></p>` : null}
            ${trial.stderr_tail ? html`<pre class="json" tabindex="0"><${Bidi} text=${trial.stderr_tail} /></pre>` : null}</div>`}
    ${warnings.length ? html`<ul class="reasons">${warnings.map((one) => html`<li><${Bidi} text=${one} /></li>`)}</ul>` : null}
    ${trial.tools.length
      ? html`<ul class="trial-tools" aria-label="Tools of the server">${trial.tools.map((tool) => html`<li key=${tool.name}><${Code}>${tool.name}<//> <${EffectBadge} effect=${tool.effect} />${tool.certain ? null : html` <span class="faint">(uncertain)</span>`} <span class="faint clamped"><${Bidi} text=${tool.description} /></span></li>`)}</ul>`
      : null}
  </div>`;
}

/** Removes a server from the servers file after a confirmation. */
export function RemoveServer({ name }) {
  const [asking, setAsking] = useState(false);
  const { busy, error, run } = useAction();
  const remove = async () => {
    if ((await run(async () => (await del(`/api/servers/${encodeURIComponent(name)}`)) ?? true)) === undefined) return;
    toast(`${name} is removed`, "good");
    location.hash = "#/servers";
  };
  return html`<${Button} tone="bad" onClick=${() => setAsking(true)}>Remove…<//>
    ${asking
      ? html`<${Dialog} title=${`Remove ${name}?`} onClose=${() => setAsking(false)}>
          <p>Its entry is removed from the servers file, and its tools are gone. Calls that are running finish.</p>
          ${error ? html`<${Problem} error=${error} />` : null}
          <div class="dialog-actions"><${Button} tone="bad" busy=${busy} onClick=${remove}>Remove<//><${Button} onClick=${() => setAsking(false)}>Cancel<//></div>
        <//>`
      : null}`;
}
