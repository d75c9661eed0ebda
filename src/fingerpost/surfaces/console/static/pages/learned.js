// What was learned from use and feedback, on the Insight page. See docs/concepts/learning.md.
import { Badge, Button, Problem, Table, html, toast, useLoad, useStore } from "../ui.js";
import { me as meStore, post } from "../api.js";
import { Chart } from "../charts.js";
import { describeTopic } from "../journey/sections.js";
import { useAction } from "./paging.js";

const FLAGS = {
  learned_use: "Learning from use",
  learn_from_feedback: "Learning from feedback",
  decision_cache: "Cached decisions",
  preferences: "Preferences",
  adaptive_thresholds: "Adaptive thresholds",
};

export function Learned() {
  const { data, error, reload } = useLoad("/api/learned");
  const { person } = useStore(meStore);
  if (error) return html`<${Problem} error=${error} onRetry=${reload} />`;
  if (!data) return null;
  return html`<${Chart} title="Learning" note="from use and from feedback">
    <div class="stack">
      <p class="row">
        ${Object.entries(data.flags).map(([name, on]) => html`<${Badge} key=${name} tone=${on ? "good" : "plain"} title=${`flags.${name}`}>${FLAGS[name] ?? name}: ${on ? "on" : "off"}<//>`)}
      </p>
      <p class="faint">${describeCheck(data.check)}</p>
      <${Corrections} rows=${data.corrections} />
      <${Habits} rows=${data.preferences} />
      ${data.thresholds.map((one) => html`<p key=${one.name}><code>${one.name}</code> ${one.base.toFixed(2)} → ${one.value.toFixed(2)}: ${one.reason}</p>`)}
      ${person?.rights?.includes("manage") && data.corrections.length ? html`<${Forget} onDone=${reload} />` : null}
    </div>
  <//>`;
}

const describeCheck = (check) =>
  check ? `Checked on your own requests: ${check.verdict}. ${check.reason}.` : "Not checked yet. To see whether corrections would help, run: fingerpost eval own --compare";

function Corrections({ rows }) {
  if (!rows.length) return html`<p class="faint">Feedback received: 0. Give feedback on the page of a request.</p>`;
  return html`<${Table}
    label="Corrections"
    rows=${rows.map((row) => ({ ...row, id: `${row.right} ${row.wrong}` }))}
    columns=${[
      { key: "right", title: "Right", render: (row) => row.right ?? "" },
      { key: "wrong", title: "Not", render: (row) => row.wrong ?? "" },
      { key: "times", title: "Times", align: "end" },
      { key: "by", title: "By", render: (row) => row.by.join(", ") || "others" },
      { key: "requests", title: "For", render: (row) => row.requests.join("; ") },
    ]}
  />`;
}

function Habits({ rows }) {
  if (!rows.length) return null;
  return html`<${Table}
    label="Preferences"
    rows=${rows.map((row) => ({ ...row, id: `${row.person} ${row.tool}` }))}
    columns=${[
      { key: "person", title: "Person" },
      { key: "tool", title: "Uses" },
      { key: "category", title: "For", render: (row) => describeTopic(row.category) },
      { key: "over", title: "Rather than", render: (row) => row.over.join(", ") },
    ]}
  />`;
}

function Forget({ onDone }) {
  const { busy, error, run } = useAction();
  const forget = async () => {
    if ((await run(() => post("/api/learned/forget", { what: ["corrections"] }))) === undefined) return;
    toast("All corrections were deleted", "good");
    onDone();
  };
  return html`<div class="row">
    <${Button} tone="bad" busy=${busy} onClick=${forget}>Delete all corrections<//>
    ${error ? html`<${Problem} error=${error} />` : null}
  </div>`;
}
