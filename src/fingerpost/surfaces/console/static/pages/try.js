// Try a tool: a form built from its schema, checked first, then run through the call path.
import { Badge, Bidi, Button, Diff, Field, Problem, Tabs, html, toast, useLoad, useMemo, useRef, useState, escapeInvisible, formatDuration } from "../ui.js";
import { post } from "../api.js";
import { Decide } from "../journey/answer.js";
import { ArgumentFields, buildDraft, buildFields, parseDraft, parseObject } from "./arguments.js";
import { useAction } from "./paging.js";

/** Returns the arguments that the schema gives as defaults. */
const listDefaults = (schema) =>
  Object.fromEntries(Object.entries(schema?.properties ?? {}).flatMap(([name, about]) => (about?.default === undefined || about.default === null ? [] : [[name, about.default]])));

export function TryTool({ tool, me }) {
  const fields = useMemo(() => buildFields(tool.schema, listDefaults(tool.schema)), [tool.schema]);
  const [draft, setDraft] = useState(() => buildDraft(fields, listDefaults(tool.schema)));
  const [text, setText] = useState(null); // not null: arguments are written as JSON
  const [touched, setTouched] = useState(false);
  const [outcome, setOutcome] = useState(null);
  const { busy, error, run } = useAction();
  const conversation = useRef(`try-${crypto.getRandomValues(new Uint32Array(2)).join("")}`).current;
  if (!me?.rights?.includes("use") || !["offered", "server_down"].includes(tool.state)) return null;
  const given = text === null ? dropUnset(parseDraft(fields, draft), fields, draft) : parseObject(text);
  const isInvalid = Boolean(given.error) || Object.keys(given.errors ?? {}).length > 0;

  const call = (dryRun) => async (event) => {
    event?.preventDefault();
    setTouched(true);
    if (isInvalid) return;
    const body = { tool: tool.key, arguments: given.arguments, dry_run: dryRun, conversation, fallback: false };
    const found = await run(() => post("/api/call", body));
    if (found) setOutcome({ ...found, dryRun, asked: given.arguments });
  };
  const change = (name, value) => {
    setDraft((before) => ({ ...before, [name]: value }));
    setOutcome(null);
  };
  const toJson = () => setText(JSON.stringify(given.arguments ?? {}, null, 2));
  const toForm = () => {
    if (!isInvalid) setDraft(buildDraft(fields, given.arguments));
    setText(null);
  };
  const checked = outcome && !outcome.pending_id && (outcome.success || !outcome.dryRun); // also again, with the same arguments
  return html`<section class="try-tool panel stack" aria-label="Try it">
    <h2>Try it</h2>
    <form class="stack edit-arguments" onSubmit=${call(true)} novalidate>
      ${text === null
        ? fields.length
          ? html`<${ArgumentFields} fields=${fields} draft=${draft} errors=${touched ? given.errors : {}} onDraft=${change} />`
          : html`<p class="faint">No arguments.</p>`
        : html`<${Field} label="Arguments as JSON" error=${given.error}>
            <textarea class="code" rows="8" spellcheck="false" value=${text} onInput=${(event) => (setText(event.target.value), setOutcome(null))}></textarea>
          <//>`}
      <div class="row">
        <${Button} tone=${checked ? "plain" : "main"} type="submit" busy=${busy} title="Checks the arguments and the policy. Nothing is called.">Check (dry run)<//>
        <${Button} tone=${checked ? "main" : "plain"} busy=${busy} disabled=${!checked || outcome.metadata.verdict === "deny"} title=${checked ? null : "Check the call first"} onClick=${call(false)}>Run<//>
        <${Button} tone="quiet" onClick=${text === null ? toJson : toForm}>${text === null ? "Edit as JSON" : "Edit in a form"}<//>
      </div>
    </form>
    <div role="status" aria-live="polite" class="stack">
      ${error ? html`<${Problem} error=${error} />` : null}
      ${outcome ? html`<${Outcome} outcome=${outcome} me=${me} onApproved=${call(false)} />` : null}
    </div>
    <${Snippets} tool=${tool} values=${given.arguments ?? {}} fields=${fields} me=${me} />
  </section>`;
}

/** Drops optional texts that were left empty: the form cannot tell them from arguments that are not set. */
function dropUnset({ arguments: values, errors }, fields, draft) {
  const isUnset = (field) => field.type === "string" && draft[field.name] === "";
  const missing = fields.filter((field) => isUnset(field) && field.required && !(field.schema.minLength === 0)).map((field) => [field.name, "Required."]);
  const kept = Object.entries(values).filter(([name]) => !fields.some((field) => field.name === name && isUnset(field)));
  return { arguments: Object.fromEntries(kept), errors: { ...errors, ...Object.fromEntries(missing) } };
}

const VERDICTS = { allow: ["good", "allowed"], ask: ["warn", "needs approval"], deny: ["bad", "denied"] };

function Outcome({ outcome, me, onApproved }) {
  if (outcome.dryRun && outcome.success) {
    const { verdict, rule, reason, arguments: exact } = outcome.metadata;
    const [tone, words] = VERDICTS[verdict];
    return html`<div class="stack">
      <p><${Badge} tone=${tone}>${words}<//> The arguments are valid. Policy: <${Bidi} text=${reason ?? ""} /> <span class="faint">(${rule})</span>. Nothing was called.</p>
      ${outcome.repairs.length ? html`<p>These arguments would be corrected:</p><${Diff} before=${outcome.asked} after=${exact} label="Arguments before and after correction" />` : null}
    </div>`;
  }
  if (outcome.pending_id) return html`<${Decide} key=${outcome.pending_id} id=${outcome.pending_id} me=${me} onDone=${(given) => given.stood && given.approval.decision === "approved" && onApproved()} />`;
  return html`<div class="stack">
    <p class="row"><${Badge} tone=${outcome.success ? "good" : "bad"}>${outcome.success ? "succeeded" : (outcome.error ?? "failed").replaceAll("_", " ")}<//>
      <${Duration} callId=${outcome.call_id} />
      <a href=${`#/live/${encodeURIComponent(outcome.call_id)}`}>Open in Live</a></p>
    ${outcome.parameter_errors.length ? html`<ul class="reasons">${outcome.parameter_errors.map((one) => html`<li><code>${escapeInvisible(one.parameter)}</code> <${Bidi} text=${one.message} /></li>`)}</ul>` : null}
    <${Bidi} text=${outcome.content || "The result is empty."} block=${true} class="result-text" />
  </div>`;
}

/** How long the call took, as in Live. */
function Duration({ callId }) {
  const { data } = useLoad(`/api/packets/${encodeURIComponent(callId)}`);
  const milliseconds = data?.line.milliseconds ?? null;
  return milliseconds === null ? null : html`<span class="faint">${formatDuration(milliseconds)}</span>`;
}

// Secrets are never part of copied text.
const SECRET_NAME = /pass(word|phrase|wd)?|secret|token|api.?key|credential|authorization|private.?key/i;
const isSecret = ({ name, schema }) => SECRET_NAME.test(name) || schema.writeOnly === true || schema.format === "password";

/** Returns {curl, cli, python}: the call as text. Keys and secrets are placeholders. */
export function buildSnippets({ key, values, secretNames = [], address, needsKey }) {
  const shown = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, secretNames.includes(name) ? `<${name}>` : value]));
  const json = JSON.stringify({ tool: key, arguments: shown });
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const header = needsKey ? ` \\\n  -H "Authorization: Bearer $FINGERPOST_KEY"` : "";
  const pythonHeaders = needsKey ? '{"content-type": "application/json", "authorization": f"Bearer {os.environ[\'FINGERPOST_KEY\']}"}' : '{"content-type": "application/json"}';
  return {
    curl: `curl -s ${address}/api/call -H 'content-type: application/json'${header} \\\n  -d ${quote(json)}`,
    cli: `fingerpost call ${/^[\w./-]+$/.test(key) ? key : quote(key)}${Object.keys(shown).length ? ` --args ${quote(JSON.stringify(shown))}` : ""}`,
    python: [
      needsKey ? "import json, os" : "import json",
      "from urllib.request import Request, urlopen",
      "",
      `call = {"tool": ${JSON.stringify(key)}, "arguments": ${toPython(shown)}}`,
      `headers = ${pythonHeaders}`,
      `with urlopen(Request("${address}/api/call", json.dumps(call).encode(), headers)) as response:`,
      `    print(json.load(response)["content"])`,
    ].join("\n"),
  };
}

function toPython(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(toPython).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${toPython(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

const SNIPPET_TABS = [
  { id: "curl", title: "curl" },
  { id: "cli", title: "Command line" },
  { id: "python", title: "Python" },
];

function Snippets({ tool, values, fields, me }) {
  const [tab, setTab] = useState("curl");
  const secretNames = fields.filter(isSecret).map((field) => field.name);
  const snippets = buildSnippets({ key: tool.key, values, secretNames, address: me.address ?? location.origin, needsKey: me.kind !== "local" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(snippets[tab]);
      toast("Copied", "good");
    } catch {
      toast("The browser did not allow copying. Select the text instead.", "bad");
    }
  };
  return html`<details class="snippets"><summary>This call as curl, command line and Python</summary>
    <${Tabs} tabs=${SNIPPET_TABS} current=${tab} onChange=${setTab} label="Formats" />
    <pre class="json" dir="ltr" tabindex="0" aria-label="Call as ${tab}">${escapeInvisible(snippets[tab])}</pre>
    <${Button} onClick=${copy}>Copy<//>
  </details>`;
}
