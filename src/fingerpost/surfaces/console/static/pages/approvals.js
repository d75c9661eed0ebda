// Approvals: waiting calls exactly as they would run, and the decisions about them.
import {
  Badge,
  Bidi,
  Button,
  Code,
  Dialog,
  Diff,
  Empty,
  Facts,
  Field,
  Json,
  Page,
  Problem,
  Skeleton,
  Tabs,
  Time,
  html,
  toast,
  useEffect,
  useKeys,
  useLoad,
  useMemo,
  useRef,
  useState,
  useStore,
  escapeInvisible,
} from "../ui.js";
import { me as meStore, post } from "../api.js";
import { useExamples } from "../examples.js";
import { describeRuling } from "../journey/call.js";
import { onApprovals } from "../live.js";
import { More, usePages } from "./paging.js";
import { ArgumentFields, Arguments, buildDraft, buildFields, parseDraft, parseObject, getSecretNames } from "./arguments.js";

export const EFFECTS = {
  read: { tone: "info", label: "read", words: "Read-only" },
  write: { tone: "warn", label: "write", words: "Changes data" },
  destroy: { tone: "bad", label: "destructive", words: "Can overwrite or delete data" },
};

const DECISIONS = {
  waiting: { tone: "warn", words: "waiting" },
  approved: { tone: "good", words: "approved" },
  rejected: { tone: "bad", words: "rejected" },
  expired: { tone: "plain", words: "expired" },
};

export default function Approvals({ params: [requestedId], me }) {
  const [tab, setTab] = useState("waiting");
  const pages = usePages("/api/approvals", { state: tab });
  const { items, error, reload } = pages;
  useReloadOnChange(reload);
  // The open call stays open until the user selects another: a newer call must not replace it just before a click,
  // and it also stays when it leaves the list.
  const [openId, setOpenId] = useState(null);
  useEffect(() => setOpenId(null), [requestedId, tab]);
  const selectedId = requestedId ?? openId ?? items[0]?.pending_id ?? null;
  useEffect(() => {
    if (selectedId && !requestedId) setOpenId(selectedId);
  }, [selectedId, requestedId]);
  const card = useRef({});
  useKeys({
    j: () => selectNeighbour(items, selectedId, 1),
    k: () => selectNeighbour(items, selectedId, -1),
    a: () => card.current.approve?.(),
    r: () => card.current.reject?.(),
  });
  const switchTab = (to) => {
    setTab(to);
    location.hash = "#/approvals"; // the open call may not be in the other list
  };
  return html`<${Page} title="Approvals">
    <p class="lead">
      Calls that need approval. Nothing here runs until a person approves it.
    </p>
    <${Tabs}
      label="Which approvals"
      tabs=${[
        { id: "waiting", title: "Waiting", badge: tab === "waiting" ? items.length : 0 },
        { id: "decided", title: "History" },
      ]}
      current=${tab}
      onChange=${switchTab}
    />
    ${error ? html`<${Problem} error=${error} onRetry=${reload} />` : null}
    ${pages.first && pages.loading && !selectedId ? html`<${Skeleton} lines=${4} />` : null}
    ${!pages.first && !items.length && !selectedId ? html`<${EmptyInbox} tab=${tab} />` : null}
    ${selectedId
      ? html`<div class=${requestedId ? "inbox opened" : "inbox"}>
          <div class="inbox-side"><${InboxList} items=${items} selectedId=${selectedId} /><${More} pages=${pages} /></div>
          <div class="inbox-open">
            <p class="inbox-back"><a href="#/approvals">All approvals</a></p>
            <${ApprovalCard} key=${selectedId} id=${selectedId} me=${me} keys=${card} onDone=${reload} />
          </div>
        </div>`
      : null}
    ${tab === "waiting" && items.length
      ? html`<p class="faint keys-hint">
          <kbd>j</kbd> <kbd>k</kbd> next and previous, <kbd>a</kbd> approve, <kbd>r</kbd> reject; both ask for confirmation.
        </p>`
      : null}
  <//>`;
}

/** Reloads when approvals may have changed, and when the window gets the focus. */
function useReloadOnChange(reload) {
  const newest = useRef(reload);
  newest.current = reload;
  useEffect(() => {
    const again = () => newest.current();
    const stop = onApprovals(again);
    window.addEventListener("focus", again);
    return () => {
      stop();
      window.removeEventListener("focus", again);
    };
  }, []);
}

function selectNeighbour(items, selectedId, step) {
  if (!items.length) return;
  const here = items.findIndex((item) => item.pending_id === selectedId);
  const to = Math.min(Math.max(here + step, 0), items.length - 1);
  location.hash = buildLink(items[to].pending_id);
}

const buildLink = (id) => `#/approvals/${encodeURIComponent(id)}`;

function InboxList({ items, selectedId }) {
  if (!items.length) return html`<p class="faint">No other calls.</p>`;
  return html`<ul class="inbox-list" aria-label="Approvals">
    ${items.map(
      (item) => html`<li key=${item.pending_id}>
        <a href=${buildLink(item.pending_id)} aria-current=${item.pending_id === selectedId ? "true" : null}>
          <span class="inbox-line">
            <strong>${escapeInvisible(item.title || item.tool)}</strong>
            <${EffectBadge} effect=${item.effect} />
          </span>
          <span class="inbox-request" dir="auto">
            ${item.packet?.prompt ? html`<${Bidi} text=${item.packet.prompt} />` : summarizeArguments(item.arguments)}
          </span>
          <span class="inbox-line faint">
            <span>${escapeInvisible(item.caller ?? "unknown caller")}</span>
            ${item.decision === "waiting"
              ? html`<${Countdown} expires=${item.expires} />`
              : html`<${DecisionBadge} decision=${item.decision} />`}
          </span>
        </a>
      </li>`,
    )}
  </ul>`;
}

function summarizeArguments(value) {
  const text = escapeInvisible(JSON.stringify(value ?? {}));
  return text.length > 90 ? `${text.slice(0, 90)}…` : text;
}

const ORIGINS = {
  person: "in the person's words",
  plain: "a fixed value",
  trusted: "from a trusted source",
  untrusted: "from untrusted content",
  unknown: "not in the person's words, and not found in a result",
};

/** Where each value of the call comes from. */
function Origins({ origins }) {
  return html`<ul class="plain">
    ${origins.slice(0, 12).map(
      (one) => html`<li>
        <${Code}>${one.path}<//> ${ORIGINS[one.origin]}${one.tool ? html` of <${Code}>${one.tool}<//>` : null}
        ${one.excerpt ? html`: <q>…<${Bidi} text=${one.excerpt} />…</q>` : null}
      </li>`,
    )}
  </ul>`;
}

function EmptyInbox({ tab }) {
  const example = useExamples().find((one) => one.writes);
  if (tab !== "waiting") {
    return html`<${Empty} title="No decisions yet">
      Decisions are listed here with who made them and why. So are calls that expired.
    <//>`;
  }
  return html`<${Empty}
    title="No calls are waiting"
    action=${example ? html`<a class="button" href=${`#/ask?request=${encodeURIComponent(example.text)}`}>Try “${example.text}”</a>` : null}
  >
    A call that would change something waits here until a person approves it. The page updates itself.
  <//>`;
}

/**
 * One waiting call and everything a person needs to decide it.
 * `onDone(answer)` gets the response of a decision; `keys` connects the inbox's shortcuts with the buttons.
 * `short`: within the request itself, which shows the rest.
 */
export function ApprovalCard({ id, onDone, me, keys, short = false }) {
  const { data, error, loading, reload } = useLoad(`/api/approvals/${encodeURIComponent(id)}`, [id]);
  const [answer, setAnswer] = useState(null);
  const [asking, setAsking] = useState(null); // the open dialog: approve, reject, edit
  const [uncovered, setUncovered] = useState([]); // arguments that look secret and were revealed
  const person = useStore(meStore).person;
  useReloadOnChange(reload);
  const approval = answer?.approval ?? data;
  const open = approval?.decision === "waiting";
  const secret = getSecretNames(approval?.looks_secret);
  const secrets = {
    secret,
    // Masked values cannot be revealed. Users who may decide must reveal everything first.
    covered: open && approval.may_decide ? secret.filter((name) => !uncovered.includes(name)) : [],
    onUncover: (name) => setUncovered([...uncovered, name]),
  };
  if (keys) keys.current = open ? getKeyActions(approval, me ?? person, setAsking) : {};

  const handleDone = (given) => {
    setAsking(null);
    setAnswer(given);
    if (given.stood) toast(given.approval.decision === "approved" ? "Approved" : "Rejected", "good");
    onDone?.(given);
  };
  if (error && !approval) return html`<${Problem} error=${error} onRetry=${reload} />`;
  if (!approval) return loading ? html`<${Skeleton} lines=${6} />` : null;
  const words = EFFECTS[approval.effect]?.words;
  return html`<article class="approval ${short ? "short" : ""}" aria-label=${`Approval of ${approval.tool}`}>
    <header>
      ${short
        ? html`<h3><${Code}>${approval.tool}<//> ${open ? "needs your approval" : ""}</h3> <${EffectBadge} effect=${approval.effect} />`
        : html`<h2>${escapeInvisible(approval.title || approval.tool)}</h2> <${Code}>${approval.tool}<//>`}
      ${open
        ? html`<span class="approval-clock">
            expires in <${Countdown} expires=${approval.expires} onEnd=${reload} />
          </span>`
        : html`<${DecisionBadge} decision=${approval.decision} />`}
    </header>
    <${DecisionStatus} approval=${approval} answer=${answer} />
    ${open && approval.outdated
      ? html`<p class="notice">The tool's definition changed since this call was made. If you approve it, you will be asked again.</p>`
      : null}
    <${Facts}
      rows=${[
        ["Effect", short ? null : html`<${EffectBadge} effect=${approval.effect} /> ${words}`],
        ["Reason", html`<${Bidi} text=${describeRuling(approval)} />`],
        ["Values", approval.origins?.length ? html`<${Origins} origins=${approval.origins} />` : null],
        ["Called by", short ? null : html`<${Bidi} text=${approval.caller ?? "unknown"} />, <${Time} at=${approval.created} />`],
        ["Request", approval.packet_id && !short ? html`<${Request} approval=${approval} />` : null],
      ]}
    />
    <${ExactCall} approval=${approval} secrets=${secrets} />
    ${approval.definition_change &&
    html`<section class="change">
      <h3>The tool's definition changed since it was trusted</h3>
      <${Diff} ...${getDiffProps(approval.definition_change)} />
    </section>`}
    ${open && html`<${Actions} approval=${approval} secrets=${secrets} me=${me ?? person} short=${short} onAsk=${setAsking} onDone=${handleDone} />`}
    ${open && asking === "approve" && html`<${Confirm} approval=${approval} secrets=${secrets} onDone=${handleDone} onClose=${() => setAsking(null)} />`}
    ${open && asking === "reject" && html`<${Reject} approval=${approval} onDone=${handleDone} onClose=${() => setAsking(null)} />`}
    ${open && asking === "edit" && html`<${Edit} approval=${approval} onDone=${handleDone} onClose=${() => setAsking(null)} />`}
  </article>`;
}

/** Returns the actions of the inbox's shortcuts, without those that would be refused. */
function getKeyActions(approval, person, ask) {
  if (person?.rights && !person.rights.includes("approve")) return {};
  const approve = approval.may_decide === false ? undefined : () => ask("approve");
  return { approve, reject: () => ask("reject") };
}

export const getDiffProps = (change) => ({ before: change.before, after: change.after, lines: change.diff });

function Request({ approval }) {
  return html`<a href=${`#/live/${encodeURIComponent(approval.packet_id)}`}>
    ${approval.packet?.prompt ? html`<${Bidi} text=${approval.packet.prompt} />` : approval.packet_id}
  </a>`;
}

function ExactCall({ approval, secrets }) {
  const edited = approval.edited_arguments;
  return html`<section>
    <h3>${edited ? "Approved call" : "Arguments"}</h3>
    <${Arguments}
      value=${edited ?? approval.arguments}
      before=${edited ? approval.arguments : null}
      schema=${approval.arguments_schema}
      ...${secrets}
    />
    ${secrets.covered.length
      ? null
      : html`<details>
          <summary>As JSON</summary>
          <${Json} value=${{ tool: approval.tool, arguments: edited ?? approval.arguments }} />
        </details>`}
  </section>`;
}

/** Shows who decided, and whether the decision made here counts. */
function DecisionStatus({ approval, answer }) {
  if (approval.decision === "waiting") return null;
  if (approval.decision === "expired") {
    return html`<p class="standing" role="status">
      It expired without a decision, so it did not run. The caller can make the call again.
    </p>`;
  }
  const late = answer && !answer.stood;
  return html`<p class="standing" role="status">
    ${late && html`<strong>It was already decided; your decision has no effect. </strong>`}
    ${capitalize(approval.decision)} by <strong>${escapeInvisible(approval.decided_by ?? "unknown person")}</strong>
    ${approval.decided_at && html` <${Time} at=${approval.decided_at} />`}${approval.decision_reason &&
    html`: <q><${Bidi} text=${approval.decision_reason} /></q>`}.
    ${answer?.stood && answer.note && html` ${answer.note}`}
    ${answer?.stood && answer.resumed && (approval.decision === "rejected" ? " The request goes on without it." : " The request continues.")}
  </p>`;
}

const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function decide(approval, action, body) {
  return post(`/api/approvals/${encodeURIComponent(approval.pending_id)}/${action}`, body);
}

/** Returns `send(action, body)` with a busy flag and the error, if any. */
function useDecision(approval, onDone) {
  const [busy, setBusy] = useState(null);
  const [error, setError] = useState(null);
  const send = async (action, body = {}, label = action) => {
    setBusy(label);
    setError(null);
    try {
      onDone(await decide(approval, action, body));
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(null);
    }
  };
  return { busy, error, send };
}

const UNREAD_HINT = "Show the hidden argument first: it is part of the call.";

function Actions({ approval, secrets, me, short, onAsk, onDone }) {
  const { busy, error, send } = useDecision(approval, onDone);
  if (me?.rights && !me.rights.includes("approve")) {
    return me.kind === "local"
      ? html`<p class="notice">To decide, sign in: run <code>fingerpost console</code> on this machine and open the link it
          prints. (Tools can open this address, too, so looking needs no sign-in and deciding does.)</p>`
      : html`<p class="notice">You cannot decide this: your key does not have the right “approve”.</p>`;
  }
  const hasUnread = secrets.covered.length > 0;
  const mayNotApprove = approval.may_decide === false; // the caller itself: it may only reject
  return html`${mayNotApprove ? html`<p class="notice"><${Bidi} text=${approval.why_not ?? "You cannot approve this call."} /></p>` : null}
    <div class="approval-actions">
      ${mayNotApprove
        ? null
        : html`<${Button} tone="main" busy=${busy === "once"} disabled=${hasUnread} title=${hasUnread ? UNREAD_HINT : null} onClick=${() => send("approve", {}, "once")}>${short ? "Approve" : "Approve once"}<//>
            ${approval.conversation_target
              ? html`<${Button} busy=${busy === "conversation"} disabled=${hasUnread} title=${describeCoverage(approval)} onClick=${() => send("approve", { for_conversation: true }, "conversation")}>
                  Approve for this conversation
                <//>`
              : null}
            ${approval.may_mark_read_only
              ? html`<${Button} busy=${busy === "reads"} disabled=${hasUnread} title=${`Calls of ${approval.tool} need no approval any more, until its definition changes`} onClick=${() => send("approve", { only_reads: true }, "reads")}>
                  Approve and mark the tool as read-only
                <//>`
              : null}
            <${Button} onClick=${() => onAsk("edit")}>Edit arguments…<//>`}
      <${Button} tone="bad" onClick=${() => onAsk("reject")}>${short ? "Reject" : "Reject…"}<//>
      ${error ? html`<${Problem} error=${error} />` : null}
    </div>
    ${hasUnread && !mayNotApprove ? html`<p class="notice">${UNREAD_HINT}</p>` : null}`;
}

/** Describes which further calls an approval for the conversation covers. */
function describeCoverage({ tool, arguments: given, conversation_target: same }) {
  const all = same.length === Object.keys(given).length;
  return all ? `Also the same call of ${tool} again` : `Also further calls of ${tool} with the same ${same.join(", ")}`;
}

function Confirm({ approval, secrets, onDone, onClose }) {
  const { busy, error, send } = useDecision(approval, onDone);
  return html`<${Dialog} title="Approve this call?" onClose=${onClose}>
    <p><code>${approval.tool}</code> <${EffectBadge} effect=${approval.effect} /></p>
    <${Arguments} value=${approval.arguments} schema=${approval.arguments_schema} ...${secrets} />
    ${error && html`<${Problem} error=${error} />`}
    <div class="dialog-actions">
      <${Button} tone="main" busy=${busy} disabled=${secrets.covered.length > 0} autofocus onClick=${() => send("approve")}>Approve once<//>
      <${Button} onClick=${onClose}>Not yet<//>
    </div>
  <//>`;
}

function Reject({ approval, onDone, onClose }) {
  const [reason, setReason] = useState("");
  const { busy, error, send } = useDecision(approval, onDone);
  const submit = (event) => {
    event.preventDefault();
    send("reject", reason.trim() ? { reason: reason.trim() } : {});
  };
  return html`<${Dialog} title="Reject this call" onClose=${onClose}>
    <form onSubmit=${submit}>
      <${Field} label="Reason" hint="Optional. The caller reads it; so does the model.">
        <textarea dir="auto" rows="2" maxlength="500" value=${reason} onInput=${(event) => setReason(event.target.value)}></textarea>
      <//>
      ${error && html`<${Problem} error=${error} />`}
      <div class="dialog-actions">
        <${Button} tone="bad" type="submit" busy=${busy}>Reject<//>
        <${Button} onClick=${onClose}>Cancel<//>
      </div>
    </form>
  <//>`;
}

function Edit({ approval, onDone, onClose }) {
  const fields = useMemo(() => buildFields(approval.arguments_schema, approval.arguments), [approval]);
  const [draft, setDraft] = useState(() => buildDraft(fields, approval.arguments));
  const [text, setText] = useState(null); // not null: arguments are edited as JSON
  const { busy, error, send } = useDecision(approval, onDone);
  const edited = text === null ? parseDraft(fields, draft) : parseObject(text);
  const isInvalid = edited.error || (edited.errors && Object.keys(edited.errors).length > 0);
  const same = !isInvalid && JSON.stringify(edited.arguments) === JSON.stringify(approval.arguments);

  const submit = (event) => {
    event.preventDefault();
    if (!isInvalid) send("approve", same ? {} : { arguments: edited.arguments });
  };
  const toJson = () => setText(JSON.stringify(isInvalid ? approval.arguments : edited.arguments, null, 2));
  const toForm = () => {
    if (!isInvalid) setDraft(buildDraft(fields, edited.arguments));
    setText(null);
  };
  return html`<${Dialog} title="Edit the arguments, then approve" onClose=${onClose}>
    <form onSubmit=${submit} class="edit-arguments">
      <p class="faint">The call runs once with these arguments. They are checked against the tool’s schema first.</p>
      ${text === null
        ? html`<${ArgumentFields}
            fields=${fields}
            draft=${draft}
            errors=${edited.errors}
            secret=${getSecretNames(approval.looks_secret)}
            onDraft=${(name, value) => setDraft((before) => ({ ...before, [name]: value }))}
          />`
        : html`<${Field} label="Arguments as JSON" error=${edited.error}>
            <textarea class="code" rows="12" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
          <//>`}
      <div class="dialog-actions">
        <${Button} tone="main" type="submit" busy=${busy} disabled=${Boolean(isInvalid)}>
          ${same ? "Approve unchanged" : "Approve with these arguments"}
        <//>
        <${Button} onClick=${text === null ? toJson : toForm}>
          ${text === null ? "Edit as JSON" : "Edit in a form"}
        <//>
        <${Button} onClick=${onClose}>Cancel<//>
      </div>
    </form>
  <//>`;
}

export function EffectBadge({ effect }) {
  return html`<${Badge} tone=${EFFECTS[effect]?.tone ?? "plain"} title=${EFFECTS[effect]?.words}>${EFFECTS[effect]?.label ?? effect ?? "unknown"}<//>`;
}

export function DecisionBadge({ decision }) {
  return html`<${Badge} tone=${DECISIONS[decision]?.tone ?? "plain"}>${DECISIONS[decision]?.words ?? decision}<//>`;
}

/** The remaining time as a countdown. `onEnd` is called once at the end. */
export function Countdown({ expires, onEnd }) {
  const [now, setNow] = useState(Date.now());
  const end = new Date(expires).getTime();
  const over = end <= now;
  useEffect(() => {
    if (over) {
      onEnd?.();
      return undefined;
    }
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [over]);
  const left = (end - now) / 1000;
  return html`<span class=${`countdown${left < 60 ? " soon" : ""}`} title=${new Date(expires).toLocaleString()}
    >${over ? "expired" : formatRemaining(left)}</span
  >`;
}

/** Formats seconds as "2 h 05 min", "4 min 09 s", "41 s". */
export function formatRemaining(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (whole >= 86_400) return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${whole} s`;
}
