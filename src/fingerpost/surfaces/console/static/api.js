// The only module that talks to the server.
//
//   get("/api/tools", {text: "mail"})     → the answer; throws ApiError
//   post("/api/session", {key})           → adds the CSRF token
//   del("/api/session")
//   stream("/api/live", {lines, approvals, state, refused}, {after, ended}) → a function that closes it
//   send("/api/ask", body, {event, text, route}, {signal}) → one answer that comes as a stream
//   me: the store of who is signed in: {state: "unknown" | "known" | "stranger", person, error}

import { readEvents } from "./sse.js";
import { createStore } from "./store.js";

export class ApiError extends Error {
  constructor(status, title, detail = "", more = {}) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.more = more;
  }
}

export const me = createStore({ state: "unknown", person: null, error: null });

export async function loadMe() {
  try {
    knownAs(await get("/api/me"));
  } catch (error) {
    if (error.status !== 401) me.set({ state: "unknown", person: null, error });
  }
}

export async function signIn(key) {
  knownAs(await post("/api/session", { key }));
}

/** Sign in with the ticket of a link that `fingerpost console` printed. It is good once. */
export async function signInByLink(ticket) {
  knownAs(await post("/api/session", { ticket }));
}

/** Where nobody needs a key, one still sees what anybody at the machine sees; else the sign-in. */
export async function signOut() {
  await del("/api/session");
  me.set({ state: "unknown", person: null, error: null });
  await loadMe();
}

function knownAs(person) {
  me.set({ state: "known", person, error: null });
}

export const get = (path, params, options) => ask("GET", path, { params, ...options });
export const post = (path, body, options) => ask("POST", path, { body, ...options });
export const del = (path, options) => ask("DELETE", path, options);

/** The address of something under /api, with what is asked for; empty parts are left out. */
export function address(path, params = {}) {
  const whole = path.startsWith("/api") ? path : `/api${path.startsWith("/") ? "" : "/"}${path}`;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query.size ? `${whole}${whole.includes("?") ? "&" : "?"}${query}` : whole;
}

async function ask(method, path, { params, body, signal } = {}) {
  const response = await request(method, address(path, params), { body, signal });
  return response.status === 204 ? null : response.json();
}

async function request(method, url, { body, signal, accept = "application/json", headers = {} } = {}) {
  const said = { accept, ...headers };
  const token = me.get().person?.csrf;
  if (method !== "GET" && token) said["x-csrf-token"] = token;
  if (body !== undefined) said["content-type"] = "application/json";
  let response;
  try {
    const text = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(url, { method, headers: said, body: text, signal, cache: "no-store" });
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new ApiError(0, "Fingerpost does not answer", "Is `fingerpost serve` still running? Then try again.");
  }
  if (response.ok) return response;
  const error = await refusal(response);
  if (error.status === 401) me.set({ state: "stranger", person: null, error: null });
  throw error;
}

async function refusal(response) {
  let told = {};
  try {
    told = await response.json();
  } catch {
    // Not ours, or cut short: the status has to do.
  }
  const { title, detail, status, type, ...more } = told ?? {};
  return new ApiError(response.status, title || `The server said ${response.status}`, detail || "", more);
}

/** One answer that comes as a stream. Resolves when it ends; `handlers` are named after the events. */
export async function send(path, body, handlers, { signal } = {}) {
  const response = await request("POST", address(path), { body, signal, accept: "text/event-stream" });
  await readEvents(response, (event) => hand(event, handlers));
}

function hand({ event, data, id }, handlers) {
  const handler = handlers[event] ?? handlers.any;
  if (handler) handler(JSON.parse(data), { event, id });
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/**
 * A stream that goes on: comes back after a break and resumes behind the last id it saw.
 * `handlers.state` hears "connecting", "open" and "lost"; `handlers.refused` an ApiError it gives up for.
 */
export function stream(path, handlers, { params, after } = {}) {
  const control = new AbortController();
  let last = after;
  let wait = FIRST_WAIT_MS;
  void follow();
  return () => control.abort();

  async function follow() {
    while (!control.signal.aborted) {
      handlers.state?.("connecting");
      try {
        await once();
      } catch (error) {
        if (control.signal.aborted) return;
        if (isFinal(error)) return handlers.refused?.(error);
      }
      if (control.signal.aborted) return;
      handlers.state?.("lost");
      await pause(wait * (0.75 + Math.random() / 2), control.signal);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  async function once() {
    const headers = last === undefined || last === null ? {} : { "last-event-id": String(last) };
    const options = { signal: control.signal, accept: "text/event-stream", headers };
    const response = await request("GET", address(path, params), options);
    handlers.state?.("open");
    await readEvents(response, (event) => {
      wait = FIRST_WAIT_MS;
      if (event.id !== undefined) last = event.id;
      if (!control.signal.aborted) hand(event, handlers);
    });
  }
}

/** Whether asking again would change nothing. Too many streams (503) or too quick (429) passes. */
function isFinal(error) {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
