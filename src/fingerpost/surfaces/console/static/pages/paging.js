// Lists that come page by page, filters that wait until somebody stops typing.
import { Button, html, useCallback, useEffect, useRef, useState } from "../ui.js";
import { get } from "../api.js";

/** `value`, once it has stayed the same for a moment. */
export function useSettled(value, milliseconds = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/**
 * Everything so far of a list at `path` with `filters`, and how to go on.
 * What is shown stays until the answer to new filters is there; an answer that comes too late is dropped.
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

/** The way to the page behind this one. */
export const More = ({ pages }) =>
  pages.next !== null && pages.items.length
    ? html`<p class="more"><${Button} busy=${pages.loading} onClick=${pages.more}>Show more<//></p>`
    : null;

/** A choice among few words; the first stands for all of them. */
export const Choice = ({ label, value, all, choices, onChange }) => html`<label class="pick">
  <span>${label}</span>
  <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    <option value="">${all}</option>
    ${choices.map(([id, words]) => html`<option key=${id} value=${id}>${words}</option>`)}
  </select>
</label>`;

/** The box that `/` leads to. */
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

/** `act()` with a busy flag and the problem, if there was one. */
export function useAct() {
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
