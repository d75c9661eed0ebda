// Current requests, from one stream that all pages share.
//
// The list is limited, and the page is updated at most once per frame.

import { stream } from "./api.js";
import { createStore } from "./store.js";

export const MAX_LINES = 300;

/** {lines: newest first, waiting: number of approvals or null, state, refused: ApiError or null}. */
export const live = createStore({ lines: [], waiting: null, state: "connecting", refused: null });

/** Merges `changed` into `lines`: newest first, at most `limit`. */
export function mergeLines(lines, changed, limit = MAX_LINES) {
  const fresh = new Map(changed.map((line) => [line.packet_id, line]));
  const merged = lines.map((line) => {
    const newer = fresh.get(line.packet_id);
    fresh.delete(line.packet_id);
    return newer && newer.last_seq >= line.last_seq ? newer : line;
  });
  merged.push(...fresh.values());
  return merged.sort((a, b) => b.seq - a.seq).slice(0, limit);
}

let pendingLines = [];
let frame = 0;
let closeStream = null;

function handleLines(lines) {
  pendingLines.push(...lines);
  if (pendingLines.length > 4 * MAX_LINES) pendingLines = mergeLines([], pendingLines);
  frame ||= requestAnimationFrame(flush);
}

function flush() {
  frame = 0;
  const changed = pendingLines;
  pendingLines = [];
  update({ lines: mergeLines(live.get().lines, changed) });
}

const update = (change) => live.set({ ...live.get(), ...change });

function connect() {
  closeStream ??= stream("/api/live", {
    lines: handleLines,
    approvals: handleApprovals,
    state: (state) => update({ state }),
    refused: (refused) => update({ refused, state: "refused" }),
  });
}

function disconnect() {
  closeStream?.();
  closeStream = null;
}

// A browser permits six connections to one host. A hidden page closes its own.
const connectIfVisible = () => (document.hidden ? disconnect() : connect());

/** Reads the stream until `stopWatching`. */
export function startWatching() {
  update({ refused: null, state: "connecting" });
  document.addEventListener("visibilitychange", connectIfVisible);
  connectIfVisible();
}

export function stopWatching() {
  document.removeEventListener("visibilitychange", connectIfVisible);
  disconnect();
  live.set({ lines: [], waiting: null, state: "connecting", refused: null });
}

const listeners = new Set();

function handleApprovals(message) {
  update({ waiting: message.waiting });
  for (const listener of [...listeners]) listener(message);
}

/** Calls `listener({waiting})` when approvals may have changed. Returns a function that removes it. */
export function onApprovals(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
