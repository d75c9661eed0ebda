// The frame of every page: navigation, connection state, colour theme, shortcuts.

import { signOut } from "./api.js";
import { Dialog, Toast, html, shortcutsEnabled, toast, useEffect, useKeys, useLoad, useState, useStore, escapeInvisible } from "./ui.js";

const PAGES = [
  { name: "live", title: "Live", key: "l", icon: "M3 12h4l3-8 4 16 3-8h4" },
  { name: "ask", title: "Ask", key: "k", icon: "M4 5h16v11H9l-5 4z" },
  { name: "approvals", title: "Approvals", key: "a", icon: "M5 3h14v18H5zM8.500 12l2.500 2.500 5-5" },
  { name: "tools", title: "Tools", key: "t", icon: "M14 6a4 4 0 0 0-5 5l-6 6 3 3 6-6a4 4 0 0 0 5-5l-2.500 2.500-3-3z" },
  { name: "servers", title: "Servers", key: "s", icon: "M4 4h16v6H4zM4 14h16v6H4zM7.500 7h.01M7.500 17h.01" },
  { name: "insight", title: "Insight", key: "i", icon: "M4 20V10M10 20V4M16 20v-7M21 20H3" },
  { name: "audit", title: "Audit", key: "u", icon: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3" },
];

export function Shell({ route, person, watched, children }) {
  const [showKeys, setShowKeys] = useState(false);
  const go = (name) => () => (location.hash = `#/${name}`);
  useKeys({
    ...Object.fromEntries(PAGES.map(({ name, key }) => [`g ${key}`, go(name)])),
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => setShowKeys(true),
  });
  useBadgeInTitle(watched.waiting);
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to the page</a>
    <${Nav} route=${route} person=${person} waiting=${watched.waiting} onKeys=${() => setShowKeys(true)} />
    <main id="main" tabindex="-1">
      <${Connection} state=${watched.state} refused=${watched.refused} />
      ${person.rights?.includes("watch") ? html`<${ServerStrip} page=${route.name} />` : null}
      ${children}
    </main>
    <${Toast} />
    ${showKeys ? html`<${ShortcutsDialog} onClose=${() => setShowKeys(false)} />` : null}
  </div>`;
}

function skipToMain(event) {
  event.preventDefault(); // the hash is used for routing
  document.getElementById("main").focus();
}

/** Shows the number of waiting approvals in the title, also for background tabs. */
function useBadgeInTitle(waiting) {
  useEffect(() => {
    const title = document.querySelector("title");
    const write = () => {
      const plain = document.title.replace(/^\(\d+\) /, "");
      const wanted = waiting ? `(${waiting}) ${plain}` : plain;
      if (document.title !== wanted) document.title = wanted;
    };
    write();
    const observer = new MutationObserver(write);
    observer.observe(title, { childList: true, characterData: true, subtree: true });
    return () => observer.disconnect();
  }, [waiting]);
}

const UP = new Set(["ready", "degraded", "asleep"]);
const STRIP_RELOAD_MS = 15_000;

/** Counts servers: {up, count, down, connecting}. A server that sleeps until it is called is up; one that is off does not count. */
export function countServers(items) {
  const wanted = items.filter((server) => server.on);
  const list = (isMatch) => wanted.filter(isMatch).map((server) => server.name);
  const isDown = (server) => server.state === "down" || (server.state === "connecting" && server.attempts > 0); // a retry
  const down = list(isDown);
  const connecting = list((server) => !isDown(server) && !UP.has(server.state));
  return { up: wanted.length - down.length - connecting.length, count: wanted.length, down, connecting };
}

/** How many servers can be used, on every page. */
function ServerStrip({ page }) {
  const { data, reload } = useLoad("/api/servers", [page]); // again when another page opens
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && reload(), STRIP_RELOAD_MS);
    return () => clearInterval(timer);
  }, [reload]);
  if (!data) return null;
  const { up, count, down, connecting } = countServers(data.items);
  if (!count) return html`<p class="strip"><a href="#/servers">No servers yet: add one</a></p>`;
  const [names, words] = down.length ? [down, "down"] : [connecting, "connecting"];
  const named = names.slice(0, 3).map(escapeInvisible).join(", ");
  return html`<p class="strip ${names.length ? "bad" : ""}"><span class="strip-dot" aria-hidden="true"></span>
    <a href="#/servers">${up} of ${count} ${count === 1 ? "server" : "servers"} up</a>${names.length ? html` <span>· ${words}: ${named}${names.length > 3 ? ` and ${names.length - 3} more` : ""}</span>` : null}</p>`;
}

function Nav({ route, person, waiting, onKeys }) {
  return html`<header class="side">
    <a class="brand" href="#/live"><img src="/console/logo.svg" alt="" width="28" height="28" /><span>Fingerpost</span></a>
    <nav aria-label="Pages">
      ${PAGES.map(
        ({ name, title, icon }) => html`<a key=${name} class="nav-link" href="#/${name}" aria-current=${route.name === name ? "page" : undefined}>
          <svg viewBox="0 0 24 24" aria-hidden="true"><path d=${icon} /></svg>
          <span>${title}</span>
          ${name === "approvals" && waiting ? html`<span class="nav-count" aria-label="${waiting} waiting">${waiting}</span>` : null}
        </a>`,
      )}
    </nav>
    <div class="side-foot">
      <${CurrentUser} person=${person} />
      <div class="side-tools">
        <a href="/docs/" title="Documentation">Docs</a>
        ${person.rights?.includes("watch") ? html`<a href="#/access" title="Keys, users and limits">Access</a>` : null}
        ${person.has_sign_ins ? html`<a href="#/sign-ins" title="Servers where you sign in with your own account">Sign-ins</a>` : null}
        <${ThemeSwitch} />
        <button type="button" class="icon-button keys-button" onClick=${onKeys} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"><${Icon} path=${ICONS.keys} /></button>
        ${person.signed_in ? html`<button type="button" class="icon-button" onClick=${handleSignOut} aria-label="Sign out" title="Sign out"><${Icon} path=${ICONS.signOut} /></button>` : null}
      </div>
    </div>
  </header>`;
}

async function handleSignOut() {
  try {
    await signOut();
  } catch (error) {
    toast(error.detail || error.title, "bad");
  }
}

const CurrentUser = ({ person }) => html`<p class="who" title=${`${person.address ?? ""} · may ${(person.rights ?? []).join(", ") || "nothing"}`}>
  <span dir="auto">${person.name}</span>
  ${person.kind === "local" && !person.signed_in ? html`<span class="faint">not signed in; run fingerpost console</span>` : null}
  <span class="faint">Fingerpost ${person.version}</span>
</p>`;

const Icon = ({ path }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${path} /></svg>`;
const ICONS = {
  keys: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
  signOut: "M12 3v8M6.500 6.500a8 8 0 1 0 11 0",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  dark: "M20 14a8 8 0 1 1-10-10 7 7 0 0 0 10 10z",
};
const THEMES = { auto: "system", light: "light", dark: "dark" };
const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "auto");
  const onClick = () => {
    const next = NEXT_THEME[theme];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("fingerpost.theme", next);
    } catch {
      // The theme is then lost when the page closes.
    }
    setTheme(next);
  };
  const words = THEMES[theme];
  return html`<button type="button" class="icon-button" onClick=${onClick} aria-label="Colours: ${words}" title="Colours: ${words}"><${Icon} path=${ICONS[theme]} /></button>`;
}

const DISCONNECT_DELAY_MS = 1200;

/** Shows that the page may be outdated, after a short delay. */
function Connection({ state, refused }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (state === "open") return setLate(false);
    const timer = setTimeout(() => setLate(true), DISCONNECT_DELAY_MS);
    return () => clearTimeout(timer);
  }, [state === "open"]);
  const text = refused ? `This key cannot receive live updates: ${refused.detail || refused.title}` : "Not connected. This page may be out of date; reconnecting…";
  return html`<div role="status" class="connection">${late ? html`<p class="banner">${text}</p>` : null}</div>`;
}

const SHORTCUTS = [
  ...PAGES.map(({ key, title }) => [`g ${key}`, title]),
  ["/", "Search or filter"],
  ["?", "Show this list"],
  ["j k", "Next, previous (lists)"],
  ["a r", "Approve, reject (Approvals)"],
  ["Esc", "Close"],
];

function ShortcutsDialog({ onClose }) {
  const on = useStore(shortcutsEnabled);
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    <dl class="keys">
      ${SHORTCUTS.map(([keys, meaning]) => html`<div key=${keys}><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${meaning}</dd></div>`)}
    </dl>
    <label class="switch"><input type="checkbox" checked=${on} onChange=${(event) => shortcutsEnabled.set(event.target.checked)} /> Use single-letter shortcuts</label>
  <//>`;
}
