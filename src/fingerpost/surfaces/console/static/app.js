// The application: routing, sign-in, and the shell.
//
// A page is a module under pages/ whose default export is a component with the props
//   params: the decoded path segments after the page's name (#/tools/git/status → ["git", "status"]),
//   query:  URLSearchParams after "?" in the hash,
//   me:     the response of GET /api/me.

import { finishSignOn, loadMe, me, post, signInByLink } from "./api.js";
import { startWatching, stopWatching, live } from "./live.js";
import { Shell } from "./shell.js";
import { SignIn } from "./signin.js";
import { Page, Problem, Skeleton, escapeInvisible, toast, html, render, useEffect, useErrorBoundary, useState, useStore } from "./ui.js";

const PAGES = {
  live: () => import("./pages/live.js"),
  ask: () => import("./pages/ask.js"),
  approvals: () => import("./pages/approvals.js"),
  tools: () => import("./pages/tools.js"),
  servers: () => import("./pages/servers.js"),
  insight: () => import("./pages/insight.js"),
  audit: () => import("./pages/audit.js"),
  "sign-ins": () => import("./pages/signins.js"),
  access: () => import("./pages/access.js"),
};

/** Parses a hash: {name, params, query}. No name is Live; an unknown one is kept, and shown as such. */
export function parseHash(hash) {
  const [, path, search = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const [name, ...params] = path.split("/").filter(Boolean).map(decodePart);
  return { name: name ?? "live", params, query: new URLSearchParams(search) };
}

function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function useRoute() {
  const [route, setRoute] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const onChange = () => {
      document.body.dataset.moved = "yes";
      setRoute(parseHash(location.hash));
      scrollTo(0, 0);
    };
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return route;
}

/** Returns the page's component when its module is loaded. */
function useModule(name) {
  const [loaded, setLoaded] = useState({ name: null, Found: null, error: null });
  useEffect(() => {
    let wanted = true;
    const load = Object.hasOwn(PAGES, name) ? PAGES[name] : () => Promise.resolve({ default: MissingPage });
    load().then(
      (module) => wanted && setLoaded({ name, Found: module.default, error: null }),
      (error) => wanted && setLoaded({ name, Found: null, error }),
    );
    return () => (wanted = false);
  }, [name]);
  return loaded.name === name ? loaded : { Found: null, error: null };
}

function MissingPage() {
  const problem = { title: "There is no such page", detail: "Choose one of the pages in the navigation." };
  return html`<${Page} title="Not found"><${Problem} error=${problem} /><//>`;
}

function CurrentPage({ route, person }) {
  const { Found, error } = useModule(route.name);
  const [broken, recover] = useErrorBoundary((cause) => console.warn("the page failed:", cause));
  useEffect(() => void (broken && recover()), [route]);
  if (error || broken) {
    const problem = { title: "This page could not be shown", detail: String((error ?? broken).message) };
    return html`<${Page} title="Error"><${Problem} error=${problem} onRetry=${() => location.reload()} /><//>`;
  }
  if (!Found) return html`<div class="page"><${Skeleton} lines=${6} /></div>`;
  return html`<${Found} params=${route.params} query=${route.query} me=${person} />`;
}

const TICKET_HASH = /^#\/sign-in\/([\w-]+)$/;

/** Signs in with a link of `fingerpost console`. The ticket is removed from the address and the history at once. */
async function signInFromLink() {
  const ticket = TICKET_HASH.exec(location.hash)?.[1];
  if (new URLSearchParams(location.search).get("state")?.startsWith("sso-")) return finishSignOnHere();
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

/** Finishes signing on, for which the identity provider led back to this page. */
async function finishSignOnHere() {
  const answer = takeAnswer("#/live");
  try {
    await finishSignOn(answer);
  } catch (error) {
    await loadMe();
    toast(error.detail || error.title, "bad");
  }
}

/** Returns what an authorization server added to the address, and removes it from there. */
function takeAnswer(hash) {
  const given = new URLSearchParams(location.search);
  const names = ["state", "code", "error", "error_description", "iss"].filter((name) => given.has(name));
  history.replaceState(null, "", `${location.pathname}${hash}`);
  return Object.fromEntries(names.map((name) => [name, given.get(name)]));
}

/** Finishes a sign-in to a server, for which the authorization server led back to this page. */
async function finishServerSignIn() {
  if (!new URLSearchParams(location.search).has("state")) return;
  const answer = takeAnswer("#/sign-ins");
  try {
    const { server } = await post("/api/sign-in-answers", answer);
    toast(`You are signed in to ${escapeInvisible(server)}`);
  } catch (error) {
    toast(error.detail || error.title, "bad");
  }
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function App() {
  const { state, person, error } = useStore(me);
  const route = useRoute();
  useEffect(() => {
    const onLink = () => TICKET_HASH.test(location.hash) && void signInFromLink();
    addEventListener("hashchange", onLink);
    void signInFromLink();
    return () => removeEventListener("hashchange", onLink);
  }, []);
  useEffect(() => {
    if (state !== "known") return undefined;
    void finishServerSignIn();
    startWatching();
    return stopWatching;
  }, [state, person?.name]);
  const watched = useStore(live);
  if (state === "anonymous") return html`<${SignIn} />`;
  if (state === "unknown") {
    return html`<main class="boot">${error ? html`<${Problem} error=${error} onRetry=${loadMe} />` : "Opening the console…"}</main>`;
  }
  return html`<${Shell} route=${route} person=${person} watched=${watched}>
    <${CurrentPage} key=${`${route.name} ${person.rights}`} route=${route} person=${person} />
  <//>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
