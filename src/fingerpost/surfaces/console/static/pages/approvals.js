// Approvals: what waits for a person, exactly as it would run, and the person's word on it.
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
  visible,
} from "../ui.js";
import { me as known, post } from "../api.js";
import { onApprovals } from "../live.js";
import { More, usePages } from "./paging.js";
import { ArgumentFields, Arguments, draftOf, fieldsOf, meaningOf, objectOf, secretNames } from "./arguments.js";

export const EFFECTS = {
  read: { tone: "info", words: "looks, changes nothing" },
  write: { tone: "warn", words: "changes something" },
  destroy: { tone: "bad", words: "may delete or overwrite; there may be no way back" },
};

const DECISIONS = {
  waiting: { tone: "warn", words: "waits" },
  approved: { tone: "good", words: "approved" },
  rejected: { tone: "bad", words: "rejected" },
  expired: { tone: "plain", words: "expired" },
};

// ---- the inbox -----------------------------------------------------------------------------------------

export default function Approvals({ params: [asked], me }) {
  const [tab, setTab] = useState("waiting");
  const pages = usePages("/api/approvals", { state: tab });
  const { items, error, reload } = pages;
  useFresh(reload);
  // The call that is open stays open until somebody moves on: not when a newer one arrives under the hand that
  // is about to approve, and not when it leaves the list.
  const [held, setHeld] = useState(null);
  useEffect(() => setHeld(null), [asked, tab]);
  const chosen = asked ?? held ?? items[0]?.pending_id ?? null;
  useEffect(() => {
    if (chosen && !asked) setHeld(chosen);
  }, [chosen, asked]);
  const card = useRef({});
  useKeys({
    j: () => move(items, chosen, 1),
    k: () => move(items, chosen, -1),
    a: () => card.current.approve?.(),
    r: () => card.current.reject?.(),
  });
  const turn = (to) => {
    setTab(to);
    location.hash = "#/approvals"; // what was open may not be in the other list
  };
  return html`<${Page} title="Approvals">
    <p class="lead">
      Calls that policy does not let through on its own wait here. Nothing runs until somebody says yes.
    </p>
    <${Tabs}
      label="Which approvals"
      tabs=${[
        { id: "waiting", title: "Waiting", badge: tab === "waiting" ? items.length : 0 },
        { id: "decided", title: "History" },
      ]}
      current=${tab}
      onChange=${turn}
    />
    ${error ? html`<${Problem} error=${error} onRetry=${reload} />` : null}
    ${pages.first && pages.loading && !chosen ? html`<${Skeleton} lines=${4} />` : null}
    ${!pages.first && !items.length && !chosen ? html`<${Nothing} tab=${tab} />` : null}
    ${chosen
      ? html`<div class=${asked ? "inbox opened" : "inbox"}>
          <div class="inbox-side"><${InboxList} items=${items} chosen=${chosen} /><${More} pages=${pages} /></div>
          <div class="inbox-open">
            <p class="inbox-back"><a href="#/approvals">All approvals</a></p>
            <${ApprovalCard} key=${chosen} id=${chosen} me=${me} keys=${card} onDone=${reload} />
          </div>
        </div>`
      : null}
    ${tab === "waiting" && items.length
      ? html`<p class="faint keys-hint">
          <kbd>j</kbd> <kbd>k</kbd> next and previous, <kbd>a</kbd> approve, <kbd>r</kbd> reject; each asks once more.
        </p>`
      : null}
  <//>`;
}

/** Read again when something may have been asked or decided, and when the person comes back. */
function useFresh(reload) {
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

function move(items, chosen, step) {
  if (!items.length) return;
  const here = items.findIndex((item) => item.pending_id === chosen);
  const to = Math.min(Math.max(here + step, 0), items.length - 1);
  location.hash = linkTo(items[to].pending_id);
}

const linkTo = (id) => `#/approvals/${encodeURIComponent(id)}`;

function InboxList({ items, chosen }) {
  if (!items.length) return html`<p class="faint">Nothing else is here.</p>`;
  return html`<ul class="inbox-list" aria-label="Approvals">
    ${items.map(
      (item) => html`<li key=${item.pending_id}>
        <a href=${linkTo(item.pending_id)} aria-current=${item.pending_id === chosen ? "true" : null}>
          <span class="inbox-line">
            <strong>${visible(item.title || item.tool)}</strong>
            <${EffectBadge} effect=${item.effect} />
          </span>
          <span class="inbox-request" dir="auto">
            ${item.packet?.prompt ? html`<${Bidi} text=${item.packet.prompt} />` : briefly(item.arguments)}
          </span>
          <span class="inbox-line faint">
            <span>${visible(item.caller ?? "somebody")}</span>
            ${item.decision === "waiting"
              ? html`<${Countdown} expires=${item.expires} />`
              : html`<${DecisionBadge} decision=${item.decision} />`}
          </span>
        </a>
      </li>`,
    )}
  </ul>`;
}

function briefly(value) {
  const text = visible(JSON.stringify(value ?? {}));
  return text.length > 90 ? `${text.slice(0, 90)}…` : text;
}

function Nothing({ tab }) {
  if (tab !== "waiting") {
    return html`<${Empty} title="Nothing was decided yet">
      Every decision is kept here, with who made it and why; those nobody made in time, too.
    <//>`;
  }
  return html`<${Empty}
    title="Nothing waits for you"
    action=${html`<a
      class="button"
      href=${`#/ask?request=${encodeURIComponent('write "hello" into the file "hello.txt"')}`}
      >Ask for something that writes</a
    >`}
  >
    A call that would change something stops here until a person approves it. This page fills by itself; there
    is nothing to reload.
  <//>`;
}

// ---- one approval --------------------------------------------------------------------------------------

/**
 * One waiting call and everything a person needs to decide it.
 * `onDone(answer)` hears the answer of a decision; `keys` lets the inbox's keys reach the buttons.
 */
export function ApprovalCard({ id, onDone, me, keys }) {
  const { data, error, loading, reload } = useLoad(`/api/approvals/${encodeURIComponent(id)}`, [id]);
  const [answer, setAnswer] = useState(null);
  const [asking, setAsking] = useState(null); // the dialog that is open: approve, reject, edit
  const [uncovered, setUncovered] = useState([]); // arguments that look like a secret and were shown
  const person = useStore(known).person;
  useFresh(reload);
  const approval = answer?.approval ?? data;
  const open = approval?.decision === "waiting";
  const secret = secretNames(approval?.looks_secret);
  const look = {
    secret,
    // What is masked here cannot be shown; who may decide reads everything, and only then decides.
    covered: open && approval.may_decide ? secret.filter((name) => !uncovered.includes(name)) : [],
    onUncover: (name) => setUncovered([...uncovered, name]),
  };
  if (keys) keys.current = open ? keysOf(approval, me ?? person, setAsking) : {};

  const done = (given) => {
    setAsking(null);
    setAnswer(given);
    if (given.stood) toast(given.approval.decision === "approved" ? "Approved" : "Rejected", "good");
    onDone?.(given);
  };
  if (error && !approval) return html`<${Problem} error=${error} onRetry=${reload} />`;
  if (!approval) return loading ? html`<${Skeleton} lines=${6} />` : null;
  return html`<article class="approval" aria-label=${`Approval of ${approval.tool}`}>
    <header>
      <h2>${visible(approval.title || approval.tool)}</h2>
      <code class="faint">${approval.tool}</code>
      ${open
        ? html`<span class="approval-clock">
            runs out in <${Countdown} expires=${approval.expires} onEnd=${reload} />
          </span>`
        : html`<${DecisionBadge} decision=${approval.decision} />`}
    </header>
    <${Standing} approval=${approval} answer=${answer} />
    ${open && approval.outdated
      ? html`<p class="notice">The tool changed since this was asked. Approved, it will be asked about once more.</p>`
      : null}
    <${Facts}
      rows=${[
        ["Effect", html`<${EffectBadge} effect=${approval.effect} /> ${EFFECTS[approval.effect]?.words}`],
        ["Why it asks", html`<${Bidi} text=${approval.reason} />${approval.rule ? html` <${Code}>${approval.rule}<//>` : null}`],
        ["Asked by", html`<${Bidi} text=${approval.caller ?? "not known"} />, <${Time} at=${approval.created} />`],
        ["In the request", approval.packet_id ? html`<${Request} approval=${approval} />` : null],
      ]}
    />
    <${ExactCall} approval=${approval} look=${look} />
    ${approval.definition_change &&
    html`<section class="change">
      <h3>The tool's definition changed since it was trusted</h3>
      <${Diff} ...${changeOf(approval.definition_change)} />
    </section>`}
    ${open && html`<${Actions} approval=${approval} look=${look} me=${me ?? person} onAsk=${setAsking} onDone=${done} />`}
    ${open && asking === "approve" && html`<${Confirm} approval=${approval} look=${look} onDone=${done} onClose=${() => setAsking(null)} />`}
    ${open && asking === "reject" && html`<${Reject} approval=${approval} onDone=${done} onClose=${() => setAsking(null)} />`}
    ${open && asking === "edit" && html`<${Edit} approval=${approval} onDone=${done} onClose=${() => setAsking(null)} />`}
  </article>`;
}

/** What the inbox's keys open: nothing that would be refused. */
function keysOf(approval, person, ask) {
  if (person?.rights && !person.rights.includes("approve")) return {};
  const approve = approval.may_decide === false ? undefined : () => ask("approve");
  return { approve, reject: () => ask("reject") };
}

export const changeOf = (change) => ({ before: change.before, after: change.after, lines: change.diff });

function Request({ approval }) {
  return html`<a href=${`#/live/${encodeURIComponent(approval.packet_id)}`}>
    ${approval.packet?.prompt ? html`<${Bidi} text=${approval.packet.prompt} />` : approval.packet_id}
  </a>`;
}

function ExactCall({ approval, look }) {
  const edited = approval.edited_arguments;
  return html`<section>
    <h3>${edited ? "The call as it was approved" : "The exact call"}</h3>
    <${Arguments}
      value=${edited ?? approval.arguments}
      before=${edited ? approval.arguments : null}
      schema=${approval.arguments_schema}
      ...${look}
    />
    ${look.covered.length
      ? null
      : html`<details>
          <summary>As JSON</summary>
          <${Json} value=${{ tool: approval.tool, arguments: edited ?? approval.arguments }} />
        </details>`}
  </section>`;
}

/** Who decided what, and whether the decision just made here is the one that counts. */
function Standing({ approval, answer }) {
  if (approval.decision === "waiting") return null;
  if (approval.decision === "expired") {
    return html`<p class="standing" role="status">
      Nobody decided in time, so it did not run. Whoever asked can ask again.
    </p>`;
  }
  const late = answer && !answer.stood;
  return html`<p class="standing" role="status">
    ${late && html`<strong>Somebody was quicker: your decision changes nothing. </strong>`}
    ${capital(approval.decision)} by <strong>${visible(approval.decided_by ?? "somebody")}</strong>
    ${approval.decided_at && html` <${Time} at=${approval.decided_at} />`}${approval.decision_reason &&
    html`: <q><${Bidi} text=${approval.decision_reason} /></q>`}.
    ${answer?.stood && answer.note && html` ${answer.note}`}
    ${answer?.stood && answer.resumed && html` The request goes on.`}
  </p>`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// ---- deciding ------------------------------------------------------------------------------------------

function decide(approval, word, body) {
  return post(`/api/approvals/${encodeURIComponent(approval.pending_id)}/${word}`, body);
}

/** `send(word, body)` with a busy flag and the problem, if there was one. */
function useDecision(approval, onDone) {
  const [busy, setBusy] = useState(null);
  const [error, setError] = useState(null);
  const send = async (word, body = {}, label = word) => {
    setBusy(label);
    setError(null);
    try {
      onDone(await decide(approval, word, body));
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(null);
    }
  };
  return { busy, error, send };
}

const COVERED = "Show what looks like a secret first: it is part of what would run.";

function Actions({ approval, look, me, onAsk, onDone }) {
  const { busy, error, send } = useDecision(approval, onDone);
  if (me?.rights && !me.rights.includes("approve")) {
    return me.kind === "local"
      ? html`<p class="notice">You can read this. To decide, sign in: run <code>fingerpost console</code> on this machine and
          open the link it prints. A tool can open this address, too; that link it cannot have.</p>`
      : html`<p class="notice">You can read this, but not decide it: that takes a key with the right “approve”.</p>`;
  }
  const unread = look.covered.length > 0;
  const barred = approval.may_decide === false; // by whoever asked for it; they may still take it back
  return html`${barred ? html`<p class="notice"><${Bidi} text=${approval.why_not ?? "You may not approve this one."} /></p>` : null}
    <div class="approval-actions">
      ${barred
        ? null
        : html`<${Button} tone="main" busy=${busy === "once"} disabled=${unread} title=${unread ? COVERED : null} onClick=${() => send("approve", {}, "once")}>Approve once<//>
            ${approval.conversation_target
              ? html`<${Button} busy=${busy === "conversation"} disabled=${unread} title=${widened(approval)} onClick=${() => send("approve", { for_conversation: true }, "conversation")}>
                  Approve for this conversation
                <//>`
              : null}
            <${Button} onClick=${() => onAsk("edit")}>Edit arguments…<//>`}
      <${Button} tone="bad" onClick=${() => onAsk("reject")}>Reject…<//>
      ${error ? html`<${Problem} error=${error} />` : null}
    </div>
    ${unread && !barred ? html`<p class="notice">${COVERED}</p>` : null}`;
}

/** Which further calls an approval for the conversation covers. */
function widened({ tool, arguments: given, conversation_target: same }) {
  const all = same.length === Object.keys(given).length;
  return all ? `Also the same call of ${tool} again` : `Also further calls of ${tool} with the same ${same.join(", ")}`;
}

function Confirm({ approval, look, onDone, onClose }) {
  const { busy, error, send } = useDecision(approval, onDone);
  return html`<${Dialog} title="Approve this call?" onClose=${onClose}>
    <p><code>${approval.tool}</code> ${EFFECTS[approval.effect]?.words}.</p>
    <${Arguments} value=${approval.arguments} schema=${approval.arguments_schema} ...${look} />
    ${error && html`<${Problem} error=${error} />`}
    <div class="dialog-actions">
      <${Button} tone="main" busy=${busy} disabled=${look.covered.length > 0} autofocus onClick=${() => send("approve")}>Approve once<//>
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
      <${Field} label="Reason" hint="Whoever asked reads it, a model too. It may be empty.">
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
  const fields = useMemo(() => fieldsOf(approval.arguments_schema, approval.arguments), [approval]);
  const [draft, setDraft] = useState(() => draftOf(fields, approval.arguments));
  const [text, setText] = useState(null); // not null: everything is edited as one piece of JSON
  const { busy, error, send } = useDecision(approval, onDone);
  const meant = text === null ? meaningOf(fields, draft) : objectOf(text);
  const wrong = meant.error || (meant.errors && Object.keys(meant.errors).length > 0);
  const same = !wrong && JSON.stringify(meant.arguments) === JSON.stringify(approval.arguments);

  const submit = (event) => {
    event.preventDefault();
    if (!wrong) send("approve", same ? {} : { arguments: meant.arguments });
  };
  const toJson = () => setText(JSON.stringify(wrong ? approval.arguments : meant.arguments, null, 2));
  const toForm = () => {
    if (!wrong) setDraft(draftOf(fields, meant.arguments));
    setText(null);
  };
  return html`<${Dialog} title="Edit the arguments, then approve" onClose=${onClose}>
    <form onSubmit=${submit} class="edit-arguments">
      <p class="faint">The call runs once with what stands here. It is checked against the tool’s schema first.</p>
      ${text === null
        ? html`<${ArgumentFields}
            fields=${fields}
            draft=${draft}
            errors=${meant.errors}
            secret=${secretNames(approval.looks_secret)}
            onDraft=${(name, value) => setDraft((before) => ({ ...before, [name]: value }))}
          />`
        : html`<${Field} label="Arguments as JSON" error=${meant.error}>
            <textarea class="code" rows="12" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
          <//>`}
      <div class="dialog-actions">
        <${Button} tone="main" type="submit" busy=${busy} disabled=${Boolean(wrong)}>
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

// ---- small parts ---------------------------------------------------------------------------------------

export function EffectBadge({ effect }) {
  return html`<${Badge} tone=${EFFECTS[effect]?.tone ?? "plain"}>${effect ?? "not known"}<//>`;
}

export function DecisionBadge({ decision }) {
  return html`<${Badge} tone=${DECISIONS[decision]?.tone ?? "plain"}>${DECISIONS[decision]?.words ?? decision}<//>`;
}

/** How long it still waits, counted down; `onEnd` is called once when the time is over. */
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
    >${over ? "run out" : remaining(left)}</span
  >`;
}

/** Seconds as "2 h 05 min", "4 min 09 s", "41 s". */
export function remaining(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (whole >= 86_400) return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${whole} s`;
}
