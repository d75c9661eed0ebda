// What is going on right now, from one stream that all pages share.
//
// The list is bounded, and the page hears of changes once per frame however many there were.

import { stream } from "./api.js";
import { createStore } from "./store.js";

export const MOST_LINES = 300;

/** {lines: newest first, waiting: number of approvals or null, state, refused: ApiError or null}. */
export const live = createStore({ lines: [], waiting: null, state: "connecting", refused: null });

/** Lines with `changed` ones put in their place: newest first, no more than `most`. */
export function merge(lines, changed, most = MOST_LINES) {
  const fresh = new Map(changed.map((line) => [line.packet_id, line]));
  const merged = lines.map((line) => {
    const newer = fresh.get(line.packet_id);
    fresh.delete(line.packet_id);
    return newer && newer.last_seq >= line.last_seq ? newer : line;
  });
  merged.push(...fresh.values());
  return merged.sort((a, b) => b.seq - a.seq).slice(0, most);
}

let gathered = [];
let frame = 0;
let close = null;

function onLines(lines) {
  gathered.push(...lines);
  if (gathered.length > 4 * MOST_LINES) gathered = merge([], gathered);
  frame ||= requestAnimationFrame(flush);
}

function flush() {
  frame = 0;
  const changed = gathered;
  gathered = [];
  set({ lines: merge(live.get().lines, changed) });
}

const set = (change) => live.set({ ...live.get(), ...change });

function open() {
  close ??= stream("/api/live", {
    lines: onLines,
    approvals: onWaiting,
    state: (state) => set({ state }),
    refused: (refused) => set({ refused, state: "refused" }),
  });
}

function shut() {
  close?.();
  close = null;
}

// A browser allows six connections to one address. A page nobody looks at gives its own back.
const look = () => (document.hidden ? shut() : open());

/** Follow what happens, from now until `stopWatching`. */
export function startWatching() {
  set({ refused: null, state: "connecting" });
  document.addEventListener("visibilitychange", look);
  look();
}

export function stopWatching() {
  document.removeEventListener("visibilitychange", look);
  shut();
  live.set({ lines: [], waiting: null, state: "connecting", refused: null });
}

const listeners = new Set();

function onWaiting(news) {
  set({ waiting: news.waiting });
  for (const listener of [...listeners]) listener(news);
}

/** Calls `listener({waiting})` whenever an approval may have come or gone; gives a function that stops it. */
export function onApprovals(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
