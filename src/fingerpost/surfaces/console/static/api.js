// The only module that sends requests to the server.
//
//   get("/api/tools", {text: "mail"})     → the response; throws ApiError
//   post("/api/session", {key}), put(…)    → adds the CSRF token
//   del("/api/session")
//   stream("/api/live", {lines, approvals, state, refused}, {after, ended}) → a function that closes it
//   send("/api/ask", body, {event, text, route}, {signal}) → one streamed response
//   me: the store of who is signed in: {state: "unknown" | "known" | "anonymous", person, error}

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
    setPerson(await get("/api/me"));
  } catch (error) {
    if (error.status !== 401) me.set({ state: "unknown", person: null, error });
  }
}

export async function signIn(key) {
  setPerson(await post("/api/session", { key }));
}

/** Signs in with the ticket of a link that `fingerpost console` printed. A ticket is valid once. */
export async function signInByLink(ticket) {
  setPerson(await post("/api/session", { ticket }));
}

/** Opens the page of the identity provider, which leads back to the console. */
export async function beginSignOn() {
  location.assign((await post("/api/sign-on")).url);
}

/** Finishes signing on with what the identity provider added to the address. */
export async function finishSignOn(answer) {
  setPerson(await post("/api/sign-on-answers", answer));
}

/** Signs out. If local callers need no key, the console stays usable as a local caller. */
export async function signOut() {
  const page = me.get().person?.sign_out_url;
  await del("/api/session");
  if (page) {
    location.assign(page);
    return;
  }
  me.set({ state: "unknown", person: null, error: null });
  await loadMe();
}

function setPerson(person) {
  me.set({ state: "known", person, error: null });
}

export const get = (path, params, options) => fetchJson("GET", path, { params, ...options });
export const post = (path, body, options) => fetchJson("POST", path, { body, ...options });
export const put = (path, body, options) => fetchJson("PUT", path, { body, ...options });
export const del = (path, options) => fetchJson("DELETE", path, options);

/** Returns the URL of a path under /api with a query. Empty parameters are omitted. */
export function buildUrl(path, params = {}) {
  const fullPath = path.startsWith("/api") ? path : `/api${path.startsWith("/") ? "" : "/"}${path}`;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query.size ? `${fullPath}${fullPath.includes("?") ? "&" : "?"}${query}` : fullPath;
}

async function fetchJson(method, path, { params, body, signal } = {}) {
  const response = await request(method, buildUrl(path, params), { body, signal });
  return response.status === 204 ? null : response.json();
}

async function request(method, url, { body, signal, accept = "application/json", headers = {} } = {}) {
  const allHeaders = { accept, ...headers };
  const token = me.get().person?.csrf;
  if (method !== "GET" && token) allHeaders["x-csrf-token"] = token;
  if (body !== undefined) allHeaders["content-type"] = "application/json";
  let response;
  try {
    const text = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(url, { method, headers: allHeaders, body: text, signal, cache: "no-store" });
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new ApiError(0, "Fingerpost does not respond", "Check that `fingerpost serve` is running, then try again.");
  }
  if (response.ok) return response;
  const error = await readError(response);
  if (error.status === 401) me.set({ state: "anonymous", person: null, error: null });
  throw error;
}

async function readError(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Not a problem document, or incomplete: only the status is known.
  }
  const { title, detail, status, type, ...more } = problem ?? {};
  return new ApiError(response.status, title || `The server returned ${response.status}`, detail || "", more);
}

/** Sends a request whose response is a stream. Resolves at its end; `handlers` are named after the events. */
export async function send(path, body, handlers, { signal } = {}) {
  const response = await request("POST", buildUrl(path), { body, signal, accept: "text/event-stream" });
  await readEvents(response, (event) => dispatch(event, handlers));
}

function dispatch({ event, data, id }, handlers) {
  const handler = handlers[event] ?? handlers.any;
  if (handler) handler(JSON.parse(data), { event, id });
}

const MIN_RETRY_MS = 500;
const MAX_RETRY_MS = 15_000;

/**
 * Opens a stream that reconnects and resumes after the last event id.
 * `handlers.state` gets "connecting", "open" and "lost"; `handlers.refused` gets the ApiError that ended it.
 */
export function stream(path, handlers, { params, after } = {}) {
  const control = new AbortController();
  let lastId = after;
  let retryMs = MIN_RETRY_MS;
  void follow();
  return () => control.abort();

  async function follow() {
    while (!control.signal.aborted) {
      handlers.state?.("connecting");
      try {
        await readOnce();
      } catch (error) {
        if (control.signal.aborted) return;
        if (isFinal(error)) return handlers.refused?.(error);
      }
      if (control.signal.aborted) return;
      handlers.state?.("lost");
      await sleep(retryMs * (0.75 + Math.random() / 2), control.signal);
      retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
    }
  }

  async function readOnce() {
    const headers = lastId === undefined || lastId === null ? {} : { "last-event-id": String(lastId) };
    const options = { signal: control.signal, accept: "text/event-stream", headers };
    const response = await request("GET", buildUrl(path, params), options);
    handlers.state?.("open");
    await readEvents(response, (event) => {
      retryMs = MIN_RETRY_MS;
      if (event.id !== undefined) lastId = event.id;
      if (!control.signal.aborted) dispatch(event, handlers);
    });
  }
}

/** Returns whether a retry is useless. Too many streams (503) and rate limits (429) are temporary. */
function isFinal(error) {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
