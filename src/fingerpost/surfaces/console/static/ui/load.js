// Loading data, and showing errors.

import { html, useCallback, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { get } from "../api.js";
import { Button, Page, Skeleton } from "./parts.js";
import { escapeInvisible } from "./text.js";

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}

/**
 * Loads `path` (null: nothing), and again when `path` or `deps` change.
 * Old data stays visible while loading; outdated responses are ignored.
 */
export function useLoad(path, deps = []) {
  const [state, setState] = useState({ data: null, error: null, loading: path !== null });
  const running = useRef(null);
  const reload = useCallback(async () => {
    running.current?.abort();
    if (path === null || path === undefined) return;
    const control = new AbortController();
    running.current = control;
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await get(path, undefined, { signal: control.signal });
      if (!control.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!control.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
    }
  }, [path, ...deps]);
  useEffect(() => {
    void reload();
    return () => running.current?.abort();
  }, [reload]);
  return { ...state, reload };
}

/** A page whose data is still loading or failed to load. */
export function PendingPage({ title, error, onRetry, lines }) {
  return html`<${Page} title=${title}>
    ${error ? html`<${Problem} error=${error} onRetry=${onRetry} />` : html`<${Skeleton} lines=${lines} />`}
  <//>`;
}

/** The server's error message, and a button to retry. */
export function Problem({ error, onRetry }) {
  const detail = error.detail || (error.title ? "" : error.message);
  const hint = error.hint ?? error.more?.hint;
  return html`<div class="problem" role="alert">
    <strong>${escapeInvisible(error.title || "That failed")}</strong>
    ${detail ? html`<p dir="auto">${escapeInvisible(detail)}</p>` : null}
    ${hint ? html`<p dir="auto">${escapeInvisible(hint)}</p>` : null}
    ${onRetry ? html`<${Button} onClick=${onRetry}>Try again<//>` : null}
  </div>`;
}
