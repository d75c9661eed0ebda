// The shell: which page is shown, who is signed in, and what is the same on every page.
//
// A page is a module under pages/ whose default export is a component that gets
//   params: the decoded parts of the address behind the page's name (#/tools/git/status → ["git", "status"]),
//   query:  URLSearchParams of what stands behind a "?" in the hash,
//   me:     the answer of GET /api/me.

import { loadMe, me, signInByLink } from "./api.js";
import { startWatching, stopWatching, live } from "./live.js";
import { Shell } from "./shell.js";
import { SignIn } from "./signin.js";
import { Page, Problem, Skeleton, toast, html, render, useEffect, useErrorBoundary, useState, useStore } from "./ui.js";

const PAGES = {
  live: () => import("./pages/live.js"),
  ask: () => import("./pages/ask.js"),
  approvals: () => import("./pages/approvals.js"),
  tools: () => import("./pages/tools.js"),
  servers: () => import("./pages/servers.js"),
  insight: () => import("./pages/insight.js"),
  audit: () => import("./pages/audit.js"),
};

/** Where a hash leads: {name, params, query}. What leads nowhere leads to Live. */
export function placeOf(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...params] = path.split("/").filter(Boolean).map(decoded);
  return { name: Object.hasOwn(PAGES, name ?? "") ? name : "live", params, query: new URLSearchParams(search) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function usePlace() {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const onChange = () => {
      document.body.dataset.moved = "yes";
      setPlace(placeOf(location.hash));
      scrollTo(0, 0);
    };
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return place;
}

/** The page's component, once its module is there. */
function useModule(name) {
  const [loaded, setLoaded] = useState({ name: null, Found: null, error: null });
  useEffect(() => {
    let wanted = true;
    PAGES[name]().then(
      (module) => wanted && setLoaded({ name, Found: module.default, error: null }),
      (error) => wanted && setLoaded({ name, Found: null, error }),
    );
    return () => (wanted = false);
  }, [name]);
  return loaded.name === name ? loaded : { Found: null, error: null };
}

function Opened({ place, person }) {
  const { Found, error } = useModule(place.name);
  const [broken, recover] = useErrorBoundary((cause) => console.warn("the page broke:", cause));
  useEffect(() => void (broken && recover()), [place]);
  if (error || broken) {
    const told = { title: "This page could not be shown", detail: String((error ?? broken).message) };
    return html`<${Page} title="Something broke"><${Problem} error=${told} onRetry=${() => location.reload()} /><//>`;
  }
  if (!Found) return html`<div class="page"><${Skeleton} lines=${6} /></div>`;
  return html`<${Found} params=${place.params} query=${place.query} me=${person} />`;
}

const TICKET = /^#\/sign-in\/([\w-]+)$/;

/** A link of `fingerpost console` signs in; its ticket leaves the address and the history at once. */
async function enter() {
  const ticket = TICKET.exec(location.hash)?.[1];
  if (!ticket) return loadMe();
  history.replaceState(null, "", "#/approvals");
  dispatchEvent(new HashChangeEvent("hashchange"));
  try {
    await signInByLink(ticket);
    toast("You are signed in");
  } catch (error) {
    await loadMe();
    toast(error.detail || error.title, "bad");
  }
}

function App() {
  const { state, person, error } = useStore(me);
  const place = usePlace();
  useEffect(() => {
    const onLink = () => TICKET.test(location.hash) && void enter();
    addEventListener("hashchange", onLink);
    void enter();
    return () => removeEventListener("hashchange", onLink);
  }, []);
  useEffect(() => {
    if (state !== "known") return undefined;
    startWatching();
    return stopWatching;
  }, [state, person?.name]);
  const watched = useStore(live);
  if (state === "stranger") return html`<${SignIn} />`;
  if (state === "unknown") {
    return html`<main class="boot">${error ? html`<${Problem} error=${error} onRetry=${loadMe} />` : "Opening the console…"}</main>`;
  }
  return html`<${Shell} place=${place} person=${person} watched=${watched}>
    <${Opened} key=${`${place.name} ${person.rights}`} place=${place} person=${person} />
  <//>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
