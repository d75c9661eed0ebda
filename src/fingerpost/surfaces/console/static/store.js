// A value with subscribers. State that several components use is in a store.

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

/** Returns a setting stored in this browser, or `fallback`. */
export function loadSetting(name, fallback) {
  try {
    const text = localStorage.getItem(`fingerpost.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

export function saveSetting(name, value) {
  try {
    localStorage.setItem(`fingerpost.${name}`, JSON.stringify(value));
  } catch {
    // Storage may be full or disabled. The setting is then lost when the page closes.
  }
}
