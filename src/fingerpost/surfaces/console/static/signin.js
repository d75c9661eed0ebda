// The sign-in page, shown if the server requires a key.

import { signIn } from "./api.js";
import { Button, Field, Toast, html, useEffect, useState } from "./ui.js";

export function SignIn() {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    document.title = "Sign in · Fingerpost";
  }, []);
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(key.trim());
    } catch (cause) {
      setError(cause.status === 401 ? "This key is not known here, or it was revoked." : cause.detail || cause.title);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="signin">
    <form class="signin-card" onSubmit=${onSubmit}>
      <img src="/console/logo.svg" alt="" width="56" height="56" />
      <h1>Fingerpost</h1>
      <p>This house has a lock. Paste one of its keys to come in.</p>
      <${Field} label="Key" error=${error}>
        <input
          type="password"
          name="key"
          autocomplete="current-password"
          spellcheck=${false}
          required
          value=${key}
          onInput=${(event) => setKey(event.target.value)}
        />
      <//>
      <${Button} type="submit" tone="main" busy=${busy} disabled=${!key.trim()}>Sign in<//>
      <details>
        <summary>Where do keys come from?</summary>
        <p>Its operator makes one on its machine:</p>
        <pre tabindex="0">fingerpost keys add NAME --may watch --may approve</pre>
        <p>What the key may do decides what you see: <em>use</em> asks and calls, <em>watch</em> reads
          everything, <em>approve</em> decides on calls, <em>manage</em> switches tools and servers.</p>
      </details>
    </form>
    <${Toast} />
  </main>`;
}
