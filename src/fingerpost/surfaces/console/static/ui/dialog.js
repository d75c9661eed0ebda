// A modal dialog. The native dialog element traps the focus, closes on Esc and restores the focus.

import { html, useEffect, useRef } from "../vendor/htm-preact.js";

let next = 0;

export function Dialog({ title, onClose, children, wide = false }) {
  const dialog = useRef(null);
  const id = useRef(`dialog-${next++}`).current;
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const onClick = (event) => event.target === dialog.current && onClose();
  return html`<dialog ref=${dialog} class="dialog ${wide ? "wide" : ""}" aria-labelledby=${id} onCancel=${onCancel} onClick=${onClick}>
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 id=${id}>${title}</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick=${onClose}>×</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}
