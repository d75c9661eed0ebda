// Feedback about a request: whether the tool was right, and which one would have been.
import { Bidi, Button, Chip, Field, Problem, html, toast, useLoad, useState } from "./ui.js";
import { post } from "./api.js";
import { useAction } from "./pages/paging.js";

/** Returns the candidate tools of a request, best first, each once. */
export function listCandidateTools(journey) {
  const lists = journey.sections.filter((section) => section.type === "shortlist");
  const found = lists.flatMap((section) => section.shortlist.candidates.map((candidate) => candidate.tool));
  return [...new Set(found)];
}

export function Feedback({ journey, me }) {
  const packet = journey.events[0]?.packet_id ?? null;
  const path = packet && !journey.request.bare && me?.rights?.includes("use") ? `/api/packets/${packet}/feedback` : null;
  const { data, reload } = useLoad(path);
  const [wrong, setWrong] = useState(false);
  const { busy, error, run } = useAction();
  if (!path || !data) return null;
  const ownVerdict = data.items.find((item) => item.by === me.name)?.verdict ?? null;
  const sendFeedback = async (body) => {
    if ((await run(() => post(path, body))) === undefined) return;
    setWrong(false);
    toast(data.counts ? "Thank you. Routing uses it from now on." : "Thank you. It is stored; learning from feedback is off.", "good");
    await reload();
  };
  const question = journey.calls.length ? "Was this the right tool?" : "Was this right?";
  return html`<section class="panel stack" aria-label=${question}>
    <div class="row">
      <strong>${question}</strong>
      <${Chip} on=${ownVerdict === "good"} onClick=${() => sendFeedback({ verdict: "good" })}>Yes<//>
      <${Chip} on=${ownVerdict === "bad" || wrong} onClick=${() => setWrong(!wrong)}>No…<//>
    </div>
    ${error && !wrong ? html`<${Problem} error=${error} />` : null}
    ${wrong ? html`<${Correction} tools=${listCandidateTools(journey)} busy=${busy} error=${error} onSend=${sendFeedback} />` : null}
    <${FeedbackList} items=${data.items} counts=${data.counts} />
  </section>`;
}

function Correction({ tools, busy, error, onSend }) {
  const [tool, setTool] = useState("");
  const [comment, setComment] = useState("");
  const submit = (event) => {
    event.preventDefault();
    const correctTool = tool.trim();
    onSend({ verdict: "bad", comment: comment.trim(), ...(correctTool ? { should_have: correctTool } : {}) });
  };
  return html`<form class="stack" onSubmit=${submit}>
    <datalist id="feedback-tools">${tools.map((key) => html`<option key=${key} value=${key} />`)}</datalist>
    <${Field} label="Should have used" hint="A tool by its key or name. Optional.">
      <input type="text" list="feedback-tools" autocomplete="off" maxlength="500" value=${tool} onInput=${(event) => setTool(event.target.value)} />
    <//>
    <${Field} label="Why" hint="Optional. Stored with the feedback.">
      <input type="text" dir="auto" maxlength="1000" value=${comment} onInput=${(event) => setComment(event.target.value)} />
    <//>
    ${error ? html`<${Problem} error=${error} />` : null}
    <div class="row"><${Button} tone="main" type="submit" busy=${busy}>Send feedback<//></div>
  </form>`;
}

function FeedbackList({ items, counts }) {
  if (!items.length) return null;
  return html`<ul class="faint">
      ${items.map(
        (item) => html`<li key=${item.by}>
          <${Bidi} text=${item.by} />: ${item.verdict === "good" ? "right" : "wrong"}${item.tool ? ` (${item.tool})` : ""}${item.should_have ? `, should have used ${item.should_have}` : ""}
          ${item.comment ? html` — <${Bidi} text=${item.comment} />` : null}
        </li>`,
      )}
    </ul>
    ${counts ? null : html`<p class="faint">Stored but not used: flags.learn_from_feedback is off.</p>`}`;
}
