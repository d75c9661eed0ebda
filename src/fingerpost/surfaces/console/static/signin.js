// The sign-in page, shown if the server requires a key.

import { beginSignOn, get, signIn } from "./api.js";
import { Button, Field, Toast, html, toast, useEffect, useState } from "./ui.js";

export function SignIn() {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [issuer, setIssuer] = useState(null);
  useEffect(() => {
    document.title = "Sign in · Fingerpost";
    get("/api/sign-on").then((offer) => setIssuer(offer.issuer), () => {});
  }, []);
  const onSignOn = () => beginSignOn().catch((cause) => toast(cause.detail || cause.title, "bad"));
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(key.trim());
    } catch (cause) {
      setError(cause.status === 401 ? "Unknown or revoked key." : cause.detail || cause.title);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="signin">
    <form class="signin-card" onSubmit=${onSubmit}>
      <img src="/console/logo.svg" alt="" width="56" height="56" />
      <h1>Fingerpost</h1>
      ${issuer ? html`<${Button} type="button" tone="main" onClick=${onSignOn}>Sign in with ${new URL(issuer).host}<//>` : null}
      <p>This console is protected. Paste an access key to sign in.</p>
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
        <summary>Where do I get a key?</summary>
        <p>The operator creates one on the machine that runs Fingerpost:</p>
        <pre tabindex="0">fingerpost keys add NAME --may watch --may approve</pre>
        <p>Its rights decide what you can do here: <em>use</em> (ask and call), <em>watch</em> (read everything),${" "}
          <em>approve</em> (decide on calls), <em>manage</em> (change tools and servers).</p>
      </details>
    </form>
    <${Toast} />
  </main>`;
}
