// Paged lists, debounced filters, and actions with a busy flag.
import { Button, html, useCallback, useEffect, useRef, useState } from "../ui.js";
import { get } from "../api.js";

/** Returns `value` after it has not changed for a moment. */
export function useDebounced(value, milliseconds = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/**
 * Loads a list at `path` with `filters` page by page.
 * Old items stay visible until the response to new filters arrives; outdated responses are ignored.
 */
export function usePages(path, filters, limit = 50) {
  const [state, setState] = useState({ items: [], next: null, error: null, loading: true, first: true });
  const running = useRef(null);
  const wanted = JSON.stringify(filters);
  const read = useCallback(
    async (before) => {
      running.current?.abort();
      const control = new AbortController();
      running.current = control;
      setState((now) => ({ ...now, loading: true }));
      try {
        const page = await get(path, { ...JSON.parse(wanted), limit, before }, { signal: control.signal });
        if (control.signal.aborted) return;
        setState((now) => ({
          items: before === undefined ? page.items : [...now.items, ...page.items],
          next: page.next ?? null,
          error: null,
          loading: false,
          first: false,
        }));
      } catch (error) {
        if (!control.signal.aborted) setState((now) => ({ ...now, error, loading: false }));
      }
    },
    [path, wanted, limit],
  );
  useEffect(() => {
    void read();
    return () => running.current?.abort();
  }, [read]);
  return { ...state, reload: () => read(), more: () => read(state.next) };
}

/** The button for the next page. */
export const More = ({ pages }) =>
  pages.next !== null && pages.items.length
    ? html`<p class="more"><${Button} busy=${pages.loading} onClick=${pages.more}>Show more<//></p>`
    : null;

/** A select field. The first option means all. */
export const Choice = ({ label, value, all, choices, onChange }) => html`<label class="pick">
  <span>${label}</span>
  <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    <option value="">${all}</option>
    ${choices.map(([id, words]) => html`<option key=${id} value=${id}>${words}</option>`)}
  </select>
</label>`;

/** The search field that `/` focuses. */
export const Search = ({ label, value, onChange, placeholder }) => html`<label class="search">
  <span>${label}</span>
  <input
    type="search"
    dir="auto"
    data-search
    value=${value}
    placeholder=${placeholder}
    maxlength="200"
    onInput=${(event) => onChange(event.target.value)}
  />
</label>`;

/** Returns `run(act)` with a busy flag and the error, if any. */
export function useAction() {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async (act) => {
    setState({ busy: true, error: null });
    try {
      const given = await act();
      setState({ busy: false, error: null });
      return given;
    } catch (error) {
      setState({ busy: false, error });
      return undefined;
    }
  };
  return { ...state, run };
}
