// A value that can be watched. Everything that more than one part of the page shows lives in one.

export function createStore(value) {
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    subscribe(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

/** What was kept in this browser, or `otherwise`. */
export function kept(name, otherwise) {
  try {
    const text = localStorage.getItem(`fingerpost.${name}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(`fingerpost.${name}`, JSON.stringify(value));
  } catch {
    // Storage may be full or switched off: the setting then lasts as long as the page.
  }
}
