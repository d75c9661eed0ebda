// Keyboard shortcuts. One listener for the whole page, so that `g a` does not also trigger `a`.

import { useEffect } from "../vendor/htm-preact.js";
import { createStore, saveSetting, loadSetting } from "../store.js";

export const shortcutsEnabled = createStore(loadSetting("keys", true));
shortcutsEnabled.subscribe((on) => saveSetting("keys", on));

const layers = []; // newest first
let firstKey = ""; // "g" while waiting for the second key of a pair
let firstKeyAt = 0;
const SEQUENCE_TIMEOUT_MS = 1500;

/** Registers shortcuts while the component is mounted: {"j": fn, "g l": fn, "?": fn}. */
export function useKeys(map) {
  useEffect(() => {
    layers.unshift(map);
    return () => void layers.splice(layers.indexOf(map), 1);
  });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !shortcutsEnabled.get()) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key.length !== 1) return;
  const pair = firstKey && Date.now() - firstKeyAt < SEQUENCE_TIMEOUT_MS ? `${firstKey} ${event.key}` : event.key;
  firstKey = "";
  const found = layers.find((layer) => pair in layer);
  if (found) {
    event.preventDefault();
    found[pair](event);
  } else if (layers.some((layer) => Object.keys(layer).some((keys) => keys.startsWith(`${event.key} `)))) {
    firstKey = event.key;
    firstKeyAt = Date.now();
  }
}

const isTyping = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

document.addEventListener("keydown", onKey);
