// Switching a tool or a server off and on, with a reason.
import { Button, Dialog, Field, Problem, html, toast, useState } from "../ui.js";
import { post } from "../api.js";
import { useAction } from "./paging.js";

const EXPLANATIONS = {
  tool: "It is not offered and cannot be called until you switch it on again. This applies to every program that uses the same store.",
  server: "Its connection closes, and its tools cannot be used until you switch it on again. This applies to every program that uses the same store.",
};

/** `what`: "tool" or "server". Switching off asks for a reason first. */
export function Switch({ path, name, on, what, onDone }) {
  const [asking, setAsking] = useState(false);
  const { busy, error, run } = useAction();
  const setEnabled = async (enabled, reason) => {
    const body = reason ? { on: enabled, reason } : { on: enabled };
    const done = await run(async () => (await post(path, body)) ?? true);
    if (done === undefined) return;
    setAsking(false);
    toast(`${name} is ${enabled ? "on" : "off"}`, "good");
    onDone();
  };
  return html`<div class="switching">
    ${on
      ? html`<${Button} onClick=${() => setAsking(true)}>Switch this ${what} off…<//>`
      : html`<${Button} tone="main" busy=${busy} onClick=${() => setEnabled(true)}>Switch this ${what} on<//>`}
    ${error && !asking ? html`<${Problem} error=${error} />` : null}
    ${asking
      ? html`<${SwitchOffDialog} what=${what} name=${name} busy=${busy} error=${error} onClose=${() => setAsking(false)} onOff=${(reason) => setEnabled(false, reason)} />`
      : null}
  </div>`;
}

function SwitchOffDialog({ what, name, busy, error, onClose, onOff }) {
  const [reason, setReason] = useState("");
  const submit = (event) => {
    event.preventDefault();
    onOff(reason.trim());
  };
  return html`<${Dialog} title=${`Switch ${name} off?`} onClose=${onClose}>
    <form onSubmit=${submit}>
      <p>${EXPLANATIONS[what]}</p>
      <${Field} label="Reason" hint="Optional. Shown wherever it is switched off.">
        <input type="text" dir="auto" maxlength="300" value=${reason} onInput=${(event) => setReason(event.target.value)} />
      <//>
      ${error ? html`<${Problem} error=${error} />` : null}
      <div class="dialog-actions">
        <${Button} tone="bad" type="submit" busy=${busy}>Switch off<//>
        <${Button} onClick=${onClose}>Cancel<//>
      </div>
    </form>
  <//>`;
}
