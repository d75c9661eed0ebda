// Shortcuts: one listener for the whole page, so that `g a` is never also `a`.

import { useEffect } from "../vendor/htm-preact.js";
import { createStore, keep, kept } from "../store.js";

export const keysOn = createStore(kept("keys", true));
keysOn.subscribe((on) => keep("keys", on));

const layers = []; // the latest first
let begun = ""; // "g" while the second key of a pair is waited for
let since = 0;
const PATIENCE_MS = 1500;

/** While mounted, `map` says what keys do: {"j": fn, "g l": fn, "?": fn}. */
export function useKeys(map) {
  useEffect(() => {
    layers.unshift(map);
    return () => void layers.splice(layers.indexOf(map), 1);
  });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !keysOn.get()) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key.length !== 1) return;
  const pair = begun && Date.now() - since < PATIENCE_MS ? `${begun} ${event.key}` : event.key;
  begun = "";
  const found = layers.find((layer) => pair in layer);
  if (found) {
    event.preventDefault();
    found[pair](event);
  } else if (layers.some((layer) => Object.keys(layer).some((keys) => keys.startsWith(`${event.key} `)))) {
    begun = event.key;
    since = Date.now();
  }
}

const isTyping = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

document.addEventListener("keydown", onKey);
