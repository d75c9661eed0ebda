// Sign-ins: the servers where each user signs in with the own account.

import { del, post } from "../api.js";
import { Badge, Button, Page, Problem, Skeleton, html, toast, useLoad, useState, escapeInvisible } from "../ui.js";

export default function SignIns({ params, query }) {
  const { data, error, reload } = useLoad("/api/sign-ins", []);
  return html`<${Page} title="Sign-ins">
    <p class="faint">Calls of these servers run with your own account there. Other users cannot use it.</p>
    ${error ? html`<${Problem} error=${error} onRetry=${reload} />` : null}
    ${data ? html`<${SignInList} items=${data.items} wanted=${params[0]} link=${query.get("link")} onDone=${reload} />` : error ? null : html`<${Skeleton} lines=${3} />`}
  <//>`;
}

/** All servers, or the one that a link of an MCP client names. */
function SignInList({ items, wanted, link, onDone }) {
  const shown = wanted ? items.filter((item) => item.server === wanted) : items;
  if (!shown.length) return html`<p>${wanted ? `You cannot sign in to ${escapeInvisible(wanted)}.` : "No server asks you to sign in with your own account."}</p>`;
  return html`<section class="panel stack">
    ${shown.map((item) => html`<${Line} key=${item.server} item=${item} link=${wanted ? link : null} onDone=${onDone} />`)}
  </section>`;
}

function Line({ item, link, onDone }) {
  const [busy, setBusy] = useState(false);
  const path = `/api/sign-ins/${encodeURIComponent(item.server)}`;
  const run = async (work) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      toast(error.detail || error.title, "bad");
    } finally {
      setBusy(false);
      onDone();
    }
  };
  const signIn = () => run(async () => location.assign((await post(link ? `${path}?link=${encodeURIComponent(link)}` : path)).url));
  const signOut = () => run(() => del(path));
  return html`<div class="row">
    <strong>${escapeInvisible(item.server)}</strong>
    <${Badge} tone=${item.signed_in ? "good" : "plain"}>${item.signed_in ? "signed in" : "not signed in"}<//>
    ${item.signed_in ? html`<${Button} tone="quiet" busy=${busy} onClick=${signOut}>Sign out<//>` : null}
    <${Button} tone=${item.signed_in ? "quiet" : "main"} busy=${busy} onClick=${signIn}>${item.signed_in ? "Sign in again" : "Sign in"}<//>
  </div>`;
}
