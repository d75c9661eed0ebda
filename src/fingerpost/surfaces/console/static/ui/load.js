// Loading, and what is shown when it did not work.

import { html, useCallback, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { get } from "../api.js";
import { Button, Page, Skeleton } from "./parts.js";
import { visible } from "./text.js";

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}

/**
 * GET `path` (null: nothing yet) and again whenever `path` or `deps` change.
 * What was there stays on the page while it loads again; an answer that comes too late is dropped.
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

/** A page while what it is about is not there: on its way, or why it did not come. */
export function PageToCome({ title, error, onRetry, lines }) {
  return html`<${Page} title=${title}>
    ${error ? html`<${Problem} error=${error} onRetry=${onRetry} />` : html`<${Skeleton} lines=${lines} />`}
  <//>`;
}

/** What went wrong, in the server's words, and a way to try again. */
export function Problem({ error, onRetry }) {
  const detail = error.detail || (error.title ? "" : error.message);
  const hint = error.hint ?? error.more?.hint;
  return html`<div class="problem" role="alert">
    <strong>${visible(error.title || "That did not work")}</strong>
    ${detail ? html`<p dir="auto">${visible(detail)}</p>` : null}
    ${hint ? html`<p dir="auto">${visible(hint)}</p>` : null}
    ${onRetry ? html`<${Button} onClick=${onRetry}>Try again<//>` : null}
  </div>`;
}
